"""Clusters of calibration rows, and what they say about weights without looking at the rows.

In scaled coordinates a row at distance d weighs ``w exp(-d^2)``. A cluster of rows lies in a ball, and in the
product of a box, whose axes are those along which it extends the most, and a ball across them: how near a query
comes to these bounds what the cluster can weigh. As the exponential is convex, a mean of exponentials is at least
the exponential of the mean exponent, which bounds it from below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lvd._typing import Float, Int
from lvd.kernels.tiles import BLOCK, LEAST_EXPONENTS, exp_without_underflow

SMALLEST_PART = 64
"""A cut leaves at least a 64th of the rows on either side: to cut off one far row after the other takes forever."""
TWO, NEARLY_BEST = 0.9, 0.97
"""Rows fall into two where a cut explains so much of their variance along a line (0.75 of a uniform one's); and so
little worse than the best cut is one that leaves full clusters, in rows that are all of one kind."""
ROUNDING, CANCELLATION = 1.0 + 1e-6, 1e-12
"""Bounds are widened by this factor, and by this part of squared norms from which others were subtracted, so that
they hold in spite of rounding."""
MOST_NORM, MOST_SQUARED = 1e100, 1e15
"""Points further away are not clustered, for their squares overflow; in float32 those of points far less far do."""
N_AXES = 3
"""Axes of a cluster along which its extent is known; the others share one number."""


@dataclass(frozen=True)
class Clusters:
    """A partition of m rows.

    `rows` are the row numbers of each cluster, ascending; the number m, which is no row, fills up to whole blocks.
    `single` and `double` hold ``[2v, 1, log w - |v|^2]`` of each row, v counted from the cluster's centre and w the
    row's own weight, for the product with ``[u, -|u|^2, 1]`` that is ``log w - |u - v|^2``. `masses` are the sums
    of the weights, `centres` the weighted means, `spreads` the weighted mean squared distances from these and
    `radii` the largest distances. `extents` are the largest distances along each of `axes`, orthogonal ones, and in
    the end across them all.
    """

    rows: Int[Tensor, "c w"]
    single: Float[Tensor, "c w a"]
    double: Float[Tensor, "c w a"]
    masses: Float[Tensor, "c"]
    centres: Float[Tensor, "c k"]
    spreads: Float[Tensor, "c"]
    radii: Float[Tensor, "c"]
    axes: Float[Tensor, "c d k"]
    extents: Float[Tensor, "c d+1"]

    def right(self, chosen: Int[Tensor, "s"], dtype: torch.dtype) -> Float[Tensor, "s w a"]:
        """The right factors of the chosen clusters in this precision."""
        return (self.single if dtype == torch.float32 else self.double).index_select(0, chosen)

    def ball_bounds(
        self, centres: Float[Tensor, "g k"], radii: Float[Tensor, "g"]
    ) -> tuple[Float[Tensor, "g c"], Float[Tensor, "g c"]]:
        """The least and the most that each cluster can weigh for any query in each of these balls."""
        distances = torch.cdist(centres, self.centres, compute_mode="donot_use_mm_for_euclid_dist")
        furthest = (distances + radii[:, None]).square_().add_(self.spreads).neg_()
        gaps = distances.sub_(self.radii).sub_(radii[:, None]).clamp_(min=0.0).square_().neg_()
        return _weigh(furthest, gaps, self.masses)

    def point_bounds(
        self, queries: Float[Tensor, "g k"], chosen: Int[Tensor, "s"]
    ) -> tuple[Float[Tensor, "s g"], Float[Tensor, "s g"]]:
        """The least and the most that each of the chosen clusters can weigh for each query."""
        middle = queries.mean(0)
        points, centres, axes = (queries - middle).T, self.centres[chosen] - middle, self.axes[chosen]
        norms, others = points.square().sum(0), centres.square().sum(1, keepdim=True)
        squared = torch.addmm(others, centres, points, alpha=-2.0).add_(norms).clamp_(min=0.0)
        along = (axes.flatten(0, 1) @ points).view(*axes.shape[:2], -1) - axes @ centres[..., None]
        across = (squared - along.square().sum(1)).clamp_(min=0.0).sqrt_()
        outside = torch.cat([along.abs_(), across[:, None]], 1).sub_(self.extents[chosen, :, None])
        gaps = (CANCELLATION * (others + norms.max())) - outside.clamp_(min=0.0).square_().sum(1)
        return _weigh(squared.add_(self.spreads[chosen, None]).neg_(), gaps, self.masses[chosen, None])


def _weigh(
    least: Float[Tensor, "..."], most: Float[Tensor, "..."], masses: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Bounds on weights, in place, from those on exponents."""
    # What would underflow must not count for the least, and must for the most.
    most.clamp_(min=LEAST_EXPONENTS[most.dtype]).exp_().mul_(masses)
    return exp_without_underflow(least).mul_(masses), most


def make_clusters(
    points: Float[Tensor, "m k"], weights: Float[Tensor, "m"], leaves: Int[Tensor, "m"]
) -> Clusters:
    """One cluster of the rows of each leaf; leaves are numbered from 0 on, none of them empty."""
    sizes = leaves.bincount()
    width = -(-int(sizes.max()) // BLOCK) * BLOCK
    rows = torch.full((len(sizes), width), len(points))
    rows[torch.arange(width) < sizes[:, None]] = leaves.argsort(stable=True)
    filled = rows < len(points)
    # What fills up stands where the first row does, without weight.
    places = torch.where(filled, rows, rows[:, :1])
    own = torch.where(filled, weights[places], 0.0)
    masses = own.sum(1)
    shares = own / masses[:, None]
    members = points[places]
    centres = torch.bmm(shares[:, None], members)[:, 0]
    members -= centres[:, None]
    squared = members.square().sum(2)
    spreads, radii = (shares * squared).sum(1), squared.amax(1, keepdim=True).sqrt()
    axes = torch.linalg.eigh(torch.bmm(members.mT, members)).eigenvectors[..., -N_AXES:].mT.contiguous()
    along = torch.bmm(members, axes.mT)
    across = (squared * (1.0 + CANCELLATION) - along.square().sum(2)).amax(1, keepdim=True).sqrt()
    extents = torch.cat([along.abs().amax(1), across], 1)
    exponents = own.log().sub_(squared)[..., None]
    double = torch.cat([members.mul_(2.0), torch.ones_like(exponents), exponents], 2)
    spreads, radii, extents = spreads * ROUNDING, radii[:, 0] * ROUNDING, extents * ROUNDING
    return Clusters(rows, double.float(), double, masses, centres, spreads, radii, axes, extents)


def partition(
    points: Float[Tensor, "m k"], most: int, radius: float, *, regular: bool
) -> Iterator[Int[Tensor, "_"]]:
    """Row numbers in sets of at most `most` neighbours, within `radius` of their mean where they are several.

    With `regular`, sets may be wider than `radius` if they do not fall into two, and most of them are full. A set
    too large is cut across the direction in which it varies most. Deterministic.
    """
    shifted = points - points.mean(0)
    scale = max(1.0, float(shifted.abs().max()) / MOST_SQUARED)
    radius, todo = radius / scale, [(torch.arange(len(points)), (shifted / scale).float())]
    while todo:
        rows, members = todo.pop()
        members -= members.mean(0)
        if len(rows) <= most and (len(rows) == 1 or members.square().sum(1).max() <= radius**2):
            yield rows
            continue
        direction = torch.linalg.eigh((members.T @ members).double()).eigenvectors[:, -1]
        along, order = (members @ direction.float()).double().sort(stable=True)
        between, least = _variance_between(along), max(1, len(rows) // SMALLEST_PART)
        best = int(between[least - 1 : len(rows) - least].argmax()) + least
        if regular and len(rows) <= most and between[best - 1] < TWO * along.square().sum():
            yield rows
            continue
        full = max(1, round(len(rows) / 2 / most)) * most
        alike = bool(along[0] == along[-1])
        if alike:
            best = len(rows) // 2
        if regular and full < len(rows) and (alike or between[full - 1] > NEARLY_BEST * between[best - 1]):
            best = full
        todo += [(rows[part], members.index_select(0, part)) for part in (order[best:], order[:best])]


def _variance_between(along: Float[Tensor, "n"]) -> Float[Tensor, "n-1"]:
    """For every cut of ascending numbers around 0, the part of their squares that lies between the two sides."""
    n = torch.arange(1, len(along), dtype=along.dtype)
    return along.cumsum(0)[:-1].square() * (1.0 / n + 1.0 / (len(along) - n))
