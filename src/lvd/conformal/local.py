"""Local conformal radii: calibration scores weighted by their similarity to the query."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from lvd._typing import ArrayLike, Float, Levels, RandomState
from lvd._validation import (
    InputError,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    intervals_like,
    like,
    seed_from,
)
from lvd.conformal import engine
from lvd.conformal.bandwidth import check_bandwidth, choose_bandwidth
from lvd.conformal.calibration import Calibration, CalibrationWarning, Part
from lvd.conformal.distribution import LocalDistribution
from lvd.conformal.explanation import Evidence, explain
from lvd.conformal.floor import check_floor, floor_of, smallest_floor
from lvd.conformal.guarantees import Rule
from lvd.conformal.leaves import Leaves, check_search
from lvd.conformal.rows import ALL, Places, Rows, check_groups, check_keys, check_rows_given, check_weights
from lvd.conformal.summary import LocalSummary, effective_sample_size, summarize


@runtime_checkable
class Kernel(Protocol):
    """What a kernel must offer: coordinates in which it reads ``exp(-||u - v||^2)``."""

    def scaled(self, embeddings: ArrayLike) -> Float[Tensor, "n k"]:
        """Scaled coordinates of the embeddings."""
        ...


class LocalConformal:
    """Locally valid radii from embeddings and calibration scores alone; no model object is needed.

    For a query x the calibration scores are weighted by ``K(x, x_i)``, the weight ``K(x, x) = 1`` of the query
    itself sits at +inf, and the radius is the weighted quantile at the confidence level (Algorithm 1).

    Calibration rows and queries may come with `groups`: a query then sees the rows of its own group alone, which
    makes the guarantee one for each group (Mondrian). And they may come with `weights`, the likelihood ratios
    ``p_new(x) / p_calib(x)`` of :func:`lvd.shift.estimate_weights`, which multiply the kernel; both on one scale.
    The local promise speaks of a new case x near the centre c, whose weight ``w(x) K(c, x)`` may be larger than
    that of the centre: with weights the mass at +inf is `max_weight`, which no w(x) K(c, x) exceeds. The other two
    guarantees speak of the row itself, and take its own weight.

    Parameters
    ----------
    kernel : a fitted :class:`MahalanobisKernel`.
    bandwidth : widens the kernel to ``exp(-||A(z_a - z_b)||^2 / (k h^2))``: fewer infinite radii, less local ones.
        A number, or ``"auto"``: the smallest h >= 1 with which at most `max_infinite` of the training rows would
        be infinite at `confidence_level`, found without the calibration rows (and as if groups were equally large).
    max_infinite : of ``bandwidth="auto"``.
    kernel_floor : raises the kernel to ``K_e = (1 - e) K + e``. A number e in [0, 1), or ``"auto"``: the smallest
        with which all radii are finite at `confidence_level` (see :func:`smallest_floor`), for each group its own.
    confidence_level : of the two choices ``"auto"``.
    max_weight : the largest likelihood ratio a new row can have. None takes the largest one seen, among the
        calibration rows and that of the row itself: then the local promise holds up to the chance that a new case
        has a larger one, which is small when many calibration rows weigh about as much as the heaviest.
    search : how the CPU finds the rows that matter to a query. ``"all"`` weighs all rows. ``"index"`` puts them
        into leaves of neighbours in :meth:`conformalize`, about 6 s for a million, and then skips those too far
        to matter; :meth:`update`, :meth:`forget` and :meth:`save` keep the leaves. ``"auto"`` does so from 500,000
        rows and 4,096 queries on if the kernel is local. A kernel with a floor gives weight to all rows, so it has
        no index, and a GPU always weighs all. The radii are the same up to 65,536 rows; above, where float32
        cannot decide, ``"all"`` takes the wider candidate, at most 1e-5 of the weight later.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> train, calib = rng.normal(size=(200, 3)), rng.normal(size=(500, 3))
    >>> kernel = lvd.MahalanobisKernel(n_components=2, max_iter=50, random_state=0).fit(train, train[:, 0])
    >>> conformal = lvd.LocalConformal(kernel).conformalize(calib, np.abs(rng.normal(size=500)))
    >>> conformal.radius(calib[:4], confidence_level=[0.5, 0.9]).shape
    (4, 2)
    >>> raised = lvd.LocalConformal(kernel, kernel_floor="auto")
    >>> raised = raised.conformalize(calib, np.abs(rng.normal(size=500)), groups=np.repeat(["a", "b"], 250))
    >>> np.isfinite(raised.radius([[99.0, 0.0, 0.0], [99.0, 0.0, 0.0]], groups=["a", "c"]))
    array([ True, False])
    """

    max_weight: float | None = None  # of objects saved before there was one

    def __init__(
        self,
        kernel: Kernel,
        *,
        bandwidth: float | str = 1.0,
        max_infinite: float = 0.1,
        kernel_floor: float | str = 0.0,
        confidence_level: Levels = 0.9,
        max_weight: float | None = None,
        search: str = "auto",
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.max_infinite = max_infinite
        self.kernel_floor = kernel_floor
        self.confidence_level = confidence_level
        self.max_weight = max_weight
        self.search = search

    def conformalize(
        self,
        embeddings: ArrayLike,
        scores: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> LocalConformal:
        """Take a calibration set: embeddings of rows the model has not seen, and their scores."""
        check_bandwidth(self.bandwidth, self.max_infinite)
        check_floor(self.kernel_floor, weighted=weights is not None)
        check_search(self.search, self.kernel_floor)
        if self.max_weight is not None:
            check_positive(self.max_weight, "max_weight")
        points = self.kernel.scaled(embeddings)
        n_groups = 1 if groups is None else len(set(check_groups(groups, len(points)).tolist()))
        self.bandwidth_ = self._choose_bandwidth(len(points) // n_groups)
        rows, checked = self._scored(points, scores, groups, weights)
        self._take(rows, checked, Leaves.unknown(len(points), self.search))
        if self.search == "index":
            self.calibration_.build_index()
        self._warn_of_floor()
        return self

    def update(
        self,
        embeddings: ArrayLike,
        scores: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> LocalConformal:
        """Add newly labelled rows to the calibration set.

        The radii are those of calibrating on all rows at once with the bandwidth of :meth:`conformalize`, which
        stays: ``bandwidth="auto"`` would choose another for more rows. A floor ``"auto"`` follows the rows.
        """
        known = self._calibration()
        check_rows_given(groups, weights, known.rows)
        rows, checked = self._scored(self.kernel.scaled(embeddings), scores, groups, weights)
        leaves = known.leaves.joined(len(checked))
        return self._take(known.rows.joined(rows), torch.cat([known.scores, checked]), leaves)

    def forget(self, n_newest: int) -> LocalConformal:
        """Keep only the `n_newest` rows that came last."""
        check_positive(n_newest, "n_newest", integer=True)
        known = self._calibration()
        newest = known.rows.newest(n_newest), known.scores[-n_newest:], known.leaves.newest(n_newest)
        return self._take(*newest)

    def rescored(self, scores: ArrayLike) -> LocalConformal:
        """The same calibration rows with other scores, in the order in which the rows came."""
        known = self._calibration()
        checked = torch.as_tensor(check_vector(scores, "scores"), device=known.scores.device)
        check_same_length(calibration=known.scores, scores=checked)
        return copy.copy(self)._take(known.rows, checked, known.leaves)

    def radius(
        self,
        embeddings: ArrayLike,
        confidence_level: Levels = 0.9,
        *,
        guarantee: str = "local",
        smoothed: bool = False,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        random_state: RandomState = 0,
        row_keys: ArrayLike | None = None,
    ) -> Any:
        """Radii (n,) for one level, (n, L) for a list of them; +inf where too little is known.

        `guarantee` chooses what the same calibration promises: ``"local"``, the paper's, says nothing about
        coverage on average; ``"randomized"`` (randomly localized) covers marginally and, robustly, locally, its
        draws fixed by the row and `random_state`; ``"calibrated"`` covers marginally without randomness, at
        O(m^2) once and O(m log m) a row.

        `smoothed` is for ``"randomized"``: the level is then met exactly instead of at least (for scores without
        ties), and a radius may be -inf, which stands for the empty set.

        `row_keys`, whole numbers, are what the draws belong to. By default it is the embeddings, to the last bit.
        Equal rows share their draw: the coverage on average is over draws, so over rows that differ or over seeds.
        Where many rows are equal, give each a key of its own, or a new `random_state` for each call.
        """
        rule, levels = self._rule(guarantee, smoothed, random_state), check_levels(confidence_level)
        rows = self._queries(embeddings, groups, weights, row_keys)
        rows = self._at_their_largest(rows) if guarantee == "local" else rows
        result = rule.radii(rows, self.calibration_, levels)
        return like(result if np.ndim(confidence_level) else result[:, 0], embeddings, upwards=True)

    def interval(
        self,
        embeddings: ArrayLike,
        confidence_level: Levels = 0.9,
        *,
        guarantee: str = "local",
        smoothed: bool = False,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        random_state: RandomState = 0,
        row_keys: ArrayLike | None = None,
    ) -> Any:
        """For signed scores the lower and upper end, (n, 2), or (n, 2, L) for a list of levels.

        Each end misses at most (1 - level) / 2 of the scores: both are quantiles at (1 + level) / 2, of the scores
        and of the scores with their signs turned round. The choices are those of :meth:`radius`; a lower end above
        the upper one stands for the empty set.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[0.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize(np.zeros((99, 1)), np.arange(-9.0, 90.0))
        >>> conformal.interval([[0.0]], 0.9)
        array([[-5., 85.]])
        """
        rule, levels = self._rule(guarantee, smoothed, random_state), check_levels(confidence_level)
        rows = self._queries(embeddings, groups, weights, row_keys)
        rows = self._at_their_largest(rows) if guarantee == "local" else rows
        ask = partial(rule.radii, rows, self.calibration_, (1.0 + levels) / 2.0)
        result = torch.stack([-ask(mirrored=True), ask()], 1)
        return intervals_like(result if np.ndim(confidence_level) else result[..., 0], embeddings)

    def distribution(
        self,
        embeddings: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> LocalDistribution:
        """The local distribution of the scores at each row: its quantiles, distribution function and masses.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[0.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize(np.zeros((99, 1)), np.arange(-49.0, 50.0))
        >>> local = conformal.distribution([[0.0]])
        >>> local.quantile([0.25, 0.5, 0.75])
        array([[-25.,   0.,  25.]])
        >>> local.cdf([0.0])
        array([0.505])
        """
        rows = self._at_their_largest(self._queries(embeddings, groups, weights))
        return LocalDistribution(self._calibration(), rows)

    def effective_sample_size(self, embeddings: ArrayLike, *, groups: ArrayLike | None = None) -> Any:
        """How many equally weighted calibration rows the local weights are worth, (n,)."""
        weights = None if self._calibration().rows.weights is None else np.ones(len(embeddings))
        rows = self._queries(embeddings, groups, weights)

        def ask(part: Part, places: Places) -> Tensor:
            return effective_sample_size(rows.points[places], part.sorted)[:, None]

        unseen = rows.points.new_zeros(len(rows.points), 1)
        return like(self.calibration_.answer(rows, unseen, ask)[:, 0], embeddings)

    def summary(
        self,
        embeddings: ArrayLike,
        confidence_level: Levels = 0.9,
        *,
        values: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> LocalSummary:
        """The local radii, whether they are exact, and the weights' effective sample size and mean of `values`.

        `values` hold a number for each calibration row, in the order in which the rows came; the mean of their
        targets is the kernel regression. The radii are those of ``guarantee="local"``. A GPU does it in one pass.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[1.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize([[0.0]] * 50 + [[9.0]] * 50, np.arange(100.0))
        >>> conformal.summary([[0.0]], 0.5, values=np.repeat([2.0, 5.0], 50))
        LocalSummary(radius=array([25.]), n_effective=array([50.]), exact=array([ True]), mean=array([2.]))
        """
        levels = check_levels(confidence_level)
        rows = self._at_their_largest(self._queries(embeddings, groups, weights))
        found = summarize(self.calibration_, rows, levels, values)
        radii = found[:, :-3] if np.ndim(confidence_level) else found[:, 0]
        radius = like(radii, embeddings, upwards=True)
        mean, size, exact = (like(column, embeddings) for column in found[:, -3:].T)
        return LocalSummary(radius, size, exact > 0.0, None if values is None else mean)

    def explain(
        self,
        embeddings: ArrayLike,
        confidence_level: float = 0.9,
        *,
        n_neighbors: int = 10,
        targets: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        two_sided: bool = False,
    ) -> list[Evidence]:
        """For each row the calibration rows that carry the weight, and one sentence on its radius.

        `targets`, the calibration rows' y in the order they were given, are shown with the neighbours. With
        `two_sided` it is the :meth:`interval` of signed scores that is explained.
        """
        level = float(check_levels(confidence_level)[0])
        check_positive(n_neighbors, "n_neighbors", integer=True)
        rows = self._at_their_largest(self._queries(embeddings, groups, weights))
        known = self._calibration()
        targets = None if targets is None else check_vector(targets, "targets")
        nobody = Part(engine.sort_calibration(rows.points[:0], known.scores[:0]))
        labels = [ALL] * len(rows.points) if rows.groups is None else rows.groups.tolist()
        return [
            explain(
                point,
                known.parts.get(group, nobody).sorted,
                level,
                n_neighbors,
                targets,
                self_weight=own,
                group=group,
                two_sided=two_sided,
            )
            for point, own, group in zip(rows.points, rows.self_weights.tolist(), labels, strict=True)
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write to a folder that :func:`lvd.load` reads; nothing is pickled, a saved model there is replaced."""
        from lvd.conformal.saving import save

        save(self, folder)

    def _take(self, rows: Rows, scores: Float[Tensor, "m"], leaves: Leaves) -> LocalConformal:
        self.calibration_ = Calibration.of(rows, scores, leaves, self._floor_of)
        return self

    def _rows(
        self, scaled: Float[Tensor, "n k"], groups: ArrayLike | None, weights: ArrayLike | None
    ) -> Rows:
        """The rows in coordinates in which the widened kernel is ``exp(-||u - v||^2)``."""
        points = scaled / self.bandwidth_
        return Rows(
            points,
            None if weights is None else points.new_tensor(check_weights(weights, len(points))),
            None if groups is None else check_groups(groups, len(points)),
        )

    def _scored(
        self,
        scaled: Float[Tensor, "m k"],
        scores: ArrayLike,
        groups: ArrayLike | None,
        weights: ArrayLike | None,
    ) -> tuple[Rows, Float[Tensor, "m"]]:
        checked, rows = check_vector(scores, "scores"), self._rows(scaled, groups, weights)
        self._check_largest(rows)
        check_same_length(embeddings=rows.points, scores=checked)
        return rows, rows.points.new_tensor(checked)

    def _queries(
        self,
        embeddings: ArrayLike,
        groups: ArrayLike | None,
        weights: ArrayLike | None,
        row_keys: ArrayLike | None = None,
    ) -> Rows:
        check_rows_given(groups, weights, self._calibration().rows)
        rows = self._rows(self.kernel.scaled(embeddings), groups, weights)
        return rows if row_keys is None else replace(rows, keys=check_keys(row_keys, len(rows.points)))

    def _at_their_largest(self, rows: Rows) -> Rows:
        """The rows with the largest weight that a new case near them can have, for the local promise."""
        known = self._calibration().rows.weights
        if rows.weights is None or known is None:
            return rows
        self._check_largest(rows)
        largest = float(known.max()) if self.max_weight is None else self.max_weight
        return replace(rows, weights=rows.weights.clamp(min=largest))

    def _check_largest(self, rows: Rows) -> None:
        largest = 0.0 if rows.weights is None else float(rows.weights.max())
        if self.max_weight is not None and largest > self.max_weight:
            raise InputError(
                f"weights must be at most max_weight={self.max_weight:g}, got {largest:g}; raise max_weight to the "
                "largest likelihood ratio there can be, on the scale of the weights"
            )

    def _rule(self, guarantee: str, smoothed: bool, random_state: RandomState) -> Rule:
        floored = self.kernel_floor != 0.0
        return Rule(guarantee, smoothed, seed_from(random_state)).check(floored=floored)

    def _choose_bandwidth(self, n_calib: int) -> float:
        if self.bandwidth != "auto":
            return float(self.bandwidth)
        points = getattr(self.kernel, "train_points_", None)
        if points is None:
            raise InputError(
                'bandwidth="auto" needs a kernel that knows its training rows; give a number instead'
            )
        return choose_bandwidth(
            torch.as_tensor(points),
            level=float(check_levels(self.confidence_level).max()),
            max_infinite=self.max_infinite,
            n_calib=n_calib,
            floor=self._floor_of(n_calib),
        )

    def _floor_of(self, n_rows: int) -> float:
        return floor_of(self.kernel_floor, self.confidence_level, n_rows)

    def _warn_of_floor(self) -> None:
        known, level = self.calibration_, float(check_levels(self.confidence_level).max())
        fewest = min(part.sorted.n_rows for part in known.parts.values())
        needed = smallest_floor(level, fewest)
        if known.rows.weights is None and 0.0 < self._floor_of(fewest) < needed <= 1.0:
            warnings.warn(
                f"kernel_floor={self.kernel_floor:g} leaves infinite radii: at confidence_level={level:g} with "
                f'{fewest} calibration rows it takes {needed:.4g} to make all finite; give that or "auto"',
                CalibrationWarning,
                stacklevel=3,
            )

    def _calibration(self) -> Calibration:
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                "LocalConformal has no calibration set yet: call conformalize(embeddings, scores)"
            )
        return self.calibration_
