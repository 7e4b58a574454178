"""How large errors usually are on either side of the prediction, told by training rows like the query."""

from __future__ import annotations

import torch
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd.conformal.scores import error_unit
from lvd.kernels import tiles


def side_scales(
    queries: Float[Tensor, "n k"], points: Float[Tensor, "m k"], errors: Float[Tensor, "m"]
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    """Roots of the kernel regressions of the squares of ``max(-error, 0)`` and ``max(error, 0)``.

    Weight 1 stands on the squares' means. Squares, because errors that average to zero have equal plain means on
    both sides however skewed they are. Whatever the scales are, a score made with them is valid: they come from
    training rows alone.
    """
    sides = torch.stack([(-errors).clamp(min=0.0), errors.clamp(min=0.0)], 1).square()
    values = torch.cat([sides, torch.ones_like(sides[:, :1])], 1)
    sums = tiles.weighted_sums(queries, tiles.prepare_points(points), values)
    local = (sums[:, :2] + sides.mean(0)) / (sums[:, 2:] + 1.0)
    below, above = error_unit(local.sqrt().cpu().numpy()).T
    return below, above
