"""Graph networks in the hands of a user: the estimator, trained networks of chemprop's, saving, errors."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from sklearn.base import clone

import lvd

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

from chemprop import models
from chemprop import nn as chemprop_nn
from chemprop.data import BatchMolGraph
from rdkit import Chem

from lvd.models import candidates
from lvd.models.losses import ERROR_SHARE, PinballLoss, SquaredLoss
from lvd.molecules import TrainedMPNN, adapter

SMILES = [
    "C" * n + middle + "C" * k for n in range(1, 8) for middle in ("", "O", "N", "C(C)") for k in (1, 2, 3)
]
Y = np.array([[len(s), s.count("O") - s.count("N")] for s in SMILES], dtype=float)
NEW = ["CCOCCCCCC", "C1CCCCC1", "CC(=O)O"]
SHORT = lvd.MahalanobisKernel(max_iter=20)


def estimator(**changes):
    return lvd.ChempropEstimator(
        **({"n_members": 2, "hidden_size": 12, "n_epochs": 3, "device": "cpu", "random_state": 0} | changes)
    )


def mpnn(n_tasks=1, predictor=chemprop_nn.RegressionFFN, **settings):
    """A network with chemprop 2's own atom features and initial weights, and targets scaled by it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transform = chemprop_nn.UnscaleTransform(np.full(n_tasks, 10.0), np.full(n_tasks, 3.0))
        return models.MPNN(
            chemprop_nn.BondMessagePassing(d_h=20),
            settings.pop("agg", chemprop_nn.MeanAggregation()),
            predictor(n_tasks=n_tasks, input_dim=20, hidden_dim=16, output_transform=transform),
            **settings,
        )


def own_predictions(network, smiles):
    featurizer = adapter.graph_featurizer("v2")
    with torch.no_grad():
        batch = BatchMolGraph([featurizer(Chem.MolFromSmiles(string)) for string in smiles])
        return network.eval()(batch).numpy()


@pytest.fixture(scope="module")
def fitted():
    return estimator().fit(SMILES, Y[:, 0])


