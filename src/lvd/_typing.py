"""Array shapes for signatures.

``Float[Tensor, "n k"]`` reads as documentation. Where jaxtyping is installed (the test extra) the shapes are
checked at run time; without it the annotation means just ``Tensor``, so jaxtyping is not a dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Int

    NDArray: TypeAlias = np.ndarray[Any, Any]
else:
    NDArray = np.ndarray
    try:
        from jaxtyping import Bool, Float, Int
    except ModuleNotFoundError:

        class _Shaped:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = _Shaped

ArrayLike: TypeAlias = Any
"""numpy array, pandas frame or series, torch tensor, or nested lists of numbers."""
Labels: TypeAlias = Any
"""Groups, weights or keys, one for each row; None for none."""
Levels: TypeAlias = float | Sequence[float] | NDArray
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None

__all__ = ["ArrayLike", "Bool", "Float", "Int", "Labels", "Levels", "NDArray", "RandomState"]
