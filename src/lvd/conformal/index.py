"""Clusters of calibration rows, and what they say about weights without looking at the rows.

In scaled coordinates a row at distance d weighs ``w exp(-d^2)``. For a ball of queries and a cluster of rows, both
known by centre and radius, that bounds what the cluster can weigh; and as the exponential is convex, a mean of
exponentials is at least the exponential of the mean exponent, which bounds it from below.
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
ROUNDING = 1.0 + 1e-6
"""Bounds are widened by this factor, so that they hold in spite of rounding."""


@dataclass(frozen=True)
class Clusters:
    """A partition of m rows into balls.

    `rows` are the row numbers of each cluster, ascending; the number m, which is no row, fills up to whole blocks.
    `single` and `double` hold ``[v, 1, log w - |v|^2]`` of each row, v counted from the cluster's centre and w the
    row's own weight, for the product with ``[2u, -|u|^2, 1]`` that is ``log w - |u - v|^2``. `masses` are the sums
    of the weights, `centres` the weighted means, `spreads` the weighted mean squared distances from these and
    `radii` the largest distances.
    """

    rows: Int[Tensor, "c w"]
    single: Float[Tensor, "c w a"]
    double: Float[Tensor, "c w a"]
    masses: Float[Tensor, "c"]
    centres: Float[Tensor, "c k"]
    spreads: Float[Tensor, "c"]
    radii: Float[Tensor, "c"]

    def right(self, chosen: Int[Tensor, "s"], dtype: torch.dtype) -> Float[Tensor, "s w a"]:
        """The right factors of the chosen clusters in this precision."""
        return (self.single if dtype == torch.float32 else self.double).index_select(0, chosen)

    def bounds(
        self, centres: Float[Tensor, "g k"], radii: Float[Tensor, "g"]
    ) -> tuple[Float[Tensor, "g c"], Float[Tensor, "g c"]]:
        """The least and the most that each cluster can weigh for any query in each of these balls."""
        distances = torch.cdist(centres, self.centres, compute_mode="donot_use_mm_for_euclid_dist")
        furthest = (distances + radii[:, None]).square_().add_(self.spreads).neg_()
        gaps = distances.sub_(self.radii).sub_(radii[:, None]).clamp_(min=0.0).square_().neg_()
        # What would underflow must not count for the least, and must for the most.
        most = gaps.clamp_(min=LEAST_EXPONENTS[gaps.dtype]).exp_().mul_(self.masses)
        return exp_without_underflow(furthest).mul_(self.masses), most


def make_clusters(
    points: Float[Tensor, "m k"], weights: Float[Tensor, "m"], leaves: Int[Tensor, "m"]
) -> Clusters:
    """One cluster of the rows of each leaf; leaves are numbered from 0 on, none of them empty."""
    sizes = leaves.bincount()
    width = -(-int(sizes.max()) // BLOCK) * BLOCK
    rows = torch.full((len(sizes), width), len(points))
    rows[torch.arange(width) < sizes[:, None]] = leaves.argsort(stable=True)
    places = rows.clamp(max=len(points) - 1)
    own = torch.where(rows < len(points), weights[places], 0.0)
    masses = own.sum(1)
    shares = own / masses[:, None]
    members = points[places]
    centres = torch.bmm(shares[:, None], members)[:, 0]
    members -= centres[:, None]
    squared = members.square().sum(2)
    ones = torch.ones_like(squared)
    double = torch.cat([members, ones[..., None], (own.log() - squared)[..., None]], 2)
    furthest = torch.where(own > 0, squared, 0.0).amax(1).sqrt()
    spreads = (shares * squared).sum(1)
    return Clusters(rows, double.float(), double, masses, centres, spreads * ROUNDING, furthest * ROUNDING)


def partition(
    points: Float[Tensor, "m k"], most: int, radius: float, *, regular: bool
) -> Iterator[Int[Tensor, "_"]]:
    """Row numbers in sets of at most `most` neighbours, within `radius` of their mean where they are several.

    With `regular`, sets may be wider than `radius` if they do not fall into two, and most of them are full. A set
    too large is cut across the direction in which it varies most. Deterministic.
    """
    small = (points - points.mean(0)).float()
    todo = [torch.arange(len(points))]
    while todo:
        rows = todo.pop()
        members = small[rows]
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
        todo += [rows[order[best:]], rows[order[:best]]]


def _variance_between(along: Float[Tensor, "n"]) -> Float[Tensor, "n-1"]:
    """For every cut of ascending numbers around 0, the part of their squares that lies between the two sides."""
    n = torch.arange(1, len(along), dtype=along.dtype)
    return along.cumsum(0)[:-1].square() * (1.0 / n + 1.0 / (len(along) - n))
