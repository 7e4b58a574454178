"""What every base model offers to the methods."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from lvd._typing import ArrayLike, Float, NDArray


class Evaluation(NamedTuple):
    """A model's answer for some rows: predictions, one column per target, and embeddings."""

    y_pred: Float[NDArray, "n t"]
    embeddings: Float[NDArray, "n h"]


@runtime_checkable
class Model(Protocol):
    """A base model. Its inputs are whatever it accepts: a matrix, images, strings."""

    def check(self, X: ArrayLike) -> Any:
        """`X` as this model's inputs, or an :class:`InputError`; supports ``len`` and row indexing."""
        ...

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> Any:
        """Train on checked inputs (a model given as fitted only learns what its embedding needs)."""
        ...

    def evaluate(self, X: Any) -> Evaluation:
        """Predict and embed checked inputs."""
        ...
