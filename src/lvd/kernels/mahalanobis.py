"""The learned Gaussian kernel on embeddings, ``K(a, b) = exp(-||A(z_a - z_b)||^2 / k)``.

Any other :class:`Kernel`, a class that learns coordinates in which similarity is Gaussian, can take its place.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lvd._parallel import chunk_slices, in_chunks
from lvd._typing import ArrayLike, Bool, Float, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_choice,
    check_matrix,
    check_positive,
    check_same_length,
    check_vector,
    is_tensor,
    keep,
    like,
    resolve_device,
    seed_from,
    to_numpy,
)
from lvd.engine.quantiles import WeightedRows, squared_distances
from lvd.kernels.training import (
    SMALLEST_DENOMINATOR,
    LeaveOneOut,
    SampledLeaveOneOut,
    descend,
    draw_batches,
    draw_samples,
    initial_components,
    keep_average,
    keep_best,
)
from lvd.models.scaling import constant_columns, mean_and_deviation

PIECE_ROWS = 2**16
"""Embeddings are copied this many rows at a time."""
MULTIPLIED = 8
"""This many multiplications take as long as one pair of a query and a row."""
FAR_OUT = 1e155
"""The coordinates of rows whose projection overflows: their squares are infinite, so such rows are similar to no
others."""
Embeddings: TypeAlias = Float[NDArray, "_ _"] | Float[Tensor, "_ _"]
"""Embeddings as the kernel takes them: a numpy array on the CPU, a float64 tensor on another device."""


_PLACED: WeakKeyDictionary[Any, tuple[NDArray, Any, Any]] = WeakKeyDictionary()


class Kernel(BaseEstimator, ABC):
    """``K(a, b) = exp(-||u(a) - u(b)||^2)``, with coordinates u learned from the training rows.

    The constructor stores settings and `fit` learns, as in scikit-learn. :func:`lvd.testing.check_kernel` tests a
    kernel of your own.

    Attributes
    ----------
    train_points_ : the coordinates (r, k) of the training rows, or of a sample of them, from which adaptive
        bandwidths and the kernel scale of the errors are learned.
    """

    train_points_: Float[NDArray, "r k"]
    device: str = "cpu"
    """The device that computes coordinates."""
    average: bool = False
    """Whether it averages several learned kernels; then fewer rows are near each other."""

    @property
    def is_fitted(self) -> bool:
        """Whether anything has been learned."""
        return any(name.endswith("_") for name in vars(self))

    @property
    def knows_training_rows(self) -> bool:
        """Whether it stores the coordinates of training rows."""
        return "train_points_" in vars(self)

    @abstractmethod
    def fit(self, embeddings: ArrayLike, y: ArrayLike) -> Any:
        """Learn which rows are similar: those with similar `y`, which may be error sizes."""

    @abstractmethod
    def coordinates(self, embeddings: ArrayLike) -> Any:
        """The rows' coordinates (n, k), float64; a row's coordinates must not depend on the other rows."""

    def frozen(self) -> Any:
        """A snapshot of the kernel, unaffected by later changes: what a calibration keeps."""
        return copy.deepcopy(self)


class MahalanobisKernel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Kernel):
    """Gaussian kernel whose low-rank metric is learned by leave-one-out Nadaraya-Watson regression.

    Embeddings are standardised per dimension (constant dimensions are dropped, see `min_scale`) and projected by
    `components_`, the paper's A. Similar rows are rows with similar targets.

    Parameters
    ----------
    n_components : rank of the metric, the paper's k.
    smoothness : keep each row's own weight, with the mean of the other targets as its value. Without it the
        prediction of a row far from all others would be undefined.
    distance : ``"mean"`` divides the squared distance by `n_components` (as in the paper's experiments),
        ``"sum"`` does not (as in its formula).
    max_neighbors : how many rows of largest weight enter a leave-one-out prediction (the paper: 3000); None, the
        default, uses all: selecting them costs more than it saves.
    max_rows : with more training rows than this, each batch is predicted from a fresh random sample of this many
        (the paper's B_2; the batch is part of it). The metric is then tuned for a training set of `max_rows`
        rows: the sampled loss is an unbiased estimate of that set's leave-one-out error. As an estimate for the
        whole set it is biased upwards by the variance of a mean over fewer neighbours, which favours a wider
        kernel and shrinks like ``1 / max_rows``. None always uses all rows.
    learning_rate, batch_size, max_iter, patience : Adam on batches drawn without replacement; stops after
        `patience` + 1 batches in a row without a lower loss, and keeps the components after the batch of lowest
        loss.
    average : take all `max_iter` steps and keep the mean of the components over the second half. Which batch has
        the lowest loss is mostly luck, and can end training when it has hardly begun.
    min_scale : dimensions with a standard deviation of at most this are dropped (the paper: 0.001). None, the
        default, drops those whose values differ by no more than a few roundings of their size.
    device : ``"auto"``, ``"cpu"``, ``"cuda"``...
    random_state : seeds initial weights and batches.

    Attributes
    ----------
    components_ : (k, h_kept) array; ``mean_``, ``scale_`` : (h,); ``kept_`` : (h,) mask; ``loss_curve_`` :
        mean squared leave-one-out error of each batch; ``n_iter_`` : number of batches.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> embeddings = rng.normal(size=(200, 5))
    >>> kernel = lvd.MahalanobisKernel(n_components=2, max_iter=50, random_state=0)
    >>> kernel.fit(embeddings, embeddings[:, 0]).transform(embeddings).shape
    (200, 2)
    >>> bool(kernel(embeddings[:1], embeddings[:1])[0, 0] == 1.0)
    True
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        smoothness: bool = True,
        distance: str = "mean",
        max_neighbors: int | None = None,
        max_rows: int | None = 100_000,
        learning_rate: float = 1e-2,
        batch_size: int = 100,
        max_iter: int = 1000,
        patience: int = 50,
        average: bool = False,
        min_scale: float | None = None,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        keep(self, locals())

    def fit(self, embeddings: ArrayLike, y: ArrayLike) -> MahalanobisKernel:
        """Learn the metric from the training rows' embeddings and targets."""
        self._check_parameters()
        device, eps = resolve_device(self.device), precision_of(embeddings)
        embeddings, y = check_rows(embeddings, "embeddings", device), check_vector(y)
        check_same_length(embeddings=embeddings, y=y)
        if len(y) < 2:
            raise InputError(
                f"the kernel needs at least 2 training rows, got {len(y)} sample(s); give more rows"
            )
        self.mean_, self.scale_, constant = column_moments(embeddings, eps)
        self.kept_ = ~constant if self.min_scale is None else self.scale_ > self.min_scale
        if not self.kept_.any():
            raise InputError(
                f"all {len(self.kept_)} embedding dimensions are constant (min_scale={self.min_scale}): the model "
                "maps every training row to the same point; train it longer, or choose another layer"
                + (", or leave min_scale out" if self.min_scale is not None else "")
            )
        seed = seed_from(self.random_state)
        start = initial_components(self.n_components, int(self.kept_.sum()), seed).to(device)
        unit = _target_unit(y)
        problem, batches = self._problem(embeddings, y / unit, device, seed)
        steps = descend(problem, start, islice(batches, self.max_iter), self.learning_rate)
        kept = keep_average(steps, self.max_iter) if self.average else keep_best(steps, self.patience)
        components, losses = kept
        self.components_ = components.cpu().numpy().astype(np.float64)
        if not np.isfinite(self.components_).all():
            raise InputError(
                f"the kernel's training diverged with learning_rate={self.learning_rate:g}; choose a smaller one"
            )
        self.loss_curve_, self.n_iter_ = [loss * unit * unit for loss in losses], len(losses)
        return self._remember(embeddings, y)

    @classmethod
    def from_components(
        cls,
        components: ArrayLike,
        *,
        mean: ArrayLike,
        scale: ArrayLike,
        kept: ArrayLike | None = None,
        distance: str = "mean",
        smoothness: bool = True,
        embeddings: ArrayLike | None = None,
        y: ArrayLike | None = None,
        device: str = "auto",
    ) -> MahalanobisKernel:
        """A kernel trained elsewhere; given its training `embeddings` and `y`, it can also `predict`."""
        components = check_matrix(components, "components")
        kernel = cls(len(components), distance=distance, smoothness=smoothness, device=device)
        kernel.components_ = np.array(components)
        kernel.mean_, kernel.scale_ = (
            np.array(check_vector(given, name)) for given, name in ((mean, "mean"), (scale, "scale"))
        )
        kernel.kept_ = np.ones(len(kernel.mean_), bool) if kept is None else np.array(kept, dtype=bool)
        kernel._check_parameters()
        kernel._check_learned()
        kernel.loss_curve_, kernel.n_iter_ = [], 0
        if embeddings is None or y is None:
            return kernel._lock()
        embeddings = check_rows(embeddings, "embeddings", resolve_device(device), len(kernel.mean_))
        y = check_vector(y)
        check_same_length(embeddings=embeddings, y=y)
        return kernel._remember(embeddings, y)

    @property
    def _n_features_out(self) -> int:
        """The number of columns of :meth:`transform`, from which scikit-learn makes their names."""
        return len(self.components_)

    def transform(self, embeddings: ArrayLike) -> Any:
        """Projected points ``A z``, (n, k); after ``set_output(transform="pandas")`` as a frame."""
        return like(self._project(embeddings, "embeddings"), embeddings)

    def __call__(self, a: ArrayLike, b: ArrayLike) -> Any:
        """Similarities of all rows of `a` to all rows of `b`, (n, m)."""
        left, right = self.coordinates(a, "a"), self.coordinates(b, "b")
        return like(squared_distances(left, right).neg_().exp_(), a)

    def predict(self, embeddings: ArrayLike) -> Any:
        """Kernel regression over all training rows; `smoothness` adds weight 1 on the mean target."""
        check_is_fitted(self, "components_")
        if not self.knows_training_rows:
            raise InputError(
                "this kernel does not know its training rows: pass embeddings= and y= to from_components"
            )
        queries = self.coordinates(embeddings)
        y = torch.tensor(self.train_y_, device=queries.device)
        mean = y.mean()
        points = torch.tensor(self.train_points_, device=queries.device)
        sums = WeightedRows(points, torch.stack([y - mean, torch.ones_like(y)], 1)).sums(queries)
        total = sums[:, 1] + self.smoothness
        predicted = (sums[:, 0] + total * mean) / total.clamp(min=SMALLEST_DENOMINATOR)
        return like(predicted, embeddings)

    def coordinates(self, embeddings: ArrayLike, name: str = "embeddings") -> Float[Tensor, "n k"]:
        """Coordinates in which the kernel is ``exp(-||u - v||^2)``, float64 on the kernel's device."""
        points = self._project(embeddings, name)
        scale = self._squared_distance_scale(len(self.components_))
        if scale != 1.0:
            points *= scale**-0.5
        return placed_far_out(torch.from_numpy(points) if isinstance(points, np.ndarray) else points)

    def frozen(self) -> MahalanobisKernel:
        """A snapshot of the kernel; both share arrays, which are read-only."""
        return copy.copy(self._lock())

    def _lock(self) -> MahalanobisKernel:
        """Make all arrays read-only; an array that others could modify is copied."""
        for name, array in list(vars(self).items()):
            if isinstance(array, np.ndarray) and (array.flags.writeable or array.base is not None):
                locked = array.copy(order="K")
                locked.flags.writeable = False
                setattr(self, name, locked)
        return self

    def _check_parameters(self) -> None:
        for name in ("n_components", "batch_size", "max_iter", "patience"):
            check_positive(getattr(self, name), name, integer=True)
        check_positive(self.learning_rate, "learning_rate")
        for name in ("max_neighbors", "max_rows"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), name, integer=True)
        if self.min_scale is not None and not self.min_scale >= 0.0:
            raise InputError(f"min_scale must be None or a number of at least 0, got {self.min_scale!r}")
        if self.max_rows == 1:
            raise InputError(
                "max_rows must be at least 2, got 1: a row is predicted from the others in its sample"
            )
        check_choice(self.distance, "distance", ("mean", "sum"))

    def _check_learned(self) -> None:
        """Refuse loaded or given attributes that are not a metric."""
        if not hasattr(self, "components_"):
            return
        check_same_length(mean=self.mean_, scale=self.scale_, kept=self.kept_)
        if self.kept_.dtype != bool or any(np.ndim(column) != 1 for column in (self.mean_, self.kept_)):
            raise InputError("kept must be true or false for each dimension, and mean one number for each")
        if not (self.scale_[self.kept_] > 0).all():
            raise InputError("scale must be positive in every kept dimension; leave the others out of kept")
        if np.ndim(self.components_) != 2 or self.components_.shape[1] != self.kept_.sum():
            raise InputError(
                f"components has {np.shape(self.components_)[-1]} columns, but kept names {self.kept_.sum()} "
                "dimensions; give one column per kept dimension"
            )
        if not all(np.isfinite(array).all() for array in (self.components_, self.mean_, self.scale_)):
            raise InputError("components, mean and scale must be finite; fit the kernel again")
        if self.knows_training_rows:
            check_same_length(train_points=self.train_points_, train_y=self.train_y_)
            if np.shape(self.train_points_) != (len(self.train_points_), len(self.components_)):
                raise InputError("the training rows do not have the kernel's coordinates; fit it again")
        self._lock()

    def _squared_distance_scale(self, n_components: int) -> float:
        return float(n_components) if self.distance == "mean" else 1.0

    def _problem(
        self, embeddings: Embeddings, y: Float[NDArray, "n"], device: torch.device, seed: int
    ) -> tuple[LeaveOneOut | SampledLeaveOneOut, Iterator[NDArray]]:
        """The loss to minimise, and the rows that each step draws."""
        # With smoothness a shift of y changes nothing, and float32 keeps more digits of centred targets.
        targets = torch.as_tensor(y - self.smoothness * y.mean(), dtype=torch.float32, device=device)
        scale = self._squared_distance_scale(self.n_components)
        smoothness, max_neighbors = self.smoothness, self.max_neighbors

        def among(rows: Embeddings, y: Float[Tensor, "n"]) -> LeaveOneOut:
            standardised = torch.as_tensor(self._standardise(rows), dtype=torch.float32, device=device)
            return LeaveOneOut(standardised, y, scale, smoothness, max_neighbors)

        if self.max_rows is None or len(y) <= self.max_rows:
            return among(embeddings, targets), draw_batches(len(y), self.batch_size, seed)
        sampled = SampledLeaveOneOut(
            lambda sample: among(embeddings[sample.cpu().numpy()], targets[sample]), self.batch_size
        )
        return sampled, draw_samples(len(y), self.max_rows, seed)

    def _standardise(self, embeddings: Embeddings) -> Embeddings:
        kept, mean, scale = embeddings, self.mean_, self.scale_
        if not self.kept_.all():
            chosen = self.kept_ if isinstance(kept, np.ndarray) else torch.as_tensor(self.kept_)
            kept, mean, scale = kept[:, chosen], mean[self.kept_], scale[self.kept_]
        if not isinstance(kept, np.ndarray):
            mean, scale = kept.new_tensor(np.stack([mean, scale]))
        standardised = kept - mean
        standardised /= scale
        return standardised

    def _project(self, embeddings: ArrayLike, name: str) -> Embeddings:
        if not hasattr(self, "components_"):  # check_is_fitted is slow
            check_is_fitted(self, "components_")
        device = resolve_device(self.device)
        rows = check_rows(embeddings, name, device, len(self.mean_), projected=True)
        mean, factors = self._placed(rows)
        if not isinstance(rows, np.ndarray):
            pieces = [(rows[piece] - mean) @ factors.T for piece in chunk_slices(len(rows), PIECE_ROWS)]
            return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        from lvd.engine.compiled import project

        points = np.empty((len(rows), len(self.components_)))

        def work(some: slice) -> None:
            for start in range(some.start, some.stop, PIECE_ROWS):
                piece = slice(start, min(start + PIECE_ROWS, some.stop))
                # It is compiled for writable arrays: others are copied.
                given = rows[piece] if rows.flags.writeable else rows[piece].copy()
                project(given, mean, factors, points[piece])

        in_chunks(work, len(rows), factors.size // MULTIPLIED)
        if not np.isfinite(points).all():
            check_matrix(embeddings, name)  # says what is wrong
        return points

    def _placed(self, rows: Embeddings) -> tuple[Any, Any]:
        """The columns' means, and the factors of deviations from them: 0 for unused columns.

        They are copied to the device once, as that takes longer than projecting a thousand rows.
        """
        device = "numpy" if isinstance(rows, np.ndarray) else rows.device
        found = _PLACED.get(self)
        if found is None or found[0] is not self.components_ or found[1] != device:
            factors = np.zeros((len(self.components_), len(self.mean_)))
            factors[:, self.kept_] = self.components_ / self.scale_[self.kept_]
            placed: tuple[Any, Any] = (self.mean_.astype(np.float64), factors)
            if device != "numpy":
                placed = (torch.tensor(self.mean_, device=device), torch.as_tensor(factors, device=device))
            found = _PLACED[self] = self.components_, device, placed
        return found[2]

    def _remember(self, embeddings: Embeddings, y: Float[NDArray, "n"]) -> MahalanobisKernel:
        """Keep the training rows, projected, for `predict`."""
        points = to_numpy(self._project(embeddings, "embeddings"))
        self.train_points_ = points * self._squared_distance_scale(len(self.components_)) ** -0.5
        self.train_y_ = y
        return self._lock()


def placed_far_out(points: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The coordinates, with those that overflowed set to `FAR_OUT`."""
    finite = torch.isfinite(points)
    return points if bool(finite.all()) else points.where(finite.all(1, keepdim=True), FAR_OUT)


def _target_unit(y: Float[NDArray, "n"]) -> float:
    """What targets are divided by in training: float32 squares and Adam's 1e-8 need them near 1.

    Between 1e-4 and 1e4 they are used as they are, as in the paper's experiments.
    """
    scale = float(mean_and_deviation(y[:, None])[1][0])
    return 1.0 if scale == 0.0 or 1e-4 <= scale <= 1e4 else float(np.ldexp(1.0, np.frexp(scale)[1]))


def check_rows(
    embeddings: ArrayLike,
    name: str,
    device: torch.device,
    n_columns: int | None = None,
    *,
    projected: bool = False,
) -> Embeddings:
    """`embeddings` as a finite, non-empty float64 matrix; a tensor on the device stays there.

    Rows to be projected may stay float32 on a device, where the first operation is in float64; on the CPU the
    projections, which are fewer, show whether the rows are finite.
    """
    if device.type == "cpu":
        return check_matrix(embeddings, name, n_columns, finite=not projected)
    if not is_tensor(embeddings) or embeddings.device.type == "cpu":
        return torch.as_tensor(check_matrix(embeddings, name, n_columns), device=device)
    rows = embeddings.detach().to(device)
    if not (projected and rows.dtype == torch.float32):
        rows = rows.double()
    fine = rows.ndim == 2 and rows.numel() > 0 and n_columns in (None, rows.shape[1])
    # The sum is finite only if all numbers are; if it overflows, they are checked one by one.
    if not (fine and math.isfinite(float(rows.sum()))):
        check_matrix(embeddings, name, n_columns)  # says what is wrong
    return rows


def place(embeddings: Float[NDArray, "n h"], device: str) -> Embeddings:
    """The rows as float64 on the kernels' device, copied there once for all of them."""
    resolved = resolve_device(device)
    if resolved.type == "cpu":
        return np.asarray(embeddings, dtype=np.float64)
    return torch.as_tensor(embeddings, device=resolved).double()


def column_moments(
    rows: Embeddings, eps: float
) -> tuple[Float[NDArray, "h"], Float[NDArray, "h"], Bool[NDArray, "h"]]:
    """Mean and standard deviation of each column, and which are constant up to roundings of size `eps`."""
    if not isinstance(rows, Tensor):
        return *mean_and_deviation(rows), constant_columns(rows, eps)
    ends = torch.stack([rows.amin(0), rows.amax(0)]).cpu().numpy()
    # Beyond these exponents the powers themselves would overflow.
    unit = rows.new_tensor(np.exp2(np.frexp(np.abs(ends).max(0))[1].clip(-1000.0, 1000.0)))
    near_one = rows / unit
    mean, scale = near_one.mean(0) * unit, near_one.std(0, correction=0) * unit
    return mean.cpu().numpy(), scale.cpu().numpy(), constant_columns(ends, eps)


def precision_of(embeddings: ArrayLike) -> float:
    """The unit roundoff of the numbers as given; that of float64 for all but shorter floats."""
    name = str(getattr(embeddings, "dtype", "")).removeprefix("torch.")
    return {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(name, 2.0**-52)