class TestEstimator:
    def test_shapes_and_kinds_of_columns(self, fitted):
        pandas = pytest.importorskip("pandas")
        expected = fitted.predict(NEW)
        assert expected.shape == (3,)
        for column in (
            np.array(NEW),
            np.array(NEW, dtype=object),
            pandas.Series(NEW),
            pandas.DataFrame({"s": NEW}),
        ):
            np.testing.assert_array_equal(fitted.predict(column), expected)
        assert fitted.embed(NEW).shape == (3, 12)
        assert (fitted.embed(SMILES) >= 0).all()
        assert (fitted.embed(SMILES) > 0).any()

    def test_two_targets_and_one_unknown(self):
        y = Y.copy()
        y[::2, 1] = np.nan
        assert estimator().fit(SMILES, y).predict(NEW).shape == (3, 2)

    def test_a_target_that_one_row_has_can_be_learned_whatever_the_seed(self):
        y = Y.copy()
        y[1:, 1] = np.nan
        for seed in range(12):
            train, valid = estimator().split(y, seed)
            assert 0 in train
            assert sorted({*train.tolist(), *valid.tolist()}) == list(range(len(y)))

    def test_the_seed_decides(self, fitted):
        again = clone(fitted).fit(SMILES, Y[:, 0])
        np.testing.assert_array_equal(again.predict(NEW), fitted.predict(NEW))
        assert (estimator(random_state=1).fit(SMILES, Y[:, 0]).predict(NEW) != fitted.predict(NEW)).any()

    def test_members_are_averaged_and_the_first_embeds(self, fitted):
        alone = estimator(n_members=1).fit(SMILES, Y[:, 0])
        np.testing.assert_array_equal(alone.embed(NEW), fitted.embed(NEW))
        both = [network.evaluate(fitted.check(NEW)).y_pred for network in fitted.networks_]
        np.testing.assert_array_equal(both[0], alone.networks_[0].evaluate(fitted.check(NEW)).y_pred)
        assert (both[0] != both[1]).any()
        quantiles = np.mean(both, axis=0)
        np.testing.assert_array_equal(fitted.predict(NEW), quantiles[:, 1])
        below, above = fitted.evaluate(NEW).spread[..., 0].T
        np.testing.assert_allclose(below, ERROR_SHARE * (quantiles[:, 1] - quantiles[:, 0]))
        np.testing.assert_allclose(above, ERROR_SHARE * (quantiles[:, 2] - quantiles[:, 1]))

    def test_the_papers_network_tells_no_spread(self):
        network = estimator(n_members=1, loss=SquaredLoss()).fit(SMILES, Y)
        assert network.evaluate(NEW).spread is None
        assert network.predict(NEW).shape == (3, 2)

    def test_small_tables_train_for_more_epochs(self):
        assert estimator(n_epochs=None).recipe(500).n_epochs == 100
        assert estimator(n_epochs=None).recipe(10_000).n_epochs == 30

    def test_graphs_of_another_featurizer_are_made_again(self, fitted):
        graphs = estimator(atom_featurizer="v2").check(NEW)
        np.testing.assert_array_equal(fitted.predict(graphs), fitted.predict(NEW))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"validation_size": 1.5}, r"validation_size must lie in \(0, 1\), got 1.5; it is a share"),
            ({"atom_featurizer": "v9"}, "atom_featurizer must be one of 'v1'"),
            ({"loss": "pinball"}, "loss must be None or a loss of lvd.models.losses, got 'pinball'"),
            ({"depth": 0}, "depth must be a positive integer, got 0"),
            ({"n_members": 0}, "n_members must be a positive integer, got 0"),
            ({"warmup_epochs": 5}, "warmup_epochs must be at least 0 and below n_epochs=3, got 5"),
        ],
        ids=["validation", "featurizer", "loss", "depth", "members", "warm-up"],
    )
    def test_parameters_that_cannot_work(self, changes, message):
        with pytest.raises(lvd.InputError, match=message):
            estimator().set_params(**changes).fit(SMILES, Y)

    def test_rows_that_cannot_work(self, fitted):
        with pytest.raises(lvd.InputError, match=r"RDKit cannot read 1 SMILES, first in rows 2 \(C1\)"):
            fitted.predict(["C", "C1"])
        with pytest.raises(lvd.InputError, match="inconsistent numbers of rows: X has 84, y has 3"):
            estimator().fit(SMILES, Y[:3])
        with pytest.raises(lvd.InputError, match="at least 2 molecules, got 1"):
            estimator().fit(["C"], [1.0])
        with pytest.raises(lvd.InputError, match="infinity"):
            estimator().fit(SMILES, np.full(len(SMILES), np.inf))


