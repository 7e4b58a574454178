"""Whether a row is known: far rows are told, ordinary ones are not called unknown too often."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import lvd
from lvd.models import Evaluation
from lvd.scores import EvaluatedRows
from lvd.support.rule import (
    BEYOND,
    FAR,
    FAR_EMBEDDED,
    FAR_INPUTS,
    LARGEST_OF_FEW,
    ROOM,
    PartKinds,
    TrainingSupport,
    tail_exponent,
)


class Inputs(list):
    """Rows that are no numbers."""


def rows_of(spaces, inputs=None):
    """Rows with this embedding, and with numbers if there are two spaces."""
    numbers = spaces[1] if len(spaces) > 1 else None
    given = Inputs(spaces[0]) if inputs is None else inputs
    return EvaluatedRows(given, Evaluation(np.zeros((len(spaces[0]), 1)), spaces[0], inputs=numbers))


def learned(spaces, inputs=None):
    return TrainingSupport().fit(rows_of(spaces, inputs), 0)


def known(support, spaces, inputs=None):
    return support.check(rows_of(spaces, inputs)).known


def test_few_ordinary_rows_are_called_unknown(rng):
    rows = rng.normal(size=(20_000, 3))
    support = learned([rows[:4000], rows[:4000, :2]])
    unknown = ~known(support, [rows[4000:], rows[4000:, :2]])
    assert 0.0 < unknown.mean() < 1.5 * BEYOND


GENERATORS = {
    "even": lambda rng, n: rng.uniform(-1, 1, (n, 3)),
    "normal": lambda rng, n: rng.normal(size=(n, 6)) @ np.random.default_rng(7).normal(size=(6, 6)),
    "wide": lambda rng, n: rng.normal(size=(n, 20)),
    "towns": lambda rng, n: (
        np.repeat(8.0 * np.eye(4), -(-n // 4), 0)[rng.permutation(n)] + rng.normal(size=(n, 4))
    ),
    "skewed": lambda rng, n: rng.exponential(size=(n, 3)),
}


def small_tables(n_rows, n_tables):
    """Of each generator so many tables, as rows with an embedding and inputs, beside fresh rows."""
    for number in range(n_tables):
        for name, draw in GENERATORS.items():
            rng = np.random.default_rng([number, n_rows])
            X = draw(rng, n_rows + 200)
            embedding = np.column_stack([X, np.tanh(X.mean(axis=1))])
            yield name, [embedding[:n_rows], X[:n_rows]], [embedding[n_rows:], X[n_rows:]]


@pytest.mark.parametrize("n_rows", [45, 90, 188, 375])
def test_of_few_rows_few_ordinary_ones_are_unknown(n_rows):
    shares = [(~known(learned(rows), fresh)).mean() for _, rows, fresh in small_tables(n_rows, 10)]
    assert np.mean(shares) < 0.005


def unknown_and_found(n_rows, n_tables):
    """For each generator the share of ordinary rows that are unknown, and of rows far out."""
    shares, found = {name: [] for name in GENERATORS}, {name: [] for name in GENERATORS}
    for name, rows, fresh in small_tables(n_rows, n_tables):
        support = learned(rows)
        shares[name].append((~known(support, fresh)).mean())
        far = [one.mean(axis=0, keepdims=True) + 10.0 * one.std(axis=0) for one in rows]
        found[name].append(not known(support, far).any())
    mean_of = {name: float(np.mean(one)) for name, one in shares.items()}
    print(n_rows, {name: f"{mean_of[name]:.2%}, far {np.mean(found[name]):.0%}" for name in GENERATORS})
    return mean_of, {name: float(np.mean(one)) for name, one in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "n_tables"), [(45, 50), (45, 300), (60, 300), (90, 50), (188, 50), (375, 50), (1500, 50)]
)
def test_few_ordinary_rows_are_unknown_whatever_draws_them(n_rows, n_tables):
    """Three quarters of 60, 120, 250, 500 and 2,000 rows, as `fit` leaves them, and all of 60, as cross does."""
    shares, found = unknown_and_found(n_rows, n_tables)
    assert max(shares.values()) <= 0.005
    assert min(found.values()) >= 0.85
    assert np.mean(list(found.values())) > 0.97


def test_an_exponent_of_four_distances_would_call_more_unknown(monkeypatch):
    def share():
        drawn = [(rows, fresh) for name, rows, fresh in small_tables(45, 50) if name == "skewed"]
        return np.mean([(~known(learned(rows), fresh)).mean() for rows, fresh in drawn])

    assert share() <= 0.005
    monkeypatch.setattr("lvd.support.rule.FEWEST_IN_TAIL", 4)
    assert share() > 0.005


def test_heavy_tails_of_few_rows_do_not_make_all_rows_known():
    own = np.r_[np.ones(40), np.full(5, 6.0)]
    assert tail_exponent(own) == pytest.approx(5 / 18 * np.log(6.0))
    assert tail_exponent(np.geomspace(1.0, 1e4, 45)) == LARGEST_OF_FEW
    assert tail_exponent(np.geomspace(1.0, 1e6, 450)) > LARGEST_OF_FEW


def test_without_extrapolation_far_more_would_be(monkeypatch):
    monkeypatch.setattr("lvd.support.rule.times_of_few", lambda n_rows, exponent: 1.0)
    shares = [(~known(learned(rows), fresh)).mean() for _, rows, fresh in small_tables(45, 10)]
    assert np.mean(shares) > 0.01


@pytest.mark.parametrize("n_rows", [45, 90])
def test_of_few_rows_far_ones_are_found(n_rows):
    for _, rows, fresh in small_tables(n_rows, 2):
        far = [rows[0].mean(0) + 10.0 * rows[0].std(0)] * 3, [rows[1].mean(0) + 10.0 * rows[1].std(0)] * 3
        assert not known(learned(rows), [np.array(far[0]), np.array(far[1])]).any()
        assert known(learned(rows), fresh).any()


def test_also_where_columns_are_many_and_every_row_is_the_largest_in_some(rng):
    rows = rng.normal(size=(900, 600))
    inputs = np.abs(rows[:, :1]), rows  # the embedding is one column
    unknown = ~known(learned([one[:400] for one in inputs]), [one[400:] for one in inputs])
    assert unknown.mean() < 0.05


def test_far_in_either_space_is_unknown_and_the_embedding_is_given_more_room(rng):
    rows = rng.normal(size=(500, 2))
    rows[0] = [0.0, 40.0]  # so that a tenth of the range is more than what is far
    support = learned([rows, rows])
    top = rows[np.argmax(np.where(rows[:, 1] < 40.0, rows[:, 1], -np.inf))]
    up = np.array([0.0, support.embedding_.limit * support.embedding_.scale[1]])
    near = np.tile(top, (3, 1))
    asked = top + np.outer([0.0, 0.99 * FAR_EMBEDDED, 1.01 * FAR_EMBEDDED], up)
    assert known(support, [asked, near]).tolist() == [True, True, False]
    outwards = top + np.outer([0.99 * FAR_INPUTS, 1.01 * FAR_INPUTS, FAR_EMBEDDED], up)
    assert known(support, [near, outwards]).tolist() == [True, False, False]
    alone = learned([rows])
    assert known(alone, [top + np.outer([0.99 * FAR, 1.01 * FAR], up)]).tolist() == [True, False]


def test_a_column_outside_its_range_is_unknown_however_near_the_row_is(rng):
    """Steps of a column that is one of many are small distances."""
    rows = np.column_stack([rng.uniform(size=(500, 21)), np.ones(500)])
    support = learned([rows[:, :1], rows])
    asked = np.tile(rows[0], (5, 1))
    low, high = rows[:, 20].min(), rows[:, 20].max()
    asked[:4, 20] = np.outer([1, -1], [0.99, 1.01]).ravel() * ROOM * (high - low) + [high, high, low, low]
    asked[4, 21] = 1.001
    assert known(support, [asked[:, :1], asked]).tolist() == [True, False, True, False, False]


def test_rows_that_all_come_twice(rng):
    rows = np.repeat(rng.normal(size=(300, 2)), 2, axis=0)
    assert known(learned([rows]), [rows[::2]]).all()


@pytest.mark.parametrize(("n_rows", "decides"), [(500, False), (100, True)])
def test_an_outlier_decides_what_is_far_among_few_rows_alone(rng, n_rows, decides):
    rows = rng.normal(size=(n_rows, 2))
    rows[0] = 50.0
    space = learned([rows]).embedding_
    assert (space.limit * space.scale[0] > 40.0) == decides


def test_rows_that_are_all_the_same():
    support = learned([np.ones((30, 2))])
    assert known(support, [np.array([[1.0, 1.0], [1.0, 1.1]])]).tolist() == [True, False]


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    network = lvd.NetRegressor(n_batches=100, random_state=0).fit(X[:400], X[:400, 0])
    score = lvd.scores.ScaledResidual(("kernel",))
    reg = lvd.LVDRegressor(network, prefit=True, calib_size=None, conformity_score=score, random_state=0)
    return reg.fit(X[:400], X[:400, 0]).conformalize(X[400:], X[400:, 0])


class TestInTheRegressor:
    def test_a_row_far_out_is_unknown_and_infinite(self, fitted):
        known = fitted.predict_with_evidence([[0.0, 0.0], [50.0, 50.0]]).known
        finite = np.isfinite(fitted.predict_interval([[0.0, 0.0], [50.0, 50.0]])[1]).all((1, 2))
        assert known.tolist() == finite.tolist() == [True, False]

    def test_or_as_wide_as_the_calibration_rows_say(self, fitted):
        fitted.set_params(when_unknown="widen")
        prediction = fitted.predict_with_evidence([[4.0, 4.0]])
        fitted.set_params(when_unknown=None)
        assert not prediction.known[0]
        assert np.isfinite(prediction.intervals).all()

    def test_fit_settles_what_the_preset_says(self, fitted):
        fitted.set_params(preset="paper")
        assert np.isinf(fitted.predict_interval([[50.0, 50.0]])[1]).all()
        fitted.set_params(preset="default")

    def test_a_choice_after_fit_is_checked(self, fitted):
        fitted.set_params(when_unknown="ignore")
        with pytest.raises(
            lvd.InputError, match="when_unknown must be one of 'infinite', 'widen', got 'ignore'"
        ):
            fitted.predict_interval([[0.0, 0.0]])
        fitted.set_params(when_unknown=None)

    @pytest.mark.parametrize("preset", ["default", "paper"])
    def test_a_model_saved_before_it_was_settled_asks_its_preset(self, fitted, preset, tmp_path):
        old = copy.copy(fitted).set_params(preset=preset)
        del old.when_unknown_
        old.save(tmp_path / "model")
        intervals = lvd.load(tmp_path / "model").predict_interval([[4.0, 4.0]])[1]
        assert np.isinf(intervals).all() == (preset == "default")

    def test_the_sentence_says_so(self, fitted):
        (explanation,) = fitted.explain([[0.0, 0.0]], unknown=[True])
        assert explanation.sentence == "Unknown: it was marked as unknown, so it gets no finite interval."

    def test_a_number_beyond_all_is_named(self, fitted):
        explained = fitted.explain([[0.0, 0.0], [0.0, 9.0]])
        assert [one.column for one in explained] == [None, 1]
        assert explained[1].sentence.startswith("Unknown: input 2 is outside the range of the training rows")


@pytest.mark.parametrize("network", [None, lvd.NetRegressor()], ids=["paper", "built-in"])
def test_concrete_older_than_any_seen(shared_dir, full_training, network):
    """Trained and calibrated without concrete of 90 days and more, at least 90% of those rows are unknown."""
    data = lvd.data.load_dataset("concrete", data_dir=shared_dir / "data")
    old = data.X[:, 7] >= 90
    told, mistaken = [], []
    for seed in range(3):
        young = np.random.default_rng(seed).permutation(np.flatnonzero(~old))
        train, test = young[: int(0.8 * len(young))], young[int(0.8 * len(young)) :]
        reg = lvd.LVDRegressor(network, preset="paper", random_state=seed).fit(data.X[train], data.y[train])
        told.append(1.0 - reg.predict_with_evidence(data.X[old]).known.mean())
        mistaken.append(1.0 - reg.predict_with_evidence(data.X[test]).known.mean())
    assert np.mean(told) >= 0.95
    assert np.mean(mistaken) <= 0.02


class Words(list):
    """Rows that are made of letters."""

    parts_are = "letters"

    def parts(self):
        return [list(word) for word in self]


def reasons(training, new):
    found = PartKinds.of(Words(training)).check(Words(new)).reasons
    return [found[row].text if row in found else None for row in range(len(new))]


def test_a_row_made_of_something_new_is_unknown():
    found = reasons(["ab", "abc", "abab"], ["ba", "abd", "xay"])
    assert found == [
        None,
        "no training row has d among its letters",
        "no training row has x, y among its letters",
    ]


def test_and_so_is_one_of_far_more_or_fewer_parts():
    found = reasons(["a" * n for n in range(4, 25)], ["aa", "a", "a" * 26, "a" * 27])
    assert found == [
        None,
        "it has 1 letter, training rows have 4 to 24",
        None,
        "it has 27 letters, training rows have 4 to 24",
    ]
    found = reasons(["aaa"] * 9, ["aa", "a", "aaaa", "aaaaa"])  # one more is not far
    assert [one is None for one in found] == [True, False, True, False]


def test_one_large_row_does_not_make_all_sizes_known():
    assert reasons(["a" * 5] * 199 + ["a" * 60], ["a" * 65, "a" * 67]) == [
        None,
        "it has 67 letters, training rows have 5 to 60",
    ]


def test_parts_decide_beside_distances(rng):
    rows = rng.normal(size=(300, 2))
    support = learned([rows], Words(["ab"] * 300))
    assert known(support, [rows[:3]], Words(["ab", "ac", "b"])).tolist() == [True, False, True]
    assert not known(support, [rows[:1] + 1e3], Words(["ab"])).any()


def test_where_parts_are_looked_at_too_the_embedding_calls_fewer_unknown(rng):
    rows = rng.normal(size=(400, 2))
    alone, made = learned([rows]), learned([rows], Words(["ab"] * 400))
    space = alone.embedding_
    out = rows[[rows[:, 0].argmax()]]
    for times, expected in (
        (0.9 * FAR, (True, True)),
        (1.2 * FAR, (False, True)),
        (1.1 * FAR_EMBEDDED, (False, False)),
    ):
        new = out + np.array([times * space.limit * space.scale[0], 0.0])
        assert (known(alone, [new])[0], known(made, [new], Words(["ab"]))[0]) == expected
