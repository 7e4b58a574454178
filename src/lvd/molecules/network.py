"""A trained graph network with the scale of its targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices
from lvd._typing import Float, NDArray
from lvd._validation import RowError
from lvd.models.losses import ElementLoss
from lvd.models.model import Evaluation
from lvd.models.torch_modules import evaluating
from lvd.molecules.forward import run
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.packed import Molecules, gather

EVALUATION_ROWS = 2000


def run_all(module: Any, molecules: Molecules) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n h"]]:
    """Outputs and embeddings of all molecules, in single precision on the module's device."""
    device = next(module.parameters()).device
    packed, sizes = molecules.packed.to(device), molecules.packed.sizes()[molecules.rows]
    rows = torch.as_tensor(molecules.rows, device=device)
    route = chemprop_adapter().find_route(module)
    with evaluating(module):
        parts = [
            run(module, gather(packed, rows[chunk], *sizes[chunk].sum(axis=0).tolist()), route)
            for chunk in chunk_slices(len(rows), EVALUATION_ROWS)
        ]
    outputs, embeddings = zip(*parts, strict=True)
    return torch.cat(outputs), torch.cat(embeddings)


def to_evaluation(outputs: Float[Tensor, "n o"], embeddings: Float[Tensor, "n h"]) -> Evaluation:
    """Convert outputs and embeddings to float64 arrays; raise if an output is not finite."""
    y_pred = outputs.double().cpu().numpy()
    if not np.isfinite(y_pred).all():
        row = int(np.argwhere(~np.isfinite(y_pred))[0, 0])
        raise RowError("the network predicts NaN or infinity at row ", (row,), "; check its weights")
    return Evaluation(y_pred, embeddings.double().cpu().numpy())


@dataclass(frozen=True)
class MoleculeNetwork:
    """A trained network; `validation` holds the value that ranked each epoch, and the best epoch was kept."""

    module: Any
    loss: ElementLoss
    y_mean: Float[NDArray, "t"]
    y_scale: Float[NDArray, "t"]
    validation: tuple[float, ...]

    def evaluate(self, molecules: Molecules) -> Evaluation:
        """Outputs in the units of the targets, and embeddings.

        The loss defines the order of outputs: means; lower and upper quantiles; or means and variances.
        """
        outputs, embeddings = run_all(self.module, molecules)
        mean, scale = (
            torch.as_tensor(column, device=outputs.device) for column in (self.y_mean, self.y_scale)
        )
        return to_evaluation(self.loss.unscale(outputs.double(), mean, scale), embeddings)
