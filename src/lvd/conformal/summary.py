"""What the weights of a row say together: its radius, how many rows they are worth, and the mean of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_same_length, check_vector
from lvd.conformal import engine
from lvd.conformal.calibration import Calibration, Part
from lvd.conformal.engine import SortedCalibration
from lvd.conformal.rows import Places, Rows
from lvd.kernels import tiles


@dataclass(frozen=True)
class LocalSummary:
    """What :meth:`LocalConformal.summary`, which has an example, says of n rows.

    Parameters
    ----------
    radius : the radii, (n,) for one level, (n, L) for a list of them; +inf where too little is known.
    n_effective : how many equally weighted calibration rows the weights ``w_i`` are worth,
        ``(sum w_i)^2 / sum w_i^2``, (n,); 0 where all of them vanish.
    exact : where the radii are certified to be those of exact weights, (n,). Elsewhere a radius may be that of a
        level higher by 1e-5, never of a lower one. All are exact up to 65,536 calibration rows, on a GPU to 16,384.
    mean : ``sum w_i v_i / sum w_i`` of the values v, (n,); NaN where all weights vanish, for there is none. None
        where no values were given.
    """

    radius: Any
    n_effective: Any
    exact: Any
    mean: Any = None


def summarize(
    calibration: Calibration, rows: Rows, levels: Float[NDArray, "l"], values: ArrayLike | None
) -> Float[Tensor, "n c"]:
    """For each row its radii, the local mean of the `values`, its effective sample size, and 1 if exact, else 0.

    Without values the mean is NaN, as it is in a group without calibration rows.
    """
    given = torch.full_like(calibration.scores, torch.nan)
    if values is not None:
        given = given.new_tensor(check_vector(values, "values"))
        check_same_length(calibration=calibration.scores, values=given)
    centre = given.mean()
    # Float32 keeps more digits of centred values.
    centred = given - centre

    def ask(part: Part, places: Places) -> Tensor:
        points, own = rows.at(places)
        known, some = part.sorted, centred[part.sorted.order]
        if engine.is_fused(points, known):
            answer = engine.fused_answer(points, known, levels, own, values=some)
            radius, exact, size, mean = answer.radius, answer.exact, answer.n_effective, answer.mean
        else:
            radius, exact = engine.certified_radius(points, known, levels, own)
            size = effective_sample_size(points, known)
            mean = torch.full_like(size, torch.nan) if values is None else local_mean(points, known, some)
        return torch.cat([radius, torch.stack([mean + centre, size, exact], 1)], 1)

    unseen = rows.points.new_tensor([torch.inf] * len(levels) + [torch.nan, 0.0, 1.0])
    return calibration.answer(rows, unseen.repeat(len(rows.points), 1), ask)


def effective_sample_size(
    queries: Float[Tensor, "n k"], calibration: SortedCalibration
) -> Float[Tensor, "n"]:
    """Kish's ``(sum w)^2 / sum w^2`` of each query's weights, its own not counted; 0 where all of them vanish."""
    if engine.is_fused(queries, calibration):
        nothing = torch.zeros_like(calibration.scores)
        return engine.fused_answer(queries, calibration, np.empty(0), values=nothing).n_effective
    return tiles.effective_sample_size(queries, calibration.points, calibration.weights, calibration.floor)


def local_mean(
    queries: Float[Tensor, "n k"], calibration: SortedCalibration, values: Float[Tensor, "m"]
) -> Float[Tensor, "n"]:
    """``sum w_i v_i / sum w_i`` of each query's weights, its own not counted; NaN where all of them vanish."""
    columns = torch.stack([values, torch.ones_like(values)], 1)
    sums = tiles.weighted_sums(queries, calibration.prepared, columns)
    sums += calibration.floor * (calibration.weights @ columns)
    return sums[:, 0] / sums[:, 1]
