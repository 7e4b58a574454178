"""Local conformal radii: calibration scores weighted by their similarity to the query."""

from __future__ import annotations

import os
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from lvd._typing import ArrayLike, Float, Levels
from lvd._validation import check_levels, check_matrix, check_positive, check_same_length, check_vector, like
from lvd.conformal import engine
from lvd.conformal.explanation import Evidence, explain
from lvd.kernels import tiles


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

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def conformalize(self, embeddings: ArrayLike, scores: ArrayLike) -> LocalConformal:
        """Take a calibration set: embeddings of rows the model has not seen, and their scores."""
        embeddings, scores = check_matrix(embeddings, "embeddings"), check_vector(scores, "scores")
        check_same_length(embeddings=embeddings, scores=scores)
        points = self.kernel.scaled(embeddings)
        return self._take(points, torch.as_tensor(scores, device=points.device))

    def update(self, embeddings: ArrayLike, scores: ArrayLike) -> LocalConformal:
        """Add newly labelled rows to the calibration set: the radii are those of calibrating on all at once."""
        points, old_scores = self._in_order_of_arrival()
        embeddings, scores = check_matrix(embeddings, "embeddings"), check_vector(scores, "scores")
        check_same_length(embeddings=embeddings, scores=scores)
        return self._take(
            torch.cat([points, self.kernel.scaled(embeddings)]),
            torch.cat([old_scores, torch.as_tensor(scores, device=points.device)]),
        )

    def forget(self, n_newest: int) -> LocalConformal:
        """Keep only the `n_newest` rows that came last."""
        check_positive(n_newest, "n_newest", integer=True)
        points, scores = self._in_order_of_arrival()
        return self._take(points[-n_newest:], scores[-n_newest:])

    def radius(self, embeddings: ArrayLike, confidence_level: Levels = 0.9) -> Any:
        """Half width at each row, (n,); for a list of levels (n, L). +inf where too little is known."""
        levels = check_levels(confidence_level)
        calibration, queries = self._calibration(), self.kernel.scaled(embeddings)
        ones = queries.new_ones(len(queries))
        radius = engine.radius(queries, calibration, levels, ones).cpu().numpy()
        return like(radius if np.ndim(confidence_level) else radius[:, 0], embeddings)

    def effective_sample_size(self, embeddings: ArrayLike) -> Any:
        """How many equally weighted calibration rows the local weights are worth, (n,)."""
        calibration, queries = self._calibration(), self.kernel.scaled(embeddings)
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
        return [
            explain(query, calibration, level, n_neighbors, known) for query in self.kernel.scaled(embeddings)
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write to a folder that :func:`lvd.load` reads; nothing is pickled, a saved model there is replaced."""
        from lvd.conformal.saving import save

        save(self, folder)

    def _take(self, points: Float[Tensor, "m k"], scores: Float[Tensor, "m"]) -> LocalConformal:
        self.calibration_ = engine.sort_calibration(points, scores)
        return self

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
