"""Intervals, arrays of shape ``(n, 2, L)`` of the lower and upper end of each row at each level; and regions, a box
or an ellipsoid for each row that covers several targets at once; and the checks of those that a user gives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy.special import betaincinv

from lvd._typing import ArrayLike, Bool, Float, Levels, NDArray
from lvd._validation import (
    InputError,
    check_fraction,
    check_levels,
    check_matrix,
    check_same_length,
    check_targets,
    check_vector,
    to_numpy,
)

Bounds: TypeAlias = tuple[Any, Any]
"""The lowest and highest that targets can be: two numbers, or two vectors with one number for each target."""
NO_BOUNDS: Bounds = (-np.inf, np.inf)


def from_radius(
    y_pred: Float[NDArray, "*n"], radius: Float[NDArray, "n *rest"]
) -> Float[NDArray, "n 2 *rest"]:
    """Intervals ``y_pred -+ radius``; an infinite radius gives an infinite interval."""
    centre = y_pred.reshape(y_pred.shape[0], *(1,) * (radius.ndim - y_pred.ndim), *y_pred.shape[1:])
    return np.stack([centre - radius, centre + radius], axis=1)


def widths(intervals: Float[NDArray, "n 2 *rest"]) -> Float[NDArray, "n *rest"]:
    """Upper minus lower end; +inf for an infinite interval."""
    return intervals[:, 1] - intervals[:, 0]


def covered(y: Float[NDArray, "n"], intervals: Float[NDArray, "n 2 *rest"]) -> Bool[NDArray, "n *rest"]:
    """Whether y is in the closed interval."""
    y = y.reshape(-1, *(1,) * (intervals.ndim - 2))
    return (intervals[:, 0] <= y) & (y <= intervals[:, 1])


def binomial_band(
    n_covered: ArrayLike, n: ArrayLike, *, significance: float = 0.05
) -> tuple[Float[NDArray, "*shape"], Float[NDArray, "*shape"]]:
    """The exact (Clopper-Pearson) confidence band of a probability after `n_covered` successes in `n` draws.

    >>> lower, upper = binomial_band(9, 10)
    >>> print(f"{lower:.3f} {upper:.3f}")
    0.555 0.997
    """
    half = check_fraction(significance, "significance") / 2
    hits, draws = np.asarray(n_covered, dtype=np.float64), np.asarray(n, dtype=np.float64)
    misses = draws - hits
    # The Beta quantile needs positive parameters; with no hit (no miss) the band begins at 0 (ends at 1).
    lower = np.where(hits > 0, betaincinv(np.maximum(hits, 1), misses + 1, half), 0.0)
    upper = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1), 1 - half), 1.0)
    return lower, upper


class Region(ABC):
    """The result of :meth:`LVDRegressor.predict_region` for n rows and T targets: for each row one joint region.

    `centers` (n, T) are the predictions, `axes` (n, T, T) the directions of the axes, one in each column, and
    `radii` (n, T) how far the region reaches along them, +inf where too little is known. Indexing selects rows.
    `bounds` are those of ``y_range``; projections and volumes are clipped to them.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(600, 2))
    >>> noise = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.9], [0.9, 1.0]], size=600)
    >>> net = lvd.NetRegressor(n_batches=200, random_state=0)
    >>> reg = lvd.LVDRegressor(net, joint="ellipsoid", random_state=0).fit(X, X + 0.1 * noise)
    >>> region = reg.predict_region(X[:5])
    >>> region.centers.shape, region.axes.shape, region.radii.shape, region.project().shape
    ((5, 2), (5, 2, 2), (5, 2), (5, 2, 2))
    >>> region.contains(X[:5])
    array([ True,  True,  True,  True,  True])
    """

    centers: Float[NDArray, "n t"]
    bounds: Bounds

    @property
    @abstractmethod
    def axes(self) -> Float[NDArray, "n t t"]:
        """Unit vectors along the axes, one in each column."""

    @property
    @abstractmethod
    def radii(self) -> Float[NDArray, "n t"]:
        """How far the region reaches from its centre along each axis."""

    @abstractmethod
    def contains(self, y: ArrayLike) -> Bool[NDArray, "n"]:
        """Whether the targets of each row are in its region, border included."""

    @abstractmethod
    def log_volume(self) -> Float[NDArray, "n"]:
        """The natural logarithm of each region's volume; +inf for an infinite one."""

    @abstractmethod
    def onto(self, targets: Sequence[int]) -> Region:
        """The projection onto the targets with these indices."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Region:
        """The regions of some rows."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.centers)

    def project(self) -> Float[NDArray, "n 2 t"]:
        """The interval of each target: the region's projection on its axis."""
        return np.clip(self._shadows(), *self.bounds)

    def within(self, bounds: Bounds) -> Region:
        """The same regions with other bounds."""
        return replace(self, bounds=bounds)  # type: ignore[type-var]

    @abstractmethod
    def _shadows(self) -> Float[NDArray, "n 2 t"]:
        """The intervals without bounds."""

    def _check(self, y: ArrayLike) -> Float[NDArray, "n t"]:
        targets = check_targets(y)
        if targets.shape != self.centers.shape:
            raise InputError(
                f"y must have the shape of the centres, {self.centers.shape}, a row for each region and a column "
                f"for each target, got {targets.shape}"
            )
        return targets


