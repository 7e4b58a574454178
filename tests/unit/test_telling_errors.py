"""Which errors tell a kernel what rows are alike, of models that know their own spread."""

from contextlib import nullcontext

import numpy as np
import pytest

import lvd
from lvd.models import Evaluation
from lvd.scores import EvaluatedRows, TrainingRows, score

FEWEST = 8


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch):
    monkeypatch.setattr(score, "FEWEST_HELD_OUT", FEWEST)


class KnowsHeldOut(lvd.NetRegressor):
    held_out = np.zeros(0, np.int64)

    @property
    def rows_held_out(self):
        return self.held_out


def training(y, held_out_rows):
    """Of a model that predicts zero, knows its spread, and was trained on all rows but some."""
    zero, model = np.zeros_like(y), KnowsHeldOut()
    if held_out_rows is not None:
        model.held_out = held_out_rows
    evaluation = Evaluation(zero, zero, spread=np.ones((len(y), 2, y.shape[1])))
    return TrainingRows(EvaluatedRows(y, evaluation), y, model, "cpu", 0)


@pytest.fixture
def y(rng):
    return rng.normal(size=(30, 2))


def test_those_of_rows_held_out_tell(y):
    aside = np.arange(3, 3 + FEWEST)
    errors = training(y, aside).out_of_fold_errors(joint=False)
    np.testing.assert_array_equal(errors[aside], y[aside])
    assert np.isnan(np.delete(errors, aside, axis=0)).all()


@pytest.mark.parametrize("held_out_rows", [None, np.arange(FEWEST - 1)])
def test_all_tell_where_few_or_none_are_held_out(y, held_out_rows):
    np.testing.assert_array_equal(training(y, held_out_rows).out_of_fold_errors(joint=False), y)


def test_each_target_counts_the_rows_that_have_it(y):
    aside = np.arange(FEWEST)
    y[0, 1] = np.nan
    errors = training(y, aside).out_of_fold_errors(joint=False)
    assert np.isnan(errors[FEWEST:, 0]).all()
    np.testing.assert_array_equal(errors[:, 1], y[:, 1])
    # A joint score needs rows with all targets, and one of those held out has not.
    np.testing.assert_array_equal(training(y, aside).out_of_fold_errors(joint=True), y)


@pytest.fixture
def molecules():
    pytest.importorskip("chemprop")
    smiles = ["C" * n + end for n in range(1, 16) for end in ("", "O", "N", "Cl")]
    return smiles, np.array([len(s) for s in smiles], dtype=float)


def network():
    return lvd.ChempropEstimator(hidden_size=8, n_epochs=2, warmup_epochs=1, device="cpu", random_state=0)


def test_networks_of_molecules_tell_which_rows_none_of_them_learned_from(molecules, monkeypatch):
    smiles, target = molecules
    jobs, train = [], lvd.ChempropEstimator.train
    monkeypatch.setattr(
        lvd.ChempropEstimator, "train", lambda self, *given: jobs.extend(given[1]) or train(self, *given)
    )
    net = network().fit(smiles, target)
    assert len(jobs) == 5
    for job in jobs:
        np.testing.assert_array_equal(np.union1d(job.train, net.held_out_rows_), np.arange(len(smiles)))
        assert not np.intersect1d(job.train, net.held_out_rows_).size


def test_a_molecule_that_is_learned_from_in_another_row_is_not_held_out(molecules):
    smiles, target = molecules
    assert not network().fit(smiles * 20, np.tile(target, 20)).held_out_rows_.size


@pytest.mark.parametrize("conformity_score", ["scaled", "absolute", "signed", "sided"])
def test_the_kernel_learns_from_rows_held_out_alone(molecules, monkeypatch, conformity_score):
    monkeypatch.setattr(score, "FEWEST_HELD_OUT", 4)
    reg = lvd.LVDRegressor(network(), conformity_score=conformity_score, random_state=0)
    with pytest.warns(lvd.CalibrationWarning) if conformity_score == "signed" else nullcontext():
        reg.fit(*molecules)
    assert len(reg.kernels_[0].train_points_) == len(reg.model_.held_out_rows_) == 4
    assert reg.kernels_[0].average
    assert reg.predict_interval(molecules[0])[1].shape == (60, 2, 1)
