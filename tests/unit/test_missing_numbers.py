"""Missing numbers: boosted trees take them as they are, the network gets the mean and a flag."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.utils import get_tags

import lvd
from lvd.models.candidates import Candidates, FilledModel
from lvd.models.model import takes
from lvd.tables.splits import split_indices
from lvd.tables.table_encoder import TableEncoder
from lvd.tables.table_model import TableModel

N = 300
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
GAPS = RNG.random(N) < 0.3
Y = X[:, 0] + 4.0 * GAPS + 0.1 * RNG.normal(size=N)
HOLED = np.column_stack([X[:, 0], np.where(GAPS, np.nan, X[:, 1]), X[:, 2]])
TABLE = pa.table({
    "a": X[:, 0],
    "b": pa.array(HOLED[:, 1], from_pandas=True),
    "day": [None if gap else f"2024-03-{1 + row % 28:02}" for row, gap in enumerate(GAPS)],
    "flag": [None if row % 7 == 0 else row % 2 == 0 for row in range(N)],
    "kind": [None if row % 5 == 0 else "uvw"[row % 3] for row in range(N)],
    "y": Y,
})  # fmt: skip


def regressor(estimator, **settings):
    return lvd.LVDRegressor(estimator, preset="paper", device="cpu", random_state=0, **settings)


class TestEncoder:
    encoder = TableEncoder.fit(TABLE, target="y", impute="median")
    passing = TableEncoder(encoder.targets, encoder.columns, fills=False)

    def test_hands_out_nan(self):
        coded = self.passing.transform(TABLE)
        names = self.passing.feature_names
        missing = dict(zip(names, np.isnan(coded).sum(axis=0).tolist(), strict=True))
        holed = dict.fromkeys(("b", "day: weekday", "day: days"), GAPS.sum())
        assert missing == dict.fromkeys(names, 0) | holed | {"flag": -(-N // 7)}

    def test_or_medians(self):
        filled = self.encoder.transform(TABLE)
        np.testing.assert_array_equal(self.passing.filled(self.passing.transform(TABLE)), filled)
        assert (filled[GAPS, 1] == np.nanmedian(HOLED[:, 1])).all()
        days = filled[:, self.encoder.feature_names.index("day: days")]
        assert (days[GAPS] == np.median(days[~GAPS])).all()

    def test_what_it_does_is_saved_and_older_ones_fill(self):
        content = self.passing.to_dict()
        assert TableEncoder.from_dict(content) == self.passing
        del content["fills"]
        assert TableEncoder.from_dict(content) == self.encoder
        with pytest.raises(lvd.InputError, match="damaged"):
            TableEncoder.from_dict(content | {"fills": "yes"})


class TestModels:
    @pytest.mark.parametrize("name", ["net", "trees", "auto"])
    def test_take_what_is_missing_by_name(self, name):
        reg = regressor(name).fit(HOLED, Y)
        assert takes(reg.model_, "allow_nan")
        evidence = reg.predict_with_evidence(HOLED)
        # A typical number alone would leave errors of about 2.
        assert np.mean(np.abs(Y - evidence.y_pred)) < 1.0
        assert evidence.known.mean() > 0.95
        far = np.array([[50.0, np.nan, 0.0]])
        assert not reg.predict_with_evidence(far).known.any()

    def test_the_better_is_chosen_on_the_same_rows(self):
        models = {"net": lvd.NetRegressor(random_state=0), "trees": lvd.TreesRegressor(random_state=0)}
        choice = Candidates(models).choose(HOLED, Y[:, None], 0)
        assert set(choice.errors) == {"net", "trees"}
        assert max(choice.errors.values()) < 0.6
        assert np.isfinite(choice.held_out).all()

    def test_without_gaps_nothing_is_filled(self):
        net = Candidates({"net": lvd.NetRegressor()}).choose(X, Y[:, None], 0).model
        assert isinstance(net, lvd.NetRegressor)
        with pytest.raises(lvd.InputError, match=f"X contains {GAPS.sum()} NaN"):
            net.fit(X, Y).predict(HOLED)

    def test_infinity_is_refused(self):
        with pytest.raises(lvd.InputError, match="infinity"):
            regressor("auto").fit(np.where(np.isnan(HOLED), np.inf, HOLED), Y)

    def test_tags_tell(self):
        told = [
            get_tags(one).input_tags.allow_nan
            for one in (lvd.LVDRegressor(), lvd.LVDRegressor(preset="paper"), lvd.LVDRegressor("trees"))
        ]
        assert told == [True, False, True]
        assert not get_tags(lvd.LVDRegressor(lvd.NetRegressor())).input_tags.allow_nan


class TestTables:
    @pytest.mark.parametrize("name", ["net", "trees"])
    def test_saved_models_predict_the_same(self, name, tmp_path):
        model, report = TableModel.fit(TABLE, regressor(name), target="y", impute="median")
        assert not model.encoder.fills
        assert isinstance(model.regressor.model_, FilledModel | lvd.TreesRegressor)
        assert report.targets[0].summary.rows[0]["mean_absolute_deviation"] < 1.0
        model.save(tmp_path / "model")
        (rows,) = TABLE.slice(0, 40).to_batches()
        expected = model.predict(rows)
        found = TableModel.load(tmp_path / "model").predict(rows)
        for column, values in expected.items():
            np.testing.assert_array_equal(found[column], values)

    def test_models_that_take_none_get_medians(self):
        net = lvd.NetRegressor(n_batches=20, device="cpu", random_state=0)
        model, _ = TableModel.fit(TABLE, regressor(net), target="y", impute="median")
        assert model.encoder.fills
        assert np.isfinite(model.inputs(TABLE)).all()

    def test_gaps_outside_the_training_rows_alone(self):
        values = X[:, 1].copy()
        values[split_indices(N, 0)[2]] = np.nan
        table = pa.table({"a": X[:, 0], "b": pa.array(values, from_pandas=True), "y": Y})
        model, _ = TableModel.fit(table, regressor("net"), target="y", impute="median")
        assert model.encoder.fills
        assert isinstance(model.regressor.model_, lvd.NetRegressor)