@dataclass(frozen=True, eq=False)
class Boxes(Region):
    """Boxes ``|y_t - center_t| <= radius_t``: intervals that hold together."""

    centers: Float[NDArray, "n t"]
    half_widths: Float[NDArray, "n t"]
    bounds: Bounds = NO_BOUNDS

    @property
    def axes(self) -> Float[NDArray, "n t t"]:
        """The coordinate axes."""
        n_rows, n_targets = self.centers.shape
        return np.broadcast_to(np.eye(n_targets), (n_rows, n_targets, n_targets))

    @property
    def radii(self) -> Float[NDArray, "n t"]:
        """Half the widths."""
        return self.half_widths

    def contains(self, y: ArrayLike) -> Bool[NDArray, "n"]:
        """Whether every target is in its interval."""
        return in_box(self._check(y), self._shadows())

    def log_volume(self) -> Float[NDArray, "n"]:
        """The logarithm of the product of the widths, within the bounds."""
        return log_box_volume(self.project())

    def onto(self, targets: Sequence[int]) -> Boxes:
        """The boxes of these targets."""
        chosen = list(targets)
        return Boxes(self.centers[:, chosen], self.half_widths[:, chosen], _chosen(self.bounds, chosen))

    def __getitem__(self, rows: Any) -> Boxes:
        return Boxes(self.centers[rows], self.half_widths[rows], self.bounds)

    def _shadows(self) -> Float[NDArray, "n 2 t"]:
        return np.stack([self.centers - self.half_widths, self.centers + self.half_widths], axis=1)


