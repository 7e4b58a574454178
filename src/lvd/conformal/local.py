"""Local conformal radii: calibration scores weighted by their similarity to the query."""

from __future__ import annotations

import copy
import math
import os
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from lvd._typing import ArrayLike, Float, Labels, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_choice,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    intervals_like,
    is_tensor,
    like,
    proven,
    seed_from,
)
from lvd.conformal.bandwidth import TrainingSample, adaptive_bandwidths
from lvd.conformal.calibration import (
    ALL,
    Calibration,
    GlobalConformal,
    Group,
    Indices,
    Rows,
    check_largest,
    check_rows_given,
    put_together,
    take_apart,
    upgrade_local,
)
from lvd.conformal.distribution import LocalDistribution
from lvd.conformal.explanation import Evidence, explain_radius
from lvd.conformal.guarantees import (
    GUARANTEES,
    calibrated_radius,
    randomized_radius,
    sample_points,
    standing,
)
from lvd.conformal.transductive import Prior, sum_others, transductive_radius
from lvd.kernels import MahalanobisKernel
from lvd.quantiles import LocalSummary, SortedRows, local_quantile
from lvd.store import register, save_object

FEW_WEIGHTS = 2**16
"""Up to this many weights of queries and calibration rows are computed sooner than a GPU can be asked for them."""


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
    that of the centre: with weights the mass at +inf is the largest weight that a new row can have, which no
    ``w(x) K(c, x)`` exceeds. The other guarantees speak of the row itself, and take its own weight.

    Parameters
    ----------
    kernel : a fitted :class:`MahalanobisKernel`.
    bandwidth : widens the kernel to ``exp(-||A(z_a - z_b)||^2 / (k h^2))``. A number h, or ``"adaptive"``: for each
        query the smallest h >= 1 with which the calibration rows are expected to have enough weight for a finite
        radius at `confidence_level`, or at 0.9 if that is more, `mass` times over. The kernel's training rows
        decide it, never the calibration rows.
    mass : of ``bandwidth="adaptive"``; below 1 radii would be infinite in expectation.
    confidence_level : the level, or levels, of :meth:`radius` when it is given none. The highest one decides
        adaptive bandwidths, so that the radii of several levels are nested.
    prior : what scores are expected to be before calibration rows are seen, a :class:`Prior`; for
        ``guarantee="transductive"``, which needs one.
    exact : settle in float64 what float32 cannot decide, also on a GPU with more than 32,768 calibration rows. Of a
        million rows most radii need it, which takes many times as long; without it such a radius may be that of a
        level higher by 1e-5. On the CPU, and with fewer rows, all radii are those of exact weights anyway.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> train, calib = rng.normal(size=(200, 3)), rng.normal(size=(500, 3))
    >>> kernel = lvd.MahalanobisKernel(n_components=2, max_iter=50, random_state=0).fit(train, train[:, 0])
    >>> conformal = lvd.LocalConformal(kernel).conformalize(calib, np.abs(rng.normal(size=500)))
    >>> conformal.radius(calib[:4], confidence_level=[0.5, 0.9]).shape
    (4, 2)
    >>> wide = lvd.LocalConformal(kernel, bandwidth="adaptive")
    >>> wide = wide.conformalize(calib, np.abs(rng.normal(size=500)), groups=np.repeat(["a", "b"], 250))
    >>> np.isfinite(wide.radius([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0]], groups=["a", "c"]))
    array([ True, False])
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        bandwidth: float | str = 1.0,
        mass: float = 2.0,
        confidence_level: Levels = 0.9,
        prior: Prior | None = None,
        exact: bool = False,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.mass = mass
        self.confidence_level = confidence_level
        self.prior = prior
        self.exact = exact

    def conformalize(
        self,
        embeddings: ArrayLike,
        scores: ArrayLike,
        *,
        groups: Labels = None,
        weights: Labels = None,
        max_weight: float | None = None,
    ) -> LocalConformal:
        """Take a calibration set: embeddings of rows the model has not seen, and their scores.

        `max_weight` is the largest of the `weights` that a new row can have. None takes the largest one seen, among
        the calibration rows and that of the row itself: then the local promise holds up to the chance that a new
        case has a larger one, which is small when many calibration rows weigh about as much as the heaviest.
        """
        self._check_parameters()
        if max_weight is not None:
            check_positive(max_weight, "max_weight")
        self.max_weight_ = max_weight
        rows, checked = self._scored(embeddings, scores, groups, weights)
        n_groups = 1 if rows.groups is None else len(set(rows.groups.tolist()))
        # What adaptive bandwidths are made for; rows that come later do not change them.
        self.rows_expected_ = max(1, len(checked) // n_groups)
        return self._take(rows, checked)

    def update(
        self, embeddings: ArrayLike, scores: ArrayLike, *, groups: Labels = None, weights: Labels = None
    ) -> LocalConformal:
        """Add newly labelled rows to the calibration set.

        The radii are those of calibrating on all rows at once, but for adaptive bandwidths, which stay those of the
        first calibration.
        """
        known = self._calibration()
        check_rows_given(groups, weights, known.rows)
        rows, checked = self._scored(embeddings, scores, groups, weights)
        return self._take(known.rows.joined(rows), torch.cat([known.scores, checked]))

    def forget(self, n_newest: int) -> LocalConformal:
        """Keep only the `n_newest` rows that came last."""
        check_positive(n_newest, "n_newest", integer=True)
        known = self._calibration()
        newest = slice(-n_newest, None)
        return self._take(known.rows[newest], known.scores[newest])

    def rescored(self, scores: ArrayLike) -> LocalConformal:
        """The same calibration rows with other scores, in the order in which the rows came."""
        known = self._calibration()
        checked = known.scores.new_tensor(check_vector(scores, "scores"))
        check_same_length(calibration=known.scores, scores=checked)
        return copy.copy(self)._take(known.rows, checked)

    def radius(
        self,
        embeddings: ArrayLike,
        confidence_level: Levels | None = None,
        *,
        guarantee: str = "local",
        smoothed: bool = False,
        groups: Labels = None,
        weights: Labels = None,
        random_state: RandomState = 0,
        row_keys: Labels = None,
    ) -> Any:
        """Radii (n,) for one level, (n, L) for a list of them; +inf where too little is known.

        `guarantee` chooses what the same calibration promises: ``"local"``, the paper's, says nothing about
        coverage on average; ``"randomized"`` (randomly localized) covers marginally and, robustly, locally, its
        draws fixed by the row and `random_state`; ``"calibrated"`` covers marginally without randomness, at
        O(m^2) once and O(m log m) a row; ``"transductive"`` divides each score by the mean of its
        neighbours' and is exact on average, finite from ``level / (1 - level)`` rows on, and says nothing locally.

        `smoothed` is for ``"randomized"``: the level is then met exactly instead of at least (for scores without
        ties), and a radius may be -inf, which means the empty set.

        `row_keys`, whole numbers, are what the draws belong to. By default it is the embeddings, to the last bit.
        Equal rows share their draw: the coverage on average is over draws, so over rows that differ or over seeds.
        Where many rows are equal, give each a key of its own, or a new `random_state` for each call.
        """
        check_choice(guarantee, "guarantee", GUARANTEES)
        if smoothed and guarantee != "randomized":
            raise InputError(
                f'smoothed=True works only with guarantee="randomized", got {guarantee!r}; leave it out'
            )
        given = self.confidence_level if confidence_level is None else confidence_level
        if guarantee == "local" and self._asks_few(embeddings):
            twin, tensor = self._on_host(), is_tensor(embeddings)
            rows: Any = embeddings.detach().cpu() if tensor else embeddings
            found = twin.radius(rows, given, groups=groups, weights=weights)
            return found.to(embeddings.device) if tensor else found
        levels, seed = check_levels(given), seed_from(random_state)

        def ask(group: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            some = rows[indices]
            queries = some.queries
            if guarantee == "local":
                return (local_quantile(queries, known, levels).radius,)
            made = self._made_once(guarantee, group, known)
            if guarantee == "transductive":
                return (transductive_radius(queries.points, known, made, levels),)
            if guarantee == "calibrated":
                return (calibrated_radius(queries, known, made, levels),)
            return (randomized_radius(queries, made, levels, seed=seed, keys=some.keys, smoothed=smoothed),)

        with proven(self):
            rows = self._queries(embeddings, groups, weights, row_keys, guarantee)
            (result,) = self._calibration().answer(rows, ask)
        return like(result if np.ndim(given) else result[:, 0], embeddings, upwards=True)

    def interval(self, embeddings: ArrayLike, confidence_level: Levels | None = None, **choices: Any) -> Any:
        """For signed scores the lower and upper end, (n, 2), or (n, 2, L) for a list of levels.

        Each end misses at most (1 - level) / 2 of the scores: both are quantiles at (1 + level) / 2, of the scores
        and of the scores with their signs turned round. The choices are those of :meth:`radius`; a lower end above
        the upper one means the empty set.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[0.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize(np.zeros((99, 1)), np.arange(-9.0, 90.0))
        >>> conformal.interval([[0.0]], 0.9)
        array([[-5., 85.]])
        """
        given = self.confidence_level if confidence_level is None else confidence_level
        levels = (1.0 + check_levels(given)) / 2.0
        mirrored = self.rescored(-self._calibration().scores)
        below, above = (one.radius(embeddings, levels, **choices) for one in (mirrored, self))
        ends = torch.stack([-torch.as_tensor(below), torch.as_tensor(above)], 1)
        return intervals_like(ends if np.ndim(given) else ends[..., 0], embeddings)

    def bandwidths(self, embeddings: ArrayLike) -> Any:
        """The bandwidth h of each row's kernel, (n,)."""
        self._calibration()
        found = self._bandwidths(self.kernel.scaled(embeddings))
        if found is None:
            found = torch.full((len(embeddings),), float(self.bandwidth), dtype=torch.float64)
        return like(found, embeddings)

    def distribution(
        self, embeddings: ArrayLike, *, groups: Labels = None, weights: Labels = None
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
        return LocalDistribution(self._calibration(), self._queries(embeddings, groups, weights))

    def effective_sample_size(self, embeddings: ArrayLike, *, groups: Labels = None) -> Any:
        """How many equally weighted calibration rows the local weights are worth, (n,)."""
        weights = None if self._calibration().rows.weights is None else np.ones(len(embeddings))
        return self.summary(embeddings, groups=groups, weights=weights).n_effective

    def summary(
        self,
        embeddings: ArrayLike,
        confidence_level: Levels | None = None,
        *,
        values: ArrayLike | None = None,
        groups: Labels = None,
        weights: Labels = None,
    ) -> LocalSummary:
        """The local radii, whether they are exact, and the weights' effective sample size and mean of `values`.

        `values` hold a number for each calibration row, in the order in which the rows came; the mean of their
        targets is the kernel regression. The radii are those of ``guarantee="local"``, all from one pass.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[1.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize([[0.0]] * 50 + [[9.0]] * 50, np.arange(100.0))
        >>> conformal.summary([[0.0]], 0.5, values=np.repeat([2.0, 5.0], 50))
        LocalSummary(radius=array([25.]), n_effective=array([50.]), exact=array([ True]), mean=array([2.]))
        """
        given = self.confidence_level if confidence_level is None else confidence_level
        levels, known = check_levels(given), self._calibration()
        rows = self._queries(embeddings, groups, weights)
        column = None if values is None else known.scores.new_tensor(check_vector(values, "values"))
        if column is not None:
            check_same_length(calibration=known.scores, values=column)

        def ask(_: Group, some: SortedRows, indices: Indices) -> tuple[Tensor, ...]:
            chosen = None if column is None else column[some.order]
            found = local_quantile(rows[indices].queries, some, levels, moments=True, values=chosen)
            mean = torch.full_like(found.n_effective, torch.nan) if found.mean is None else found.mean
            return found.radius, found.n_effective, found.exact.double(), mean

        radius, size, exact, mean = known.answer(rows, ask)
        shaped = radius if np.ndim(given) else radius[:, 0]
        size, exact, mean = (like(part, embeddings) for part in (size, exact, mean))
        radius = like(shaped, embeddings, upwards=True)
        return LocalSummary(radius, size, exact > 0.0, None if values is None else mean)

    def explain(
        self,
        embeddings: ArrayLike,
        confidence_level: float | None = None,
        *,
        n_neighbors: int = 10,
        targets: ArrayLike | None = None,
        groups: Labels = None,
        weights: Labels = None,
        two_sided: bool = False,
    ) -> list[Evidence]:
        """For each row the calibration rows that carry the weight, and one sentence on its radius.

        `targets`, the calibration rows' y in the order they were given, are shown with the neighbours. With
        `two_sided` it is the :meth:`interval` of signed scores that is explained.
        """
        given = self.confidence_level if confidence_level is None else confidence_level
        level = float(check_levels(given)[0])
        check_positive(n_neighbors, "n_neighbors", integer=True)
        rows = self._queries(embeddings, groups, weights)
        targets = None if targets is None else check_vector(targets, "targets")
        queries, known = rows.queries, self._calibration()
        labels = [ALL] * len(queries) if rows.groups is None else rows.groups.tolist()
        explain = partial(explain_radius, targets=targets, two_sided=two_sided)
        return [
            explain(queries[i : i + 1], known.of_group(group), level, n_neighbors, group=group)
            for i, group in enumerate(labels)
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write to a folder that :func:`lvd.load` reads; nothing is pickled, a saved model there is replaced."""
        save_object(self, folder)

    def _check_parameters(self) -> None:
        check_bandwidth(self.bandwidth)
        check_positive(self.mass, "mass")
        check_levels(self.confidence_level)
        if not isinstance(self.exact, bool):
            raise InputError(f"exact must be True or False, got {self.exact!r}")
        if self.bandwidth == "adaptive" and not hasattr(self.kernel, "train_points_"):
            raise InputError(
                'bandwidth="adaptive" needs a kernel that knows its training rows; give a number instead, or pass '
                "embeddings= and y= to from_components"
            )

    def _take(self, rows: Rows, scores: Float[Tensor, "m"]) -> LocalConformal:
        self.calibration_ = Calibration.of(rows, scores, exact=self.exact)
        self._made: dict[Any, Any] = {}
        return self

    def _rows(self, embeddings: ArrayLike, groups: Labels, weights: Labels, row_keys: Labels = None) -> Rows:
        points = self.kernel.scaled(embeddings)
        if self.bandwidth not in {"adaptive", 1.0}:
            # In coordinates in which the widened kernel is exp(-||u - v||^2).
            points = points / float(self.bandwidth)
        return Rows.of(points, groups, weights, row_keys)

    def _scored(
        self, embeddings: ArrayLike, scores: ArrayLike, groups: Labels, weights: Labels
    ) -> tuple[Rows, Float[Tensor, "m"]]:
        checked = check_vector(scores, "scores")
        rows = check_largest(self._rows(embeddings, groups, weights), self.max_weight_)
        check_same_length(embeddings=rows.points, scores=checked)
        return rows, rows.points.new_tensor(checked)

    def _queries(
        self,
        embeddings: ArrayLike,
        groups: Labels,
        weights: Labels,
        row_keys: Labels = None,
        guarantee: str = "local",
    ) -> Rows:
        known = self._calibration().rows
        check_rows_given(groups, weights, known)
        rows = self._rows(embeddings, groups, weights, row_keys)
        bandwidths = self._bandwidths(rows.points)
        if bandwidths is not None:
            rows = replace(rows, bandwidths=bandwidths)
        if guarantee != "local":
            return rows
        return check_largest(rows, self.max_weight_).at_their_largest(known, self.max_weight_)

    def _asks_few(self, embeddings: ArrayLike) -> bool:
        """Whether the answer is computed sooner than a GPU can be asked."""
        known = self._calibration()
        if known.scores.device.type == "cpu" or not isinstance(self.kernel, MahalanobisKernel):
            return False
        return len(embeddings) * len(known.scores) <= FEW_WEIGHTS

    def _on_host(self) -> LocalConformal:
        """The same calibration set in the host's memory, made once."""
        if "on host" not in self._made:
            twin, known = copy.copy(self), self._calibration()
            twin.kernel = copy.copy(self.kernel)
            twin.kernel.device = "cpu"  # type: ignore[attr-defined]
            weights = None if known.rows.weights is None else known.rows.weights.cpu()
            rows = replace(known.rows, points=known.rows.points.cpu(), weights=weights)
            self._made["on host"] = twin._take(rows, known.scores.cpu())
        return self._made["on host"]

    def _bandwidths(self, points: Float[Tensor, "n k"]) -> Float[Tensor, "n"] | None:
        """The bandwidths of rows in scaled coordinates; None where all have the same."""
        if self.bandwidth != "adaptive":
            return None
        if "sample" not in self._made:
            training: NDArray = self.kernel.train_points_  # type: ignore[attr-defined]
            self._made["sample"] = TrainingSample.of(torch.as_tensor(training, device=points.device))
        return adaptive_bandwidths(
            points,
            self._made["sample"],
            n_calib=self.rows_expected_,
            level=float(check_levels(self.confidence_level).max()),
            mass=self.mass,
        )

    def _made_once(self, guarantee: str, group: Group, rows: SortedRows) -> Any:
        """What a guarantee makes once of the calibration rows of each group."""
        if (guarantee, group) in self._made:
            return self._made[guarantee, group]
        if guarantee == "transductive":
            if self.prior is None or self._calibration().rows.weights is not None:
                raise InputError(
                    'guarantee="transductive" needs prior=, the scores to expect before any calibration '
                    "row is seen, and calibration rows without weights="
                )
            made: Any = sum_others(rows, self.prior)
        else:
            make = standing if guarantee == "calibrated" else sample_points
            made = make(rows, self._bandwidths(rows.points))
        self._made[guarantee, group] = made
        return made

    def _calibration(self) -> Calibration:
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                "LocalConformal has no calibration set yet: call conformalize(embeddings, scores)"
            )
        return self.calibration_


def check_bandwidth(bandwidth: Any) -> None:
    """A bandwidth is a positive number, or ``"adaptive"``."""
    if bandwidth == "adaptive":
        return
    if isinstance(bandwidth, str):
        raise InputError(f'bandwidth must be a positive number or "adaptive", got {bandwidth!r}')
    check_positive(bandwidth, "bandwidth")
    if not math.isfinite(bandwidth):
        raise InputError(
            f"bandwidth must be finite, got {bandwidth}; to give all rows the same weight, use split conformal"
        )


register(MahalanobisKernel)
register(GlobalConformal)
register(LocalConformal, root=True, take_apart=take_apart, complete=put_together, upgrade=upgrade_local)
