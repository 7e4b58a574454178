"""Local conformal radii: calibration scores weighted by their similarity to the query."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import check_levels, check_matrix, check_same_length, check_vector, like
from lvd.conformal import engine
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
        self.calibration_ = engine.sort_calibration(points, torch.as_tensor(scores, device=points.device))
        return self

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

    @property
    def scores_(self) -> Float[NDArray, "m"]:
        """The calibration scores, ascending."""
        return np.asarray(self._calibration().scores.cpu().numpy())

    def _calibration(self) -> engine.SortedCalibration:
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                "LocalConformal has no calibration set yet: call conformalize(embeddings, scores)"
            )
        return self.calibration_
