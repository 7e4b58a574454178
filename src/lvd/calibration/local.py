"""Local conformal radii: calibration scores weighted by their similarity to the query."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from lvd._typing import ArrayLike, Float, Labels, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    Parameter,
    check_choice,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    intervals_like,
    is_tensor,
    like,
    load_errors_explained,
    seed_from,
)
from lvd.calibration.calibration_rows import (
    ALL,
    Asked,
    Calibration,
    GlobalConformal,
    Group,
    Indices,
    LocalDistribution,
    Rows,
    check_largest,
    check_rows_given,
    check_score_columns,
    check_width,
    put_together,
    take_apart,
)
from lvd.calibration.explanation import Evidence, explain_radius
from lvd.calibration.guarantees import (
    GUARANTEES,
    calibrated_radius,
    randomized_radius,
    sample_points,
    standing,
)
from lvd.calibration.transductive import Prior, sum_others, transductive_radius
from lvd.engine import LocalSummary, SortedRows, local_quantile
from lvd.engine.quantiles import TrainingSample, adaptive_bandwidths
from lvd.kernels import Kernel, MahalanobisKernel
from lvd.kernels.mahalanobis import placed_far_out
from lvd.store import register, save_object

FEW_WEIGHTS = 2**16
"""Up to this many weights are computed faster on the CPU than a GPU call takes."""


class Settings(NamedTuple):
    """The parameters frozen at calibration time; later changes apply to the next calibration."""

    kernel: Kernel
    bandwidth: float | str
    mass: float
    confidence_level: Levels
    prior: Prior | None
    exact: bool


class LocalConformal:
    """Locally valid radii from embeddings and calibration scores only; no model object is needed.

    For a query x the calibration scores are weighted by ``K(x, x_i)``, the weight ``K(x, x) = 1`` of the query
    itself sits at +inf, and the radius is the weighted quantile at the confidence level (Algorithm 1).

    Calibration rows and queries may have `groups`: a query then only sees rows of its own group, and the
    guarantee holds within each group (Mondrian). They may also have `weights`, the likelihood ratios
    ``p_new(x) / p_calib(x)`` of :func:`lvd.shift.estimate_weights`, which multiply the kernel; both must be on
    one scale. The local guarantee concerns a new case x near the centre c, whose weight ``w(x) K(c, x)`` may
    exceed that of the centre: with weights the mass at +inf is therefore the largest weight that a new row can
    have, which bounds every ``w(x) K(c, x)``. The other guarantees concern the row itself and use its own
    weight.

    Parameters
    ----------
    kernel : a fitted :class:`MahalanobisKernel`, or another :class:`lvd.kernels.Kernel`. A calibration copies
        it and all parameters: after refitting the kernel or changing the bandwidth, conformalize again.
    bandwidth : widens the kernel to ``exp(-||A(z_a - z_b)||^2 / (k h^2))``. A number h, or ``"adaptive"``: for
        each query the smallest h >= 1 at which the calibration rows are expected to have `mass` times the
        weight needed for a finite radius at `confidence_level`, or at 0.9 if that is higher. This depends on
        the kernel's training rows, never on the calibration rows.
    mass : for ``bandwidth="adaptive"``; below 1 radii would be infinite in expectation.
    confidence_level : the default level, or levels, of :meth:`radius`. The highest one determines adaptive
        bandwidths, so that radii are nested across levels.
    prior : the scores expected before any calibration row is seen, a :class:`Prior`; required by
        ``guarantee="transductive"``.
    exact : resolve in float64 what float32 cannot decide, even on a GPU with more than 32,768 calibration rows.
        With a million rows most radii need it, which takes many times as long; without it such a radius may be
        that of a level higher by 1e-5. On the CPU, and with fewer rows, all radii use exact weights anyway.

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
        """Calibrate on embeddings of rows unseen by the model and their scores, (m,) or (m, c).

        With several score columns, :meth:`radii` answers for each; all share the weights. The other methods use
        the first.

        `max_weight` is the largest of the `weights` that a new row can have. None uses the largest one seen, in
        the calibration rows and the row itself: then the local guarantee holds up to the probability that a new
        case has a larger one, which is small if many calibration rows weigh about as much as the heaviest.
        """
        self._check_parameters()
        if max_weight is not None:
            check_positive(max_weight, "max_weight")
        settings = self._frozen()
        rows, checked = _scored(settings, max_weight, embeddings, scores, groups, weights)
        self._settings, self.max_weight_ = settings, max_weight
        n_groups = 1 if rows.groups is None else len(set(rows.groups.tolist()))
        # Adaptive bandwidths are made for this; rows that arrive later do not change them.
        self.rows_expected_ = max(1, len(checked) // n_groups)
        return self._take(rows, checked)

    def update(
        self, embeddings: ArrayLike, scores: ArrayLike, *, groups: Labels = None, weights: Labels = None
    ) -> LocalConformal:
        """Add newly labelled rows to the calibration set.

        The radii equal those of calibrating on all rows at once, except that adaptive bandwidths stay those of
        the first calibration.
        """
        known = self._calibration()
        check_rows_given(groups, weights, known.rows)
        settings = self._settings
        rows, checked = _scored(settings, self.max_weight_, embeddings, scores, groups, weights)
        check_width(rows.points, known.rows)
        return self._take(known.rows.joined(rows), torch.cat([known.scores, checked]))

    def forget(self, n_newest: int) -> LocalConformal:
        """Keep only the `n_newest` most recent rows."""
        check_positive(n_newest, "n_newest", integer=True)
        known = self._calibration()
        newest = slice(-n_newest, None)
        return self._take(known.rows[newest], known.scores[newest])

    def rescored(self, scores: ArrayLike) -> LocalConformal:
        """The same calibration rows with other scores, in the rows' original order."""
        known = self._calibration()
        checked = known.scores.new_tensor(check_score_columns(scores))
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
        """Radii (n,) for one level, (n, L) for a list; +inf where too little is known.

        `guarantee` selects the guarantee, from the same calibration: ``"local"``, as in the paper, says nothing
        about average coverage; ``"randomized"`` (randomly localized) covers marginally and, robustly, locally,
        with draws fixed by the row and `random_state`; ``"calibrated"`` covers marginally without randomness,
        in O(m^2) once and O(m log m) per row; ``"transductive"`` divides each score by its neighbours' mean, is
        exact on average, finite from ``level / (1 - level)`` rows on, and says nothing locally.

        `smoothed` is for ``"randomized"``: the level is then met exactly instead of at least (for scores without
        ties), and a radius may be -inf, which means the empty set.

        `row_keys`, integers, determine the draws; by default the embeddings do, to the last bit. Equal rows
        share their draw: average coverage is over draws, so over distinct rows or over seeds. If many rows are
        equal, give each its own key, or use a new `random_state` for each call.
        """
        given = self._given(confidence_level)
        asked: list[Asked] = [((0,), level) for level in check_levels(given).tolist()]
        found = self.radii(
            embeddings,
            asked,
            guarantee=guarantee,
            smoothed=smoothed,
            groups=groups,
            weights=weights,
            random_state=random_state,
            row_keys=row_keys,
        )[:, 0]
        return like(found if np.ndim(given) else found[:, 0], embeddings, upwards=True)

    def radii(
        self,
        embeddings: ArrayLike,
        asked: Sequence[Asked],
        *,
        guarantee: str = "local",
        smoothed: bool = False,
        groups: Labels = None,
        weights: Labels = None,
        random_state: RandomState = 0,
        row_keys: Labels = None,
    ) -> Float[NDArray, "n s l"]:
        """Radii of several score columns: each entry of `asked` names s columns and their level.

        The rows are projected and their bandwidths computed once for all of them. The choices are those of
        :meth:`radius`.
        """
        check_choice(guarantee, "guarantee", GUARANTEES)
        if smoothed and guarantee != "randomized":
            raise InputError(
                f'smoothed=True works only with guarantee="randomized", got {guarantee!r}; leave it out'
            )
        if guarantee == "local" and self._asks_few(embeddings):
            host = embeddings.detach().cpu() if is_tensor(embeddings) else embeddings
            return self._on_host().radii(host, asked, groups=groups, weights=weights)
        seed = seed_from(random_state)
        wanted = np.array([columns for columns, _ in asked])
        radius = np.empty((len(embeddings), wanted.shape[1], len(asked)))
        with load_errors_explained(self):
            rows = self._queries(embeddings, groups, weights, row_keys, guarantee)
            for column in np.unique(wanted).tolist():
                numbers, sides = np.nonzero(wanted == column)
                levels = check_levels([asked[number][1] for number in numbers.tolist()])
                answer = self._answering(rows, levels, column, guarantee, smoothed=smoothed, seed=seed)
                (found,) = self._calibration().answer(rows, answer, column)
                radius[:, sides, numbers] = found.cpu().numpy()
        return radius

    def _answering(
        self,
        rows: Rows,
        levels: Float[NDArray, "l"],
        column: int,
        guarantee: str,
        *,
        smoothed: bool,
        seed: int,
    ) -> Callable[[Group, SortedRows, Indices], tuple[Tensor]]:
        """A function that computes the radii of one group's queries."""

        def answer(group: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            some = rows[indices]
            queries = some.queries
            if guarantee == "local":
                return (local_quantile(queries, known, levels).radius,)
            made = self._made_once(guarantee, group, known, column)
            if guarantee == "transductive":
                return (transductive_radius(queries.points, known, made, levels),)
            if guarantee == "calibrated":
                return (calibrated_radius(queries, known, made, levels),)
            return (randomized_radius(queries, made, levels, seed=seed, keys=some.keys, smoothed=smoothed),)

        return answer

    def interval(self, embeddings: ArrayLike, confidence_level: Levels | None = None, **choices: Any) -> Any:
        """For signed scores, the lower and upper ends, (n, 2), or (n, 2, L) for a list of levels.

        Each end misses at most (1 - level) / 2 of the scores: both are quantiles at (1 + level) / 2, of the
        scores and of their negatives. The choices are those of :meth:`radius`; a lower end above the upper one
        means the empty set.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[0.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize(np.zeros((99, 1)), np.arange(-9.0, 90.0))
        >>> conformal.interval([[0.0]], 0.9)
        array([[-5., 85.]])
        """
        given = self._given(confidence_level)
        levels = (1.0 + check_levels(given)) / 2.0
        mirrored = self.rescored(-self._calibration().scores[:, 0])
        below, above = (one.radius(embeddings, levels, **choices) for one in (mirrored, self))
        ends = torch.stack([-torch.as_tensor(below), torch.as_tensor(above)], 1)
        return intervals_like(ends if np.ndim(given) else ends[..., 0], embeddings)

    def bandwidths(self, embeddings: ArrayLike) -> Any:
        """The bandwidth h of each row's kernel, (n,)."""
        self._calibration()
        found = self._bandwidths(_coordinates(self._settings, embeddings))
        if found is None:
            found = torch.full((len(embeddings),), float(self._settings.bandwidth), dtype=torch.float64)
        return like(found, embeddings)

    def bandwidths_at(self, points: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
        """Adaptive bandwidths at these coordinates of the calibration; 1 for a common bandwidth, which the
        coordinates already include."""
        found = self._bandwidths(points)
        return points.new_ones(len(points)) if found is None else found

    def distribution(
        self, embeddings: ArrayLike, *, groups: Labels = None, weights: Labels = None
    ) -> LocalDistribution:
        """The local distribution of the scores at each row: quantiles, distribution function and masses.

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

        `values` holds one number per calibration row, in the rows' original order; the mean of their targets is
        the kernel regression. The radii are those of ``guarantee="local"``, all from one pass.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> kernel = lvd.MahalanobisKernel.from_components([[1.0]], mean=[0.0], scale=[1.0])
        >>> conformal = lvd.LocalConformal(kernel).conformalize([[0.0]] * 50 + [[9.0]] * 50, np.arange(100.0))
        >>> conformal.summary([[0.0]], 0.5, values=np.repeat([2.0, 5.0], 50))
        LocalSummary(radius=array([25.]), n_effective=array([50.]), exact=array([ True]), mean=array([2.]))
        """
        given = self._given(confidence_level)
        levels, known = check_levels(given), self._calibration()
        rows = self._queries(embeddings, groups, weights)
        averaged = None if values is None else known.scores.new_tensor(check_vector(values, "values"))
        if averaged is not None:
            check_same_length(calibration=known.scores, values=averaged)

        def ask(_: Group, some: SortedRows, indices: Indices) -> tuple[Tensor, ...]:
            chosen = None if averaged is None else averaged[some.order]
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
        column: int = 0,
        two_sided: bool = False,
    ) -> list[Evidence]:
        """For each row, the calibration rows with the most weight, and one sentence on its radius.

        `targets`, the calibration rows' y in their original order, are shown with the neighbours. `two_sided`
        explains the :meth:`interval` of signed scores. `column` selects the score column.
        """
        given = self._given(confidence_level)
        level = float(check_levels(given)[0])
        check_positive(n_neighbors, "n_neighbors", integer=True)
        rows = self._queries(embeddings, groups, weights)
        targets = None if targets is None else check_vector(targets, "targets")
        queries, known = rows.queries, self._calibration()
        labels = [ALL] * len(queries) if rows.groups is None else rows.groups.tolist()
        explain = partial(explain_radius, targets=targets, two_sided=two_sided)
        return [
            explain(queries[i : i + 1], known.of_group(group, column), level, n_neighbors, group=group)
            for i, group in enumerate(labels)
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save to a folder that :func:`lvd.load` reads, replacing a model saved there; nothing is pickled."""
        save_object(self, folder)

    def _check_parameters(self) -> None:
        check_bandwidth(self.bandwidth)
        check_positive(self.mass, "mass")
        check_levels(self.confidence_level)
        if not isinstance(self.exact, bool):
            raise InputError(f"exact must be True or False, got {self.exact!r}")
        if self.bandwidth == "adaptive" and not self.kernel.knows_training_rows:
            raise InputError(
                'bandwidth="adaptive" needs a kernel that knows its training rows; give a number instead, or pass '
                "embeddings= and y= to from_components"
            )

    def _frozen(self) -> Settings:
        """A snapshot of the parameters."""
        levels = copy.copy(self.confidence_level)
        return Settings(self.kernel.frozen(), self.bandwidth, self.mass, levels, self.prior, self.exact)

    def _given(self, confidence_level: Levels | None) -> Levels:
        self._calibration()
        return self._settings.confidence_level if confidence_level is None else confidence_level

    def _take(self, rows: Rows, scores: Float[Tensor, "m c"]) -> LocalConformal:
        self.calibration_ = Calibration.of(rows, scores, exact=self._settings.exact)
        self._made: dict[Any, Any] = {}
        return self

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
        rows = Rows.of(_coordinates(self._settings, embeddings), groups, weights, row_keys)
        check_width(rows.points, known)
        bandwidths = self._bandwidths(rows.points)
        if bandwidths is not None:
            rows = replace(rows, bandwidths=bandwidths)
        if guarantee != "local":
            return rows
        return check_largest(rows, self.max_weight_).at_their_largest(known, self.max_weight_)

    def _asks_few(self, embeddings: ArrayLike) -> bool:
        """Whether the CPU would answer faster than a GPU call takes."""
        known = self._calibration()
        if known.scores.device.type == "cpu":
            return False
        return len(embeddings) * len(known.scores) <= FEW_WEIGHTS

    def _on_host(self) -> LocalConformal:
        """The same calibration set in host memory, created once."""
        if "on host" not in self._made:
            twin, known = copy.copy(self), self._calibration()
            kernel = self._settings.kernel.frozen()
            kernel.device = "cpu"
            twin._settings = self._settings._replace(kernel=kernel)
            weights = None if known.rows.weights is None else known.rows.weights.cpu()
            rows = replace(known.rows, points=known.rows.points.cpu(), weights=weights)
            self._made["on host"] = twin._take(rows, known.scores.cpu())
        return self._made["on host"]

    def placed(
        self, embeddings: ArrayLike, n_expected: Sequence[float], level: float
    ) -> tuple[Float[Tensor, "n k"], list[Float[Tensor, "n"]]]:
        """The rows' coordinates, and for each expected number of calibration rows the bandwidths that give
        finite radii at this level; for calibration rows that come and go."""
        self._calibration()
        points = _coordinates(self._settings, embeddings)
        found = [self._bandwidths(points, max(1.0, number), level) for number in n_expected]
        return points, [torch.ones(len(points)) if one is None else one for one in found]

    def _bandwidths(
        self, points: Float[Tensor, "n k"], n_expected: float | None = None, level: float | None = None
    ) -> Float[Tensor, "n"] | None:
        """The bandwidths of rows in scaled coordinates; None if all are equal."""
        settings = self._settings
        if settings.bandwidth != "adaptive":
            return None
        return adaptive_bandwidths(
            points,
            self.training_sample(points.device),
            n_calib=self.rows_expected_ if n_expected is None else n_expected,
            level=float(check_levels(settings.confidence_level).max()) if level is None else level,
            mass=settings.mass,
        )

    def training_sample(self, device: Any = "cpu") -> TrainingSample:
        """The training rows that determine adaptive bandwidths."""
        if "sample" not in self._made:
            training = torch.tensor(self._settings.kernel.train_points_, device=device)
            self._made["sample"] = TrainingSample.of(training)
        return self._made["sample"]

    def _made_once(self, guarantee: str, group: Group, rows: SortedRows, column: int) -> Any:
        """What a guarantee precomputes for the calibration rows of each group and column."""
        if (guarantee, group, column) in self._made:
            return self._made[guarantee, group, column]
        if guarantee == "transductive":
            prior = self._settings.prior
            if prior is None or self._calibration().rows.weights is not None:
                raise InputError(
                    'guarantee="transductive" needs prior=, the scores to expect before any calibration '
                    "row is seen, and calibration rows without weights="
                )
            made: Any = sum_others(rows, prior)
        else:
            make = standing if guarantee == "calibrated" else sample_points
            made = make(rows, self._bandwidths(rows.points))
        self._made[guarantee, group, column] = made
        return made

    def _calibration(self) -> Calibration:
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                "LocalConformal has no calibration set yet: call conformalize(embeddings, scores)"
            )
        return self.calibration_


def _coordinates(settings: Settings, embeddings: ArrayLike) -> Float[Tensor, "n k"]:
    """Coordinates in which the kernel is ``exp(-||u - v||^2)``, before adaptive bandwidths."""
    points = torch.as_tensor(settings.kernel.coordinates(embeddings))
    if not isinstance(settings.kernel, MahalanobisKernel):
        if points.dtype != torch.float64 or points.ndim != 2:
            raise InputError(
                "kernel.coordinates must give float64 numbers, one row for each row, got "
                f"{points.dtype} {tuple(points.shape)}"
            )
        check_same_length(embeddings=embeddings, coordinates=points)
        points = placed_far_out(points.detach().contiguous())
    if settings.bandwidth in {"adaptive", 1.0}:
        return points
    # Coordinates in which the widened kernel is exp(-||u - v||^2).
    return placed_far_out(points / float(settings.bandwidth))


def _scored(  # noqa: PLR0917
    settings: Settings,
    max_weight: float | None,
    embeddings: ArrayLike,
    scores: ArrayLike,
    groups: Labels,
    weights: Labels,
) -> tuple[Rows, Float[Tensor, "m c"]]:
    checked = check_score_columns(scores)
    rows = check_largest(Rows.of(_coordinates(settings, embeddings), groups, weights), max_weight)
    check_same_length(embeddings=rows.points, scores=checked)
    return rows, rows.points.new_tensor(checked)


def check_bandwidth(bandwidth: Any) -> None:
    """Raise unless the bandwidth is a positive number or ``"adaptive"``."""
    if bandwidth == "adaptive":
        return
    if isinstance(bandwidth, str):
        raise InputError(f'bandwidth must be a positive number or "adaptive", got {bandwidth!r}')
    check_positive(bandwidth, "bandwidth")
    if not math.isfinite(bandwidth):
        raise InputError(
            Parameter("bandwidth"),
            f" must be finite, got {bandwidth}; to give all rows the same weight, use split conformal",
        )


register(MahalanobisKernel, complete=MahalanobisKernel._check_learned)
register(GlobalConformal)
register(LocalConformal, root=True, take_apart=take_apart, complete=put_together)
