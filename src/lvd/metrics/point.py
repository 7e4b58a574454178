"""How far the point predictions are off."""

from __future__ import annotations

import numpy as np

from lvd._typing import ArrayLike
from lvd._validation import check_same_length, check_vector


def mean_absolute_deviation(y: ArrayLike, y_pred: ArrayLike) -> float:
    """MAD: mean of |y - y_pred|.

    >>> mean_absolute_deviation([1, 2, 3], [1, 3, 5])
    1.0
    """
    targets, predictions = check_vector(y), check_vector(y_pred, "y_pred")
    check_same_length(y=targets, y_pred=predictions)
    return float(np.abs(targets - predictions).mean())