class TestMethods:
    @pytest.mark.parametrize(
        "method",
        [
            lvd.LVDRegressor,
            lvd.SplitConformalRegressor,
            lvd.MADSplitRegressor,
            lvd.ConformalizedQuantileRegressor,
            lvd.DeepEnsembleRegressor,
        ],
        ids=lambda method: method.__name__,
    )
    def test_intervals_and_saving(self, method, tmp_path):
        changes = {"n_members": 2} if method is lvd.DeepEnsembleRegressor else {"calib_size": 0.4}
        changes |= {"kernel": SHORT} if method is lvd.LVDRegressor else {}
        regressor = method(estimator(random_state=None), random_state=0, device="cpu", **changes)
        y_pred, intervals = regressor.fit(SMILES, Y).predict_interval(NEW, 0.9)
        assert (y_pred.shape, intervals.shape) == ((3, 2), (3, 2, 1, 2))
        regressor.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_interval(NEW, 0.9)[1], intervals)
        assert not list((tmp_path / "model").glob("*.skops"))

    def test_the_second_network_and_the_quantile_heads(self):
        regressor = lvd.MADSplitRegressor(estimator(), random_state=0).fit(SMILES, Y[:, 0])
        assert isinstance(regressor.score_.error_model_.model, lvd.ChempropEstimator)
        assert not regressor.score_.error_model_.on_embeddings
        quantiles = lvd.ConformalizedQuantileRegressor(estimator(), confidence_level=0.8, random_state=0)
        assert quantiles.fit(SMILES, Y[:, 0]).model_.models[0].networks_[0].loss == PinballLoss(0.8)

    def test_nothing_is_trained_again_where_the_networks_tell_their_errors(self, monkeypatch):
        trained = []
        fit = lvd.ChempropEstimator.fit
        monkeypatch.setattr(
            lvd.ChempropEstimator,
            "fit",
            lambda self, *rows: trained.append(self.n_members) or fit(self, *rows),
        )
        regressor = lvd.LVDRegressor(estimator(), kernel=SHORT, calib_size=0.4, random_state=0)
        regressor.fit(SMILES, Y[:, 0])
        assert trained == [2]
        rows, bound = regressor._bind(regressor._check_inputs(NEW))
        # Too few rows are held out of the networks for a shape: errors are scored in units of the spread.
        for side, measure in enumerate((bound.below, bound.above)):
            least = regressor.score_.residual_.least_
            np.testing.assert_allclose(measure, np.maximum(rows.evaluation.spread[:, side], least))
        learned = lvd.scores.ScaledResidual(scales=("kernel", "boosted"))
        regressor.set_params(conformity_score=learned).fit(SMILES, Y[:, 0])
        assert trained == [2, 2, *[1] * candidates.N_FOLDS]

    def test_errors_and_spreads_of_models_without_the_fold_calibrate(self):
        regressor = lvd.LVDRegressor(
            estimator(), kernel=SHORT, calibration="cross", folds=3, when_unknown="widen", random_state=0
        ).fit(SMILES, Y[:, 0])
        assert regressor.n_calib_ == len(SMILES)
        cases = estimator().same_case(estimator().check(SMILES))
        inside, outside = candidates.folds_of_cases(cases, 3, 0)[0]
        answer = (
            estimator().fit([SMILES[i] for i in inside], Y[inside, 0]).evaluate([SMILES[i] for i in outside])
        )
        np.testing.assert_allclose(
            regressor.residuals_calib_[outside, 0], Y[outside, 0] - answer.y_pred[:, 0]
        )
        spread = np.maximum(answer.spread, regressor.score_.residual_.least_)
        np.testing.assert_allclose(regressor.units_calib_[outside], spread.mean(axis=1))
        assert np.isfinite(regressor.predict_interval(NEW, 0.5)[1]).all()

    def test_the_same_molecule_in_training_and_calibration(self):
        regressor = lvd.SplitConformalRegressor(estimator(), calib_size=None, random_state=0)
        regressor.fit(SMILES[:60], Y[:60, 0])
        assert SMILES[0] == "CC"
        calibration = ["[CH3]C", *("C" * n + "Br" for n in range(1, 25))]
        with pytest.warns(lvd.SharedRowsWarning, match="1 of 25 calibration rows equal a training row"):
            regressor.conformalize(calibration, np.arange(25.0))

    def test_an_ensemble_takes_graph_networks_only(self):
        with pytest.raises(
            lvd.InputError, match="estimator must be None, for perceptrons, or have a method ensemble"
        ):
            lvd.DeepEnsembleRegressor(lvd.NetRegressor()).fit(np.zeros((5, 1)), np.zeros(5))