@dataclass(frozen=True, eq=False)
class Ellipsoids(Region):
    """Ellipsoids ``(y - center)' S^-1 (y - center) <= scale^2``, S the matrix in `shapes`."""

    centers: Float[NDArray, "n t"]
    shapes: Float[NDArray, "n t t"]
    scale: Float[NDArray, "n"]
    bounds: Bounds = NO_BOUNDS

    @property
    def axes(self) -> Float[NDArray, "n t t"]:
        """The eigenvectors of S, the shortest axis first."""
        return self._principal[1]

    @property
    def radii(self) -> Float[NDArray, "n t"]:
        """The scale times the roots of the eigenvalues of S."""
        return self.scale[:, None] * np.sqrt(self._principal[0])

    def contains(self, y: ArrayLike) -> Bool[NDArray, "n"]:
        """Whether the Mahalanobis norm of the error is at most the scale."""
        inside: NDArray = mahalanobis_norm(self._check(y) - self.centers, self.shapes) <= self.scale
        return inside

    def log_volume(self) -> Float[NDArray, "n"]:
        """The volume of the ellipsoid, or of the box of its projections within the bounds where that is smaller."""
        n_targets = self.centers.shape[1]
        unit_ball = n_targets / 2.0 * math.log(math.pi) - math.lgamma(n_targets / 2.0 + 1.0)
        with np.errstate(divide="ignore"):
            scaled = n_targets * np.log(self.scale)
        own = unit_ball + scaled + np.linalg.slogdet(self.shapes)[1] / 2.0
        return np.minimum(own, log_box_volume(self.project()))

    def onto(self, targets: Sequence[int]) -> Ellipsoids:
        """The projection of an ellipsoid is the ellipsoid of the same scale with that block of S."""
        chosen = list(targets)
        part = self.shapes[:, chosen][:, :, chosen]
        return Ellipsoids(self.centers[:, chosen], part, self.scale, _chosen(self.bounds, chosen))

    def __getitem__(self, rows: Any) -> Ellipsoids:
        return Ellipsoids(self.centers[rows], self.shapes[rows], self.scale[rows], self.bounds)

    def _shadows(self) -> Float[NDArray, "n 2 t"]:
        reach = self.scale[:, None] * reaches(self.shapes)
        return np.stack([self.centers - reach, self.centers + reach], axis=1)

    @cached_property
    def _principal(self) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t t"]]:
        values, vectors = np.linalg.eigh(self.shapes)
        return values, vectors


def mahalanobis_norm(errors: Float[NDArray, "n t"], shapes: Float[NDArray, "n t t"]) -> Float[NDArray, "n"]:
    """``sqrt(e' S^-1 e)`` for each row; NaN where an error is."""
    whitened = np.linalg.solve(np.linalg.cholesky(shapes), errors[..., None])[..., 0]
    with np.errstate(over="ignore"):  # an overflow gives infinity, as it should
        return np.linalg.norm(whitened, axis=1)


def reaches(shapes: Float[NDArray, "n t t"]) -> Float[NDArray, "n t"]:
    """How far an ellipsoid of scale 1 reaches along each target: the root of the diagonal of S."""
    return np.sqrt(np.diagonal(shapes, axis1=1, axis2=2))


def in_box(y: Float[NDArray, "n t"], intervals: Float[NDArray, "n 2 t"]) -> Bool[NDArray, "n"]:
    """Whether every target is in its closed interval."""
    return np.all((intervals[:, 0] <= y) & (y <= intervals[:, 1]), axis=1)


def log_box_volume(intervals: Float[NDArray, "n 2 t"]) -> Float[NDArray, "n"]:
    """The sum of the logarithms of the widths: -inf where one is 0, else +inf where one is infinite."""
    with np.errstate(divide="ignore"):
        logs = np.log(intervals[:, 1] - intervals[:, 0])
    flat = np.isneginf(logs).any(axis=1)
    return np.where(flat, -np.inf, np.where(flat[:, None], 0.0, logs).sum(axis=1))


def check_intervals(intervals: ArrayLike) -> Float[NDArray, "n 2 l"]:
    """`intervals` of shape (n, 2) or (n, 2, L) as an array of shape (n, 2, L).

    float32 stays float32, since the rounding of the ends decides which widths are ties (`tied_widths`).
    """
    array = to_numpy(intervals)
    if array.dtype.kind not in "fiu":
        raise InputError(f"intervals must hold numbers, got dtype {array.dtype}; convert them to float first")
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    if array.ndim not in (2, 3) or array.shape[1] != 2 or array.size == 0:
        raise InputError(
            f"intervals must have shape (n, 2) or (n, 2, n_levels) with n > 0, got {array.shape}; "
            "stack lower and upper ends along axis 1"
        )
    array = array.reshape(len(array), 2, -1)
    lower, upper = array[:, 0], array[:, 1]
    _refuse_intervals(
        np.isnan(lower) | np.isnan(upper), "hold NaN", "an unbounded end is -inf or +inf, not NaN"
    )
    _refuse_intervals(
        lower > upper,
        "have the lower end above the upper end",
        "if they are empty sets, as those of smoothed=True may be, pass both ends at the prediction, as "
        "LVDRegressor.predict_interval does, which gives them width 0; if not, check the order of the columns",
    )
    _refuse_intervals(
        (lower == np.inf) | (upper == -np.inf), "hold no number", "an unbounded interval is (-inf, +inf)"
    )
    return array


