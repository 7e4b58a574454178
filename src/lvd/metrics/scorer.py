"""The interval score for scikit-learn's searches: larger is better, and infinite intervals count as a finite
number."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from lvd._typing import ArrayLike
from lvd._validation import InputError, check_levels, check_targets, to_numpy
from lvd.metrics.interval_metrics import widened_range, winkler_score


class IntervalScorer:
    """The negative mean interval score (:func:`winkler_score`), for `scoring=` of ``cross_validate``,
    ``GridSearchCV`` and the like.

    Intervals are clipped to the range of the scored y, a tenth wider on each side, so an infinite interval counts
    as that range and no mean is infinite. For several targets it is their mean, each in units of its range.

    Parameters
    ----------
    confidence_level : of the intervals; by default the estimator's own, the first if it has several.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> from sklearn.model_selection import cross_val_score
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    >>> reg = lvd.SplitConformalRegressor("trees", random_state=0)
    >>> bool((cross_val_score(reg, X, X[:, 0], scoring=lvd.metrics.IntervalScorer(), cv=2) < 0).all())
    True
    """

    def __init__(self, confidence_level: float | None = None) -> None:
        self.confidence_level = confidence_level
        self._request = MetadataRequest(owner=self)

    def __call__(self, estimator: Any, X: ArrayLike, y: ArrayLike, **labels: ArrayLike) -> float:
        """The score on these rows of a fitted method, or of a Pipeline that ends in one.

        `labels` are the rows' `groups` and `weights`, if requested.
        """
        rows: Any = X
        if hasattr(estimator, "steps"):
            rows, estimator = estimator[:-1].transform(X) if len(estimator) > 1 else X, estimator[-1]
        if not hasattr(estimator, "predict_interval"):
            raise InputError(
                f"IntervalScorer scores the intervals of lvd's methods; {type(estimator).__name__} has none"
            )
        given = estimator.confidence_level if self.confidence_level is None else self.confidence_level
        level = float(check_levels(given)[0])
        targets = check_targets(y)
        intervals = to_numpy(estimator.predict_interval(rows, level, **labels)[1])[:, :, 0]
        columns = intervals.reshape(len(targets), 2, -1)
        scores = []
        for column, ends in zip(targets.T, np.moveaxis(columns, 2, 0), strict=True):
            bounds = widened_range(column)
            score = winkler_score(column, ends, level, y_range=bounds)
            scores.append(score if len(columns[0, 0]) == 1 else score / ((bounds[1] - bounds[0]) or 1.0))
        return -float(np.mean(scores))

    def set_score_request(self, **requests: Any) -> IntervalScorer:
        """Ask for ``groups=True`` or ``weights=True``, which then reach `predict_interval` by metadata routing."""
        for name, alias in requests.items():
            if name not in {"groups", "weights"}:
                raise InputError(f"IntervalScorer takes groups= and weights= only, got {name}=")
            self._request.score.add_request(param=name, alias=alias)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """What was requested."""
        return self._request

    def __repr__(self) -> str:
        level = "" if self.confidence_level is None else f"confidence_level={self.confidence_level:g}"
        return f"IntervalScorer({level})"
