"""LVD as one of chemprop's uncertainty methods: ``lvd-chemprop predict --uncertainty-method lvd --cal-path FILE``.

chemprop has no entry points: its command knows the methods that are in its registry when it starts. Importing
this module adds LVD to the registry, and ``lvd-chemprop`` (or ``python -m lvd.cli.chemprop_plugin``) then runs
chemprop's own command, with all of its subcommands and options.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from chemprop.cli import main as command
from chemprop.cli.common import find_models
from chemprop.cli.predict import (
    BoundedMixin,
    PredictSubcommand,
    check_featurizer_matches_model,
    load_output_columns,
    prepare_data_loader,
)
from chemprop.conf import LIGHTNING_26_COMPAT_ARGS
from chemprop.data import MoleculeDataset
from chemprop.models import MPNN
from chemprop.uncertainty import UncertaintyEstimator, UncertaintyEstimatorRegistry
from lightning import pytorch as pl
from torch import Tensor

from lvd._files import atomic_path
from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.methods.evidence import Prediction
from lvd.methods.lvd import LVDRegressor
from lvd.molecules.adapter import PREDICTORS
from lvd.molecules.domain import KnownMolecules, MoleculeParts
from lvd.molecules.forward import last_hidden, predictions
from lvd.support.rule import PartKinds

NAME = "lvd"
LEARNING_SHARE = 0.5
"""Half of the calibration file's rows train the kernel and the error model; the other half calibrate."""


class Evaluating(pl.LightningModule):
    """A network that returns the predictions and embeddings of a batch, for chemprop's trainer to run."""

    def __init__(self, model: MPNN) -> None:
        super().__init__()
        self.model = model

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> tuple[Tensor, Tensor]:
        """Predictions and embeddings of one batch."""
        bmg, V_d, X_d, *_ = batch
        fingerprint = self.model.fingerprint(bmg, V_d, X_d)
        return predictions(self.model, fingerprint), last_hidden(self.model, fingerprint)


@dataclass(frozen=True, eq=False)
class MoleculeRows:
    """The networks' outputs for some rows: the predictions of each (m, n, t), and all embeddings, concatenated."""

    y_preds: Float[Tensor, "m n t"]
    embeddings: Float[NDArray, "n h"]
    smiles: list[str]

    @property
    def matrix(self) -> Float[NDArray, "n k"]:
        """Mean predictions, then embeddings."""
        return np.concatenate([self.y_preds.mean(0).double().numpy(), self.embeddings], axis=1)


def run_networks(dataloader: Any, models: list[MPNN], trainer: pl.Trainer) -> MoleculeRows:
    """One pass of every network."""
    y_preds, embeddings = [], []
    for model in models:
        batches: Any = trainer.predict(Evaluating(model.eval()), dataloader, **LIGHTNING_26_COMPAT_ARGS)
        y_preds.append(torch.cat([y_pred for y_pred, _ in batches]))
        embeddings.append(torch.cat([embedding for _, embedding in batches]))
    beside = torch.cat(embeddings, dim=1).double().cpu().numpy()
    return MoleculeRows(torch.stack(y_preds).cpu(), beside, dataloader.dataset.smiles)


def check_supported(dataloader: Any, models: list[MPNN]) -> None:
    """Refuse anything but regression on one molecule per row."""
    fitting = all(type(one) is MPNN and type(one.predictor) in PREDICTORS.values() for one in models)
    if not isinstance(dataloader.dataset, MoleculeDataset) or not fitting:
        raise InputError(
            "--uncertainty-method lvd takes networks for regression on one molecule per row; classes, reactions, "
            "several molecules per row and properties of atoms and bonds are not supported"
        )


@UncertaintyEstimatorRegistry.register(NAME)
class LVDEstimator(UncertaintyEstimator):
    """Half the width of an LVD interval at the level ``1 - --conformal-alpha``; infinite where nothing is known.

    It is calibrated on the file ``--cal-path``, whose molecules the networks must not have been trained on.
    """

    arguments: ClassVar[Namespace | None] = None
    """The arguments of the running command."""
    added: ClassVar[dict[str, NDArray]] = {}
    """The columns to add to its output."""

    def __call__(
        self, dataloader: Any, models: list[MPNN], trainer: pl.Trainer
    ) -> tuple[Float[Tensor, "m n t"], Float[Tensor, "m n t"]]:
        """Each network's predictions, and their common uncertainty, repeated for each, as chemprop expects."""
        if self.arguments is None:
            raise InputError(
                "the uncertainty method lvd works in the command lvd-chemprop, which calibrates it"
            )
        check_supported(dataloader, models)
        names = load_output_columns(find_models(self.arguments.model_paths)[0])
        loader = calibration_loader(self.arguments, models[0], names)
        calibration, rows = (run_networks(one, models, trainer) for one in (loader, dataloader))
        y, level = np.asarray(loader.dataset.Y, dtype=np.float64), 1.0 - self.arguments.conformal_alpha
        predicted, known = interval_rows(calibration, y, rows, level)
        LVDEstimator.added = columns_of(predicted, known, rows.smiles, names)
        half = np.diff(predicted.intervals[:, :, 0], axis=1)[:, 0] / 2.0
        return rows.y_preds, torch.as_tensor(half).repeat(len(models), 1, 1)


