"""Boosted trees as a built-in regressor."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lvd._parallel import few_threads
from lvd._typing import ArrayLike, Float, Labels, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_matrix,
    check_positive,
    check_same_length,
    check_targets,
    check_vector,
    present_rows,
    seed_from,
    to_numpy,
)
from lvd.models.coding import MOST_CODES, MOST_LEVELS, InputCoding, one_hot_blocks, undo_one_hot
from lvd.models.level_coding import LevelCodes, TargetCoding
from lvd.models.model import EvaluatingRegressor, Evaluation
from lvd.models.scaling import refuse_unknown
from lvd.models.trees import TreeEnsemble


@dataclass(eq=False, repr=False)
class TreesRegressor(EvaluatingRegressor, BaseEstimator):
    """Boosted trees, scikit-learn's HistGradientBoosting, stored as plain arrays that are safe to save.

    Categories are split by sets of levels. These are a frame's non-numeric columns, and adjacent one-hot
    columns, whose grouping is detected. A frame's column with more than 250 levels, the most the trees can
    split, is replaced by the mean target of each level, cross-fitted on the training rows (scikit-learn's
    ``TargetEncoder``). Missing numbers are NaN; each split learns which way to send them. The embedding is the
    inputs as numbers and the predictions, which work better for LVD than coordinates of the trees.

    Parameters
    ----------
    max_iter, learning_rate, max_leaf_nodes, min_samples_leaf : as in scikit-learn's HistGradientBoostingRegressor.
    random_state : only matters from 10,000 rows on, where a random tenth is held out for early stopping.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> trees = lvd.TreesRegressor(random_state=0).fit(X, X[:, 0])
    >>> trees.predict(X).shape, trees.embed(X).shape
    ((200,), (200, 4))
    """

    interpolates: ClassVar[bool] = True
    takes_missing_targets: ClassVar[bool] = True
    takes_levels: ClassVar[bool] = True
    """Whether a frame may hold categories."""
    takes_sample_weight: ClassVar[bool] = True
    embeds_predictions: ClassVar[bool] = True

    _: KW_ONLY
    max_iter: int = 100
    learning_rate: float = 0.1
    max_leaf_nodes: int = 31
    min_samples_leaf: int = 20
    random_state: RandomState = None

    def check(self, X: ArrayLike) -> Any:
        """Return a frame with categories, or else a matrix with the columns of `fit`; numbers may be missing."""
        n_columns = getattr(self, "n_features_in_", None)
        coding = getattr(self, "coding_", None) if n_columns is not None else None
        if not hasattr(X, "columns") or not (InputCoding.of(X) if coding is None else coding).categorical:
            return check_matrix(X, n_columns=n_columns, missing=True)
        if n_columns is not None and X.shape[1] != n_columns:
            raise InputError(f"X has {X.shape[1]} columns, but had {n_columns} in fit; give the same")
        return X

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: Labels = None) -> TreesRegressor:
        """Train one ensemble per target."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        self._check_parameters()
        self.__dict__.pop("n_features_in_", None)
        several = to_numpy(y).ndim > 1 and to_numpy(y).shape[1] > 1
        rows, targets = self.check(X), check_targets(y, missing=several)
        check_same_length(X=rows, y=targets)
        weight = None if sample_weight is None else check_vector(sample_weight, "sample_weight")
        settings = self.get_params() | {"random_state": seed_from(self.random_state)}
        self.n_features_in_, self._flat = rows.shape[1], to_numpy(y).ndim == 1
        self.coding_ = InputCoding.of(rows)
        numbers = self.coding_.with_gaps(rows)
        refuse_unknown(targets)
        self.codes_ = self.means_ = None
        if self.coding_.categorical:
            self.blocks_: list[tuple[int, int]] = []
            self.codes_ = LevelCodes.of(rows, self.coding_, most=MOST_CODES)
            many = LevelCodes.of(rows, self.coding_, fewest=MOST_LEVELS + 1)
            self.means_, means = TargetCoding.fit(many, rows, targets, settings["random_state"])
            coded = self._coded(rows, numbers, means)
            n_categories = len(self.codes_.columns)
        else:
            self.blocks_ = one_hot_blocks(numbers)
            coded = undo_one_hot(numbers, self.blocks_)
            n_categories = len(self.blocks_)
        if n_categories:
            settings["categorical_features"] = list(range(n_categories))
        with few_threads(coded):
            self.ensembles_: list[TreeEnsemble] = [
                TreeEnsemble.of(
                    HistGradientBoostingRegressor(**settings).fit(
                        coded[some], column[some], None if weight is None else weight[some]
                    )
                )
                for column, some in ((column, present_rows(column)) for column in targets.T)
            ]
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Predictions (n, t), and embeddings made of the inputs and the predictions."""
        check_is_fitted(self, "ensembles_")
        rows = self.check(X)
        numbers = self.coding_.with_gaps(rows)
        filled = self.coding_.filled(numbers)
        if self.means_ is None:
            coded, inputs = undo_one_hot(numbers, self.blocks_), self.coding_.filled_inputs(rows)
        else:
            means = self.means_(rows)
            coded, filled = self._coded(rows, numbers, means), np.column_stack([filled, means])
            inputs = filled
        y_pred = np.stack([trees.predict(coded) for trees in self.ensembles_], axis=1)
        return Evaluation(y_pred, np.column_stack([filled, y_pred]), inputs=inputs)

    def _coded(
        self, rows: Any, numbers: Float[NDArray, "n k"], means: Float[NDArray, "n m"]
    ) -> Float[NDArray, "n q"]:
        """A frame with categories as the trees see it: level codes, mean targets for long columns, and numbers."""
        assert self.codes_ is not None
        assert self.means_ is not None
        by_column = means.reshape(len(means), len(self.means_.codes.columns), len(self.means_.usual))
        too_many = np.array([number not in self.codes_.columns for number in self.means_.codes.columns], bool)
        others = by_column[:, too_many].reshape(len(means), sum(too_many) * len(self.means_.usual))
        return np.column_stack([self.codes_(rows), others, numbers[:, self.coding_.of_numbers]])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_parameters(self) -> None:
        for name in ("max_iter", "max_leaf_nodes", "min_samples_leaf"):
            check_positive(getattr(self, name), name, integer=True)
        check_positive(self.learning_rate, "learning_rate")
