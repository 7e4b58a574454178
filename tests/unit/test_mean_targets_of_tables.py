"""Columns of a table with more levels than have a feature each: their mean targets, told by other rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lvd
from lvd.tables.column_coding import column_from_dict, column_to_dict, encode_column
from lvd.tables.inputs import prepare_columns
from lvd.tables.table_model import TableModel

N, N_LEVELS = 900, 150


def table_of(y=None, seed=0):
    rng = np.random.default_rng(seed)
    shop, size = rng.integers(0, N_LEVELS, N), rng.normal(size=N)
    effects = 3.0 * np.random.default_rng(99).normal(size=N_LEVELS)
    paid = effects[shop] + size + 0.1 * rng.normal(size=N) if y is None else y
    return pa.table({"shop": [f"shop {one}" for one in shop], "size": size, "paid": paid})


@pytest.fixture(scope="module")
def prepared():
    return prepare_columns(table_of(), target="paid", seed=0)


def test_they_are_a_feature_after_the_frequency(prepared):
    shop = prepared.encoder.columns[0]
    assert shop.feature_names[-3:] == ("shop: rare", "shop: frequency", "shop: mean target")
    assert prepared.encoder.feature_names[-1] == "size"
    table, train = table_of(), prepared.parts[0]
    codes, paid = table["shop"].to_numpy(), table["paid"].to_numpy()
    for text in (shop.categories[0], shop.rare[0]):
        features = encode_column(shop, pa.chunked_array([[text]]))[0]
        levels = (*shop.categories, *shop.rare)
        assert features[-1] == shop.means[0][levels.index(text)]
        own = paid[train][codes[train] == text].mean()
        assert min(own, paid[train].mean()) <= features[-1] <= max(own, paid[train].mean())
    unseen = encode_column(shop, pa.chunked_array([["nowhere"]]))[0]
    assert unseen[-3:].tolist() == [1.0, 0.0, pytest.approx(paid[train].mean())]


def test_training_rows_do_not_know_their_own_target():
    """Of noise the means of other rows tell nothing, and those with the row's own would tell a lot."""
    noise = np.random.default_rng(1).normal(size=N)
    prepared = prepare_columns(table_of(noise), target="paid", seed=0)
    train, place = prepared.parts[0], len(prepared.encoder.columns[0].feature_names) - 1
    plain = prepared.read(train)
    told, spoiled = prepared.training_inputs[:, place], plain[:, place]
    assert abs(np.corrcoef(told, noise[train])[0, 1]) < 0.2
    assert np.corrcoef(spoiled, noise[train])[0, 1] > 0.25
    others = np.delete(np.arange(plain.shape[1]), place)
    np.testing.assert_array_equal(prepared.training_inputs[:, others], plain[:, others])


def test_several_targets_have_a_feature_each_and_cross_calibration_none():
    table = table_of()
    both = table.append_column("other", pa.array(-table["paid"].to_numpy()))
    prepared = prepare_columns(both, target=["paid", "other"], seed=0)
    assert prepared.encoder.columns[0].feature_names[-2:] == ("shop: mean target 1", "shop: mean target 2")
    np.testing.assert_allclose(prepared.training_inputs[:, -3], -prepared.training_inputs[:, -2])
    crossed = prepare_columns(table, target="paid", seed=0, joins=lambda n_rows, n_levels: True)
    assert crossed.encoder.columns[0].means == ()


def test_they_are_saved_and_damage_is_refused(prepared):
    shop = prepared.encoder.columns[0]
    content = column_to_dict(shop)
    assert column_from_dict(content) == shop
    for means in ([[1.0]], [[float("nan")] * (N_LEVELS + 1)]):
        with pytest.raises(ValueError, match="mean targets that are not those of the categories"):
            column_from_dict(content | {"means": means})


def test_a_model_is_the_better_for_it_and_knows_its_rows(tmp_path):
    regressor = lvd.LVDRegressor("trees", preset="paper", device="cpu", random_state=0)
    model, report = TableModel.fit(table_of(), regressor, target="paid")
    new = table_of(seed=2)
    errors = np.abs(regressor.predict(model.inputs(new)) - new["paid"].to_numpy())
    assert errors.mean() < 1.2  # without the means it is 1.9
    assert report.leaks == {}
    train = np.setdiff1d(np.arange(N), [*model.calibration_rows - 1, *model.test_rows - 1])
    assert model.training_inputs(model.inputs(table_of().take(train))).all()
    model.save(tmp_path / "model")
    rows = new.slice(0, 5).to_pylist()
    np.testing.assert_array_equal(
        lvd.load(tmp_path / "model").predict(rows), regressor.predict(model.inputs(new.slice(0, 5)))
    )
    strange = [rows[0] | {"shop": "nowhere"}]
    assert not lvd.load(tmp_path / "model").predict_with_evidence(strange).known[0]
