"""Training of graph networks: what is drawn beforehand, the steps, several at once, missing targets, files."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

import lvd
from lvd.molecules.epochs import batch_capacity, batch_orders, inner_split, learning_rates

if importlib.util.find_spec("chemprop") is None:
    pytest.skip("needs chemprop", allow_module_level=True)

from chemprop.nn.metrics import MSE

from lvd.models.losses import ElementLoss, NormalLoss, PinballLoss, QuantilesLoss, SquaredLoss, target_means
from lvd.molecules import (
    NetworkJob,
    Recipe,
    read_molecules,
    train_networks,
)
from lvd.molecules.run import TrainingRun

SMILES = [
    "C" * n + middle + "C" * k for n in range(1, 8) for middle in ("", "O", "N", "C(C)") for k in (1, 2, 3)
]
SMALL = Recipe(hidden_size=12, n_epochs=4, batch_size=16, warmup_epochs=1, peak_rate=1e-2)


@pytest.fixture(scope="module")
def molecules():
    return read_molecules(SMILES)


@pytest.fixture(scope="module")
def targets():
    return np.array([[len(s), s.count("O") - s.count("N")] for s in SMILES], dtype=float)


def job(targets, **changes):
    train, valid, _ = inner_split(len(targets))
    return NetworkJob(**({"targets": targets, "train": train, "valid": valid} | changes))


def trained(molecules, *jobs, recipe=SMALL):
    return train_networks(molecules, jobs, recipe, device="cpu")


def state(network):
    return list(network.module.state_dict().values())


def test_the_inner_split_is_chemprops():
    train, valid, rest = inner_split(25, seed=3)
    order = np.random.RandomState(3).permutation(25)
    np.testing.assert_array_equal(np.concatenate([train, valid, rest]), order)
    assert (len(train), len(valid), len(rest)) == (20, 2, 3)


def test_every_epoch_sees_every_row_once():
    orders = batch_orders(np.arange(10, 17), 3, 3, seed=0, filler=99)
    assert orders.shape == (9, 3)
    for epoch in orders.reshape(3, -1):
        assert sorted(epoch) == [*range(10, 17), 99, 99]
    assert (orders[:3] != orders[3:6]).any()
    assert batch_capacity(np.array([[1, 0], [2, 2], [9, 16]]), np.array([[0, 1], [1, 1]])) == (5, 5)


def test_learning_rates_rise_and_fall():
    rates = learning_rates(10, 4, initial=1e-4, peak=1e-3, final=1e-4)
    np.testing.assert_allclose(rates[:4], 1e-4 + 9e-4 * np.arange(1, 5) / 4)
    np.testing.assert_allclose(rates[4:], 1e-3 * 0.1 ** (np.arange(1, 7) / 6))
    assert learning_rates(3, 0, initial=1.0, peak=1.0, final=1.0).tolist() == [1.0, 1.0, 1.0]


def test_one_step_is_adam_on_chemprops_loss(molecules, targets):
    """A whole epoch of one batch, done again with chemprop's own forward pass and loss."""
    from chemprop.data import BatchMolGraph
    from rdkit import Chem

    from lvd.molecules import adapter

    recipe = Recipe(hidden_size=12, n_epochs=1, batch_size=1000, warmup_epochs=0, peak_rate=1e-3)
    train = np.arange(40)
    (network,) = trained(molecules, job(targets, train=train, seed=5), recipe=recipe)
    module = adapter.new_mpnn(
        n_outputs=2, widths=(133, 14), hidden_size=12, depth=3, generator=torch.Generator().manual_seed(5)
    )
    featurizer = adapter.graph_featurizer("v1")
    batch = BatchMolGraph([featurizer(Chem.MolFromSmiles(SMILES[row])) for row in train])
    scaled = (targets[train] - targets[train].mean(0)) / targets[train].std(0)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)
    MSE()(module(batch), torch.tensor(scaled, dtype=torch.float32)).backward()
    optimizer.step()
    for ours, theirs in zip(network.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


def test_initial_weights_are_xavier_and_leave_the_process_alone():
    from lvd.molecules import adapter

    before = torch.random.get_rng_state()
    module = adapter.new_mpnn(
        n_outputs=2, widths=(133, 14), hidden_size=300, depth=3, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert module.message_passing.W_h.weight.std().item() == pytest.approx((2 / 600) ** 0.5, rel=0.02)
    assert module.message_passing.W_o.bias.abs().max().item() == 0.0


def test_networks_trained_together_are_those_trained_alone(molecules, targets):
    jobs = [
        job(targets),
        job(targets, train=np.arange(30), seed=1),
        job(np.concatenate([targets, targets], axis=1), loss=PinballLoss(0.8)),
        job(targets, loss=NormalLoss(), scale_target=False),
        job(targets, loss=QuantilesLoss()),
    ]
    for together, alone in zip(trained(molecules, *jobs), jobs, strict=True):
        (single,) = trained(molecules, alone)
        assert together.validation == single.validation
        assert all(map(torch.equal, state(together), state(single)))


def test_it_learns_and_keeps_its_best_epoch(molecules, targets):
    recipe = Recipe(hidden_size=24, n_epochs=25, batch_size=16, warmup_epochs=2, peak_rate=1e-2)
    spoken = []
    (network,) = train_networks(
        molecules,
        [job(targets)],
        recipe,
        device="cpu",
        on_epoch=lambda epoch, values: spoken.append((epoch, values)),
    )
    assert spoken == [(epoch, [value]) for epoch, value in enumerate(network.validation)]
    _, valid, _ = inner_split(len(SMILES))
    errors = network.evaluate(molecules[valid]).y_pred - targets[valid]
    rmse = np.sqrt((errors**2).mean(0))
    assert rmse.mean() == pytest.approx(min(network.validation), rel=1e-4)
    assert (rmse < 0.5 * targets.std(0)).all()


def test_an_epoch_that_is_no_number_is_never_the_best(molecules, targets):
    run = TrainingRun(molecules, job(targets), SMALL, torch.device("cpu"))
    for value in (float("nan"), 2.0, float("nan"), 3.0):
        torch.nn.init.constant_(next(run.module.parameters()), value)
        run.finish_validation(torch.tensor(value))
    assert (next(run.finish().module.parameters()) == 2.0).all()


def test_missing_targets_do_not_count(molecules, targets):
    hidden = targets.copy()
    hidden[::3, 1] = np.nan
    (network,) = trained(molecules, job(hidden))
    wild = np.where(np.isnan(hidden), 1e6, hidden)
    train, _, _ = inner_split(len(SMILES))
    assert network.y_mean[1] == pytest.approx(np.nanmean(hidden[train, 1]))
    assert np.isfinite(network.evaluate(molecules).y_pred).all()
    assert network.validation != trained(molecules, job(wild))[0].validation


@pytest.mark.parametrize(
    "loss", [SquaredLoss(), PinballLoss(0.8), NormalLoss()], ids=lambda loss: type(loss).__name__
)
def test_outputs_in_the_units_of_the_targets(molecules, targets, loss):
    """Targets of another unit: the same training, and the outputs follow the unit."""
    assert isinstance(loss, ElementLoss)
    y = np.concatenate([targets, targets], axis=1) if isinstance(loss, PinballLoss) else targets
    (plain,) = trained(molecules, job(y, loss=loss))
    (other,) = trained(molecules, job(16.0 * y + 512.0, loss=loss))
    expected = 16.0 * plain.evaluate(molecules).y_pred + 512.0
    if isinstance(loss, NormalLoss):
        expected[:, 2:] = 256.0 * plain.evaluate(molecules).y_pred[:, 2:]
    np.testing.assert_allclose(other.evaluate(molecules).y_pred, expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_epochs": 0}, "n_epochs must be a positive integer, got 0"),
        ({"peak_rate": -1.0}, "peak_rate must be a positive number"),
        ({"warmup_epochs": 4}, "warmup_epochs must be at least 0 and below n_epochs=4, got 4"),
    ],
    ids=["epochs", "rate", "warm-up"],
)
def test_recipes_that_cannot_work(molecules, targets, changes, message):
    with pytest.raises(lvd.InputError, match=message):
        trained(molecules, job(targets), recipe=Recipe(**({"n_epochs": 4} | changes)))


def test_jobs_that_cannot_work(molecules, targets):
    with pytest.raises(lvd.InputError, match="targets must have a row for each of 84 molecules, got 5"):
        trained(molecules, job(targets[:5]))
    with pytest.raises(lvd.InputError, match="valid must name at least one molecule"):
        trained(molecules, job(targets, valid=np.arange(0)))
    with pytest.raises(lvd.InputError, match="target 1 is known for none of"):
        trained(molecules, job(np.column_stack([targets[:, 0], np.full(len(targets), np.nan)])))
    with pytest.raises(lvd.InputError, match=r"training diverged: .* lower peak_rate"):
        trained(molecules, job(1e30 * targets, scale_target=False))


def test_a_constant_target_is_known_and_disturbs_no_other(molecules, targets):
    beside = np.stack([targets[:, 0], np.full(len(targets), 3.0)], axis=1)
    beside[::7, 1] += 1e-15  # but for rounding
    for loss in (SquaredLoss(), QuantilesLoss()):
        run = TrainingRun(molecules, job(beside, loss=loss), SMALL, torch.device("cpu"))
        assert run.known.any(0).tolist() == [True, False]
        (network,) = trained(molecules, job(beside, loss=loss))
        np.testing.assert_allclose(network.evaluate(molecules).y_pred[:, 1::2], 3.0, rtol=1e-15)
        assert np.isfinite(network.validation).all()


def test_usual_losses_are_those_of_the_last_steps(molecules, targets):
    run = TrainingRun(molecules, job(targets, loss=QuantilesLoss()), SMALL, torch.device("cpu"))
    known, elements = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 9.0], [4.0, 9.0]])
    first = run._usual_losses(target_means(elements, known), known.amax(0))
    assert first[0].item() == pytest.approx(3.0)
    second = run._usual_losses(torch.full((2,), 5.0), torch.ones(2))
    assert second.tolist() == pytest.approx([(0.98 * 3.0 + 5.0) / 1.98, 5.0])
