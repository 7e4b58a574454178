"""Which of many rows to claim something about, with a bound on the share of wrong claims."""

from __future__ import annotations

import numpy as np

from lvd._typing import ArrayLike, Bool, NDArray
from lvd._validation import InputError, check_fraction, check_vector


def select(p_values: ArrayLike, false_discovery_rate: float = 0.1) -> Bool[NDArray, "n"]:
    """The rows whose claims are made, by the procedure of Benjamini and Hochberg.

    With marginal conformal p-values, of :meth:`LVDRegressor.exceeds` with ``guarantee="marginal"``, the expected
    share of wrong claims among those made is at most `false_discovery_rate` (Jin and Candès 2023). Local p-values
    have no such proof.

    Examples
    --------
    >>> import lvd
    >>> lvd.select([0.001, 0.02, 0.2, 0.9], 0.1).tolist()
    [True, True, False, False]
    """
    given = check_vector(p_values, "p_values")
    check_fraction(false_discovery_rate, "false_discovery_rate")
    if not ((given >= 0.0) & (given <= 1.0)).all():
        raise InputError(f"p_values must lie in [0, 1], got {given.min():g} to {given.max():g}")
    ordered = np.sort(given)
    passed = np.flatnonzero(ordered <= false_discovery_rate * np.arange(1, len(given) + 1) / len(given))
    return given <= ordered[passed[-1]] if len(passed) else np.zeros(len(given), bool)