class TestTrainedNetworks:
    @pytest.mark.parametrize(
        "network",
        [
            mpnn(),
            mpnn(batch_norm=True),
            mpnn(agg=chemprop_nn.NormAggregation()),
            mpnn(agg=chemprop_nn.AttentiveAggregation(output_size=20)),
            mpnn(predictor=chemprop_nn.MveFFN),
        ],
        ids=["mean", "batch norm", "norm", "attentive", "with variance"],
    )
    def test_predictions_are_chemprops_own_and_the_network_is_untouched(self, network):
        network.train()
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        regressor = lvd.LVDRegressor(network, prefit=True, kernel=SHORT, random_state=0)
        regressor.fit(SMILES, Y[:, 0])
        y_pred = regressor.predict(NEW)
        assert network.training
        assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
        own = own_predictions(network, NEW).reshape(3, -1)[:, 0]
        np.testing.assert_allclose(y_pred, own, rtol=0, atol=1e-4)

    def test_a_second_model_learns_on_its_embeddings(self):
        regressor = lvd.MADSplitRegressor(mpnn(), prefit=True, random_state=0)
        assert regressor.fit(SMILES, Y[:, 0]).score_.error_model_.on_embeddings

    @pytest.mark.parametrize("suffix", ["pt", "ckpt"])
    def test_a_checkpoint_is_read_by_an_explicit_call(self, suffix, tmp_path):
        network = mpnn(n_tasks=2)
        models.save_model(tmp_path / "model.pt", network)
        path = tmp_path / f"model.{suffix}"
        if suffix == "ckpt":
            content = torch.load(tmp_path / "model.pt", weights_only=False)
            torch.save(content | {"pytorch-lightning_version": "2.0.0"}, path)
        with pytest.warns(UserWarning, match=r"no config\.toml .* trained with keep-h or add-h"):
            trained = lvd.read_trusted_checkpoint(path)
        np.testing.assert_allclose(trained.evaluate(NEW).y_pred, own_predictions(network, NEW), atol=1e-4)
        regressor = lvd.LVDRegressor(trained, prefit=True, kernel=SHORT, random_state=0)
        half = len(SMILES) // 2
        regressor.fit(SMILES[:half], Y[:half])
        with pytest.warns(
            lvd.methods.SharedRowsWarning, match="3 of 42"
        ):  # some strings are the same molecule
            regressor.conformalize(SMILES[half:], Y[half:])
        regressor.save(tmp_path / "saved")
        loaded = lvd.load(tmp_path / "saved")
        np.testing.assert_array_equal(loaded.predict_interval(NEW)[1], regressor.predict_interval(NEW)[1])
        with pytest.raises(lvd.InputError, match="no saved model at"):
            lvd.load(path)

    def test_a_network_given_as_it_is_must_be_given_again(self, tmp_path):
        network = mpnn()
        regressor = lvd.SplitConformalRegressor(network, prefit=True, random_state=0)
        regressor.fit(SMILES, Y[:, 0]).save(tmp_path / "saved")
        with pytest.raises(lvd.InputError, match="made with MPNN as estimator=, which is not in the folder"):
            lvd.load(tmp_path / "saved")
        loaded = lvd.load(tmp_path / "saved", estimator=mpnn())
        np.testing.assert_array_equal(loaded.predict(NEW), regressor.predict(NEW))

    def test_networks_that_cannot_be_used(self, tmp_path):
        with pytest.raises(
            lvd.InputError, match="must already be trained, with prefit=True; to train one, give a Chemprop"
        ):
            lvd.LVDRegressor(mpnn()).fit(SMILES, Y)
        with pytest.raises(lvd.InputError, match=r"predicts 2 target\(s\), but y has 1 column"):
            lvd.LVDRegressor(mpnn(2), prefit=True).fit(SMILES, Y[:, 0])
        classifier = mpnn()
        classifier.predictor = chemprop_nn.BinaryClassificationFFN(input_dim=20)
        with pytest.raises(
            lvd.InputError, match="ends in a BinaryClassificationFFN; lvd takes networks for regr"
        ):
            lvd.LVDRegressor(classifier, prefit=True).fit(SMILES, Y[:, 0])
        with pytest.raises(
            lvd.InputError, match=r"atom_featurizer='v1' does not give .* the network takes; 'v2' does"
        ):
            TrainedMPNN(mpnn(), atom_featurizer="v1").check(NEW)
        other = mpnn()
        other.message_passing = chemprop_nn.BondMessagePassing(d_v=9, d_h=20)
        with pytest.raises(lvd.InputError, match="takes 9 features per atom and 14 per bond"):
            TrainedMPNN(other).check(NEW)
        (tmp_path / "no.pt").write_bytes(b"nothing")
        with pytest.raises(lvd.InputError, match="cannot be read as a checkpoint of chemprop 2"):
            lvd.read_trusted_checkpoint(tmp_path / "no.pt")