def calibration_loader(args: Namespace, model: MPNN, names: list[str] | None) -> Any:
    """The rows of ``--cal-path`` as chemprop reads them."""
    layout = {
        "no_header_row": False,
        "smiles_cols": args.smiles_columns,
        "rxn_cols": args.reaction_columns,
        "ignore_cols": None,
        "splits_col": None,
        "weight_col": None,
        "bounded": isinstance(model.criterion, BoundedMixin),
        "target_cols": names,
    }
    return check_featurizer_matches_model(prepare_data_loader(args, False, False, True, layout), model)


def interval_rows(
    calibration: MoleculeRows, y: Float[NDArray, "m t"], rows: MoleculeRows, level: float
) -> tuple[Prediction, list[str]]:
    """Intervals (n, 2, 1, t) with their evidence, and the SMILES of the calibration molecules."""
    n_targets = y.shape[1]
    usable = np.flatnonzero(~np.isnan(y).all(axis=1))
    learning, calibrating = np.split(
        np.random.default_rng(0).permutation(usable), [round(LEARNING_SHARE * len(usable))]
    )
    if min(len(learning), len(calibrating)) < 2:
        raise InputError(f"--cal-path holds {len(usable)} rows with a known target; give a few hundred")
    given, functions = calibration.matrix, (lambda X: X[:, :n_targets], lambda X: X[:, n_targets:])
    regressor = LVDRegressor(
        functions, prefit=True, calib_size=None, confidence_level=level, device="cpu", random_state=0
    )
    regressor.fit(given[learning], y[learning]).conformalize(given[calibrating], y[calibrating])
    parts = PartKinds.of(MoleculeParts([calibration.smiles[row] for row in learning]))
    assert parts is not None
    known = parts.check(MoleculeParts(rows.smiles)).known
    found = regressor.predict_with_evidence(rows.matrix, unknown=~known)
    return found, [calibration.smiles[row] for row in calibrating]


def columns_of(
    predicted: Prediction, known: list[str], smiles: list[str], names: list[str] | None
) -> dict[str, NDArray]:
    """The columns to add to chemprop's output: several for each target, and three for the molecule."""
    columns: dict[str, NDArray] = {}
    for target in range(predicted.y_pred.shape[1]):
        name = f"pred_{target}" if names is None else names[target]
        columns[f"{name}_lower"], columns[f"{name}_upper"] = predicted.intervals[:, :, 0, target].T
        columns[f"{name}_support"] = predicted.n_effective[:, target]
    places, similarities = KnownMolecules(known).nearest(smiles)
    nearest = np.array(known, dtype=object)[places]
    return columns | {"known": predicted.known, "nearest": nearest, "tanimoto": similarities}


class LVDPredictSubcommand(PredictSubcommand):
    """chemprop's ``predict``, with additional columns if the uncertainty method is lvd."""

    @classmethod
    def func(cls, args: Namespace) -> None:
        """Run it, then add lvd's columns to the file that it wrote."""
        if args.uncertainty_method != NAME:
            super().func(args)
            return
        if args.output is not None and args.output.suffix != ".csv":
            raise InputError(f"--output must end in .csv with --uncertainty-method lvd, got {args.output}")
        if args.cal_path is None:
            raise InputError(
                "--uncertainty-method lvd needs --cal-path FILE: molecules with known targets that the network was "
                "not trained on"
            )
        if args.no_header_row:
            raise InputError(
                "--uncertainty-method lvd needs files with a header row, as chemprop finds the targets of "
                "--cal-path by their names; leave --no-header-row out"
            )
        LVDEstimator.arguments = args
        super().func(args)
        table = pd.read_csv(args.output, index_col=False)
        with atomic_path(args.output) as part:
            table.assign(**LVDEstimator.added).to_csv(part, index=False)


def main() -> None:
    """Run chemprop's command with lvd registered."""
    command.SUBCOMMANDS[:] = [
        LVDPredictSubcommand if one is PredictSubcommand else one for one in command.SUBCOMMANDS
    ]
    try:
        command.main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
