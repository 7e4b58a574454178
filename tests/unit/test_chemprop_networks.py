"""chemprop's networks in lvd's format: whatever their settings hold, the same predictions after saving."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from torch import nn

import lvd

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

from chemprop import models
from chemprop import nn as chemprop_nn
from chemprop.data import BatchMolGraph
from chemprop.nn.transforms import GraphTransform, ScaleTransform
from rdkit import Chem

from lvd.molecules import adapter
from lvd.molecules.adapter import build_activation, describe_activation

SMILES = ["CCO", "c1ccccc1C(=O)N", "C[C@H](N)C(=O)O", "CC(C)Cl", "C", "FC(F)(F)c1ccncc1", "O=S(=O)(C)C"]
WIDE = 12


def network(
    *, messages="BondMessagePassing", agg=None, predictor="RegressionFFN", activation="relu", **passing
):
    """A network as chemprop's command builds it, with random weights and scales."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transform = chemprop_nn.UnscaleTransform([10.0, -3.0], [3.0, 0.2])
        ends = {"output_transform": transform, "activation": activation, "n_layers": 2, "dropout": 0.1}
        module = models.MPNN(
            getattr(chemprop_nn, messages)(d_h=WIDE, activation=activation, dropout=0.1, d_vd=0, **passing),
            agg or chemprop_nn.NormAggregation(norm=7.0),
            getattr(chemprop_nn.predictors, predictor)(n_tasks=2, input_dim=WIDE, hidden_dim=[8], **ends),
            batch_norm=True,
        )
        for buffer in (module.bn.running_mean, module.bn.running_var):
            buffer.copy_(torch.rand(WIDE) + 0.5)
    return module.eval()


def scaled_graphs():
    """Atom features in units of their own, as chemprop's command scales those that a user adds."""
    rng = np.random.default_rng(0)
    return GraphTransform(ScaleTransform(rng.normal(size=72), rng.uniform(1, 2, size=72)), nn.Identity())


def own_predictions(module):
    featurizer = adapter.graph_featurizer("v2")
    with torch.no_grad():
        outputs = module(BatchMolGraph([featurizer(Chem.MolFromSmiles(one)) for one in SMILES]))
    return (outputs[..., 0] if outputs.dim() == 3 else outputs).numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {"activation": nn.PReLU()},
        {"activation": nn.LeakyReLU(0.2), "bias": True, "depth": 4},
        {"activation": nn.GELU(approximate="tanh"), "undirected": True},
        {"activation": nn.Hardtanh(-2.0, 0.5), "messages": "AtomMessagePassing"},
        {"activation": "elu", "agg": chemprop_nn.AttentiveAggregation(output_size=WIDE)},
        {"graph_transform": GraphTransform(nn.Identity(), nn.Identity())},
        {"graph_transform": scaled_graphs()},
        {"predictor": "EvidentialFFN", "agg": chemprop_nn.SumAggregation()},
        {"predictor": "QuantileFFN", "agg": chemprop_nn.MeanAggregation()},
    ],
    ids=["prelu", "leaky", "gelu", "atoms", "named", "no transform", "transform", "evidential", "quantiles"],
)
def test_whatever_its_settings_hold_a_network_is_saved_and_predicts_the_same(settings, tmp_path):
    module = network(**settings)
    own = own_predictions(module)
    models.save_model(tmp_path / "best.pt", module, ["a", "b"])
    (tmp_path / "config.toml").write_text("add-h = false\n")
    trained = lvd.read_trusted_checkpoint(tmp_path / "best.pt")
    assert trained.target_names == ("a", "b")
    np.testing.assert_allclose(trained.evaluate(SMILES).y_pred, own, rtol=0, atol=1e-5)
    again = adapter.build(adapter.describe(module), adapter.weights(module))
    np.testing.assert_allclose(own_predictions(again), own, rtol=0, atol=1e-6)


def test_a_saved_model_of_it_predicts_the_same(tmp_path):
    trained = lvd.molecules.TrainedMPNN(network(activation=nn.PReLU()), target_names=("a", "b"))
    method = lvd.SplitConformalRegressor(trained, prefit=True, random_state=0)
    y = np.arange(14.0).reshape(7, 2)
    with pytest.warns(lvd.CalibrationWarning, match="infinite"):
        method.fit(SMILES[:4], y[:4]).conformalize(SMILES[4:], y[4:])
    method.save(tmp_path / "model")
    loaded = lvd.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(SMILES), method.predict(SMILES))
    assert loaded.estimator.target_names == ("a", "b")


def test_activations_come_back_as_they_were():
    for activation in (nn.ELU(0.5), nn.Softplus(2.0, 10.0), nn.Threshold(0.1, 2.0), nn.CELU(0.3), nn.Mish()):
        assert repr(build_activation(describe_activation(activation))) == repr(activation)
    with pytest.raises(lvd.InputError, match="torch has no activation 'Swoosh'"):
        build_activation({"class": "Swoosh", "settings": {}})


class Swoosh(nn.Module):
    def forward(self, x):
        return x


def test_what_cannot_be_saved_or_used_says_so(tmp_path):
    with pytest.raises(lvd.InputError, match="with the activation Swoosh cannot be saved; only torch's own"):
        adapter.describe(network(activation=Swoosh()))
    several = chemprop_nn.MulticomponentMessagePassing([chemprop_nn.BondMessagePassing()] * 2, 2)
    wide = models.MPNN(
        several, chemprop_nn.MeanAggregation(), chemprop_nn.RegressionFFN(input_dim=several.output_dim)
    )
    with pytest.raises(lvd.InputError, match="lvd takes networks of one molecule per row"):
        adapter.check_usable(wide)
    extra = models.MPNN(
        chemprop_nn.BondMessagePassing(d_h=WIDE),
        chemprop_nn.MeanAggregation(),
        chemprop_nn.RegressionFFN(input_dim=WIDE + 3),
    )
    models.save_model(tmp_path / "extra.pt", extra)
    with pytest.raises(lvd.InputError, match="takes extra descriptors besides the molecule"):
        lvd.read_trusted_checkpoint(tmp_path / "extra.pt")


def test_settings_that_change_the_graphs_are_refused(tmp_path):
    folder = tmp_path / "run" / "model_0"
    folder.mkdir(parents=True)
    models.save_model(folder / "best.pt", network())
    (tmp_path / "run" / "config.toml").write_text("add-h = false\nignore-stereo = true\n")
    with pytest.raises(lvd.InputError, match=r"was trained with ignore-stereo .* train it without"):
        lvd.read_trusted_checkpoint(folder / "best.pt")