def check_one_level(intervals: ArrayLike) -> Float[NDArray, "n 2"]:
    """`intervals` of shape (n, 2) or (n, 2, 1) as an array of shape (n, 2)."""
    array = check_intervals(intervals)
    if array.shape[2] != 1:
        raise InputError(
            f"intervals must be those of one level, got {array.shape[2]} levels; "
            "pass one of them, for instance intervals[:, :, 0]"
        )
    return array[:, :, 0]


def check_targets_and_intervals(
    y: ArrayLike, intervals: ArrayLike
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n 2"]]:
    """Targets and their intervals at one level, of the same length."""
    targets, array = check_vector(y), check_one_level(intervals)
    check_same_length(y=targets, intervals=array)
    return targets, array


def check_boxes(intervals: ArrayLike) -> Float[NDArray, "n 2 t"]:
    """Intervals of several targets at one level, of shape (n, 2, t) or (n, 2, 1, t)."""
    array = to_numpy(intervals)
    if array.ndim == 4 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 3:
        raise InputError(
            f"intervals of several targets at one level must have shape (n, 2, n_targets), got {array.shape}; pass "
            "one level, for instance intervals[:, :, 0]"
        )
    return check_intervals(array)


def check_hits(y: ArrayLike, intervals: Region | ArrayLike) -> Bool[NDArray, "n"]:
    """Whether each row is covered: y by its interval, or all targets of a row, y of shape (n, t), by its region.

    `intervals` may also be the result itself, one boolean per row; y is then ignored.
    """
    if isinstance(intervals, Region):
        return intervals.contains(y)
    array = to_numpy(intervals)
    if array.dtype == np.bool_ and array.ndim == 1:
        return array
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        targets, boxes = check_matrix(y, "y"), check_boxes(array)
        check_same_length(y=targets, intervals=boxes)
        if boxes.shape[2] != targets.shape[1]:
            raise InputError(
                f"y has {targets.shape[1]} targets, but intervals {boxes.shape[2]}; give the same ones"
            )
        return in_box(targets, boxes)
    return covered(*check_targets_and_intervals(y, array))


def check_level(confidence_level: Levels) -> float:
    """One confidence level, strictly between 0 and 1."""
    levels = check_levels(confidence_level)
    if len(levels) != 1:
        raise InputError(f"confidence_level must be one number here, got {len(levels)}; call once per level")
    return float(levels[0])


def check_levels_of(intervals: Float[NDArray, "n 2 l"], levels: Levels) -> Float[NDArray, "l"]:
    """Levels, one per slice of `intervals`."""
    vector = check_levels(levels)
    if len(vector) != intervals.shape[2]:
        raise InputError(
            f"levels must name every level of intervals, got {len(vector)} for {intervals.shape[2]}; "
            "pass the list that predict_interval was given"
        )
    return vector


def _refuse_intervals(bad: NDArray, what: str, remedy: str) -> None:
    rows = np.flatnonzero(bad.any(axis=1))
    if rows.size:
        first = ", ".join(map(str, rows[:5]))
        raise InputError(f"intervals {what} in {rows.size} rows (first at row {first}); {remedy}")


def _chosen(bounds: Bounds, targets: Sequence[int]) -> Bounds:
    low, high = (end if np.ndim(end) == 0 else np.asarray(end)[list(targets)] for end in bounds)
    return low, high
