"""Local conformal radii: calibration scores weighted by their similarity to the query."""

from __future__ import annotations

import os
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from lvd._typing import ArrayLike, Float, Levels, RandomState
from lvd._validation import (
    InputError,
    check_choice,
    check_levels,
    check_matrix,
    check_positive,
    check_same_length,
    check_vector,
    like,
    seed_from,
)
from lvd.conformal import calibrated, engine
from lvd.conformal.bandwidth import choose_bandwidth
from lvd.conformal.explanation import Evidence, explain
from lvd.conformal.randomized import draw_centres
from lvd.kernels import tiles

GUARANTEES = ("local", "randomized", "calibrated")


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

    Parameters
    ----------
    kernel : a fitted :class:`MahalanobisKernel`.
    bandwidth : widens the kernel to ``exp(-||A(z_a - z_b)||^2 / (k h^2))``: fewer infinite radii, less local ones.
        A number, or ``"auto"``: the smallest h >= 1 with which at most `max_infinite` of the training rows would
        be infinite at `confidence_level`, found without the calibration rows.
    max_infinite, confidence_level : of ``bandwidth="auto"``.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> train, calib = rng.normal(size=(200, 3)), rng.normal(size=(500, 3))
    >>> kernel = lvd.MahalanobisKernel(n_components=2, max_iter=50, random_state=0).fit(train, train[:, 0])
    >>> conformal = lvd.LocalConformal(kernel).conformalize(calib, np.abs(rng.normal(size=500)))
    >>> conformal.radius(calib[:4], confidence_level=[0.5, 0.9]).shape
    (4, 2)
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        bandwidth: float | str = 1.0,
        max_infinite: float = 0.1,
        confidence_level: float = 0.9,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.max_infinite = max_infinite
        self.confidence_level = confidence_level

    def conformalize(self, embeddings: ArrayLike, scores: ArrayLike) -> LocalConformal:
        """Take a calibration set: embeddings of rows the model has not seen, and their scores."""
        embeddings, scores = check_matrix(embeddings, "embeddings"), check_vector(scores, "scores")
        check_same_length(embeddings=embeddings, scores=scores)
        self.bandwidth_ = self._choose_bandwidth(len(scores))
        points = self._locate(embeddings)
        return self._take(points, torch.as_tensor(scores, device=points.device))

    def update(self, embeddings: ArrayLike, scores: ArrayLike) -> LocalConformal:
        """Add newly labelled rows to the calibration set: the radii are those of calibrating on all at once."""
        points, old_scores = self._in_order_of_arrival()
        embeddings, scores = check_matrix(embeddings, "embeddings"), check_vector(scores, "scores")
        check_same_length(embeddings=embeddings, scores=scores)
        return self._take(
            torch.cat([points, self._locate(embeddings)]),
            torch.cat([old_scores, torch.as_tensor(scores, device=points.device)]),
        )

    def forget(self, n_newest: int) -> LocalConformal:
        """Keep only the `n_newest` rows that came last."""
        check_positive(n_newest, "n_newest", integer=True)
        points, scores = self._in_order_of_arrival()
        return self._take(points[-n_newest:], scores[-n_newest:])

    def radius(
        self,
        embeddings: ArrayLike,
        confidence_level: Levels = 0.9,
        *,
        guarantee: str = "local",
        random_state: RandomState = 0,
    ) -> Any:
        """Half width at each row, (n,); for a list of levels (n, L). +inf where too little is known.

        `guarantee` chooses what the one calibration promises: ``"local"``, the paper's, says nothing about
        coverage on average; ``"randomized"`` (randomly localized) covers marginally and, robustly, locally, its
        draws fixed by the row and `random_state`; ``"calibrated"`` covers marginally without randomness, at
        O(m^2) once and O(m log m) a row.
        """
        check_choice(guarantee, "guarantee", GUARANTEES)
        levels = check_levels(confidence_level)
        calibration, queries = self._calibration(), self._locate(embeddings)
        if guarantee == "calibrated":
            radius = calibrated.radius(queries, calibration, self._standing(), levels)
        elif guarantee == "randomized":
            centres = draw_centres(queries, seed_from(random_state))
            own = (centres - queries).square().sum(1).neg().exp()
            radius = engine.radius(centres, calibration, levels, own)
        else:
            radius = engine.radius(queries, calibration, levels, queries.new_ones(len(queries)))
        result = radius.cpu().numpy()
        return like(result if np.ndim(confidence_level) else result[:, 0], embeddings)

    def effective_sample_size(self, embeddings: ArrayLike) -> Any:
        """How many equally weighted calibration rows the local weights are worth, (n,)."""
        calibration, queries = self._calibration(), self._locate(embeddings)
        return like(tiles.effective_sample_size(queries, calibration.points).cpu().numpy(), embeddings)

    def explain(
        self,
        embeddings: ArrayLike,
        confidence_level: float = 0.9,
        *,
        n_neighbors: int = 10,
        targets: ArrayLike | None = None,
    ) -> list[Evidence]:
        """For each row the calibration rows that carry the weight, and one sentence on its radius.

        `targets`, the calibration rows' y in the order they were given, are shown with the neighbours.
        """
        level = float(check_levels(confidence_level)[0])
        check_positive(n_neighbors, "n_neighbors", integer=True)
        calibration = self._calibration()
        known = None if targets is None else check_vector(targets, "targets")
        return [explain(query, calibration, level, n_neighbors, known) for query in self._locate(embeddings)]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write to a folder that :func:`lvd.load` reads; nothing is pickled, a saved model there is replaced."""
        from lvd.conformal.saving import save

        save(self, folder)

    def _take(self, points: Float[Tensor, "m k"], scores: Float[Tensor, "m"]) -> LocalConformal:
        self.calibration_ = engine.sort_calibration(points, scores)
        self.__dict__.pop("standing_", None)
        return self

    def _locate(self, embeddings: ArrayLike) -> Float[Tensor, "n k"]:
        """Coordinates in which the widened kernel is ``exp(-||u - v||^2)``."""
        return self.kernel.scaled(embeddings) / self.bandwidth_

    def _choose_bandwidth(self, n_calib: int) -> float:
        if self.bandwidth != "auto":
            check_positive(self.bandwidth, "bandwidth")
            return float(self.bandwidth)
        points = getattr(self.kernel, "train_points_", None)
        if points is None:
            raise InputError(
                'bandwidth="auto" needs a kernel that knows its training rows; give a number instead'
            )
        if not 0.0 < self.max_infinite < 1.0:
            raise InputError(f"max_infinite must lie in (0, 1), got {self.max_infinite!r}")
        level = float(check_levels(self.confidence_level)[0])
        return choose_bandwidth(
            torch.as_tensor(points), level=level, max_infinite=self.max_infinite, n_calib=n_calib
        )

    def _standing(self) -> calibrated.Standing:
        """What the calibrated guarantee computes once, when it is first asked for."""
        if not hasattr(self, "standing_"):
            self.standing_ = calibrated.standing(self._calibration())
        return self.standing_

    def _in_order_of_arrival(self) -> tuple[Float[Tensor, "m k"], Float[Tensor, "m"]]:
        calibration = self._calibration()
        arrival = torch.argsort(calibration.order)
        return calibration.points[arrival], calibration.scores[arrival]

    def _calibration(self) -> engine.SortedCalibration:
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                "LocalConformal has no calibration set yet: call conformalize(embeddings, scores)"
            )
        return self.calibration_
