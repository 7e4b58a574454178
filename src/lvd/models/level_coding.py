"""Coding a frame's categories for models: integers for trees, and mean targets for columns with too many levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd.models.coding import InputCoding, input_columns, read_texts

N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class LevelCodes:
    """The sorted levels of some columns, which are coded by their index; any other level is NaN."""

    columns: tuple[int, ...]
    levels: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, rows: Any, coding: InputCoding, *, fewest: int = 1, most: int | None = None) -> LevelCodes:
        """The levels of the categories with at least `fewest` and at most `most` of them."""
        columns = input_columns(rows)
        found = {
            number: tuple(sorted(set(read_texts(columns[number]).tolist())))
            for number, mean in enumerate(coding.means)
            if mean is None
        }
        chosen = {
            number: levels
            for number, levels in found.items()
            if fewest <= len(levels) and (most is None or len(levels) <= most)
        }
        return cls(tuple(chosen), tuple(chosen.values()))

    def __call__(self, rows: Any) -> Float[NDArray, "n k"]:
        """The indices of the levels."""
        columns = input_columns(rows) if self.columns else []
        codes = np.full((len(rows), len(self.columns)), np.nan)
        for place, (number, levels) in enumerate(zip(self.columns, self.levels, strict=True)):
            numbers = {level: code for code, level in enumerate(levels)}
            codes[:, place] = [numbers.get(text, np.nan) for text in read_texts(columns[number]).tolist()]
        return codes


@dataclass(frozen=True, eq=False)
class TargetCoding:
    """The mean target of each level, shrunk towards the overall mean for rare levels, as in scikit-learn's
    ``TargetEncoder``; unseen levels get the overall mean."""

    codes: LevelCodes
    means: tuple[Float[NDArray, "l t"], ...]
    usual: Float[NDArray, "t"]

    @classmethod
    def fit(
        cls, codes: LevelCodes, rows: Any, y: Float[NDArray, "n t"], seed: int
    ) -> tuple[TargetCoding, Float[NDArray, "n kt"]]:
        """The coding, and the training rows coded out-of-fold, without their own targets."""
        numbers = codes(rows)
        usual = np.nanmean(y, axis=0)
        means = [np.tile(usual, (len(levels), 1)) for levels in codes.levels]
        own = np.repeat(usual[None, None], len(y), axis=0).repeat(len(codes.columns), axis=1)
        for target, column in enumerate(y.T):
            known = ~np.isnan(column)
            for place in range(len(codes.columns)):
                own[known, place, target], learned = mean_targets(
                    numbers[known][:, [place]], column[known], seed, len(codes.levels[place])
                )
                means[place][:, target] = learned
        coding = cls(codes, tuple(means), usual)
        coded = np.where(np.isnan(y)[:, None], coding._coded(numbers), own)
        return coding, coded.reshape(len(y), coded.shape[1] * coded.shape[2])

    def __call__(self, rows: Any) -> Float[NDArray, "n kt"]:
        """Code rows that were not learned from."""
        coded = self._coded(self.codes(rows))
        return coded.reshape(len(coded), coded.shape[1] * coded.shape[2])

    def _coded(self, numbers: Float[NDArray, "n k"]) -> Float[NDArray, "n k t"]:
        seen: Bool[NDArray, "n k"] = ~np.isnan(numbers)
        places = np.where(seen, numbers, 0.0).astype(np.int64)
        blocks = [
            np.where(seen[:, [place]], means[places[:, place]], self.usual)
            for place, means in enumerate(self.means)
        ]
        return np.stack(blocks, axis=1) if blocks else np.zeros((len(numbers), 0, len(self.usual)))


def mean_targets(
    codes: Float[NDArray, "n 1"], y: Float[NDArray, "n"], seed: int, n_levels: int
) -> tuple[Float[NDArray, "n"], Float[NDArray, "l"]]:
    """The cross-fitted mean for each row's level, and each level's mean over all rows."""
    from sklearn.model_selection import KFold  # slow to import, and not needed for prediction
    from sklearn.preprocessing import TargetEncoder

    encoder = TargetEncoder(categories=[np.arange(n_levels, dtype=np.float64)], target_type="continuous")
    own = np.full(len(y), float(y.mean()))
    if len(y) >= 2 * N_FOLDS:
        for inside, outside in KFold(N_FOLDS, shuffle=True, random_state=seed).split(codes):
            own[outside] = encoder.fit(codes[inside], y[inside]).transform(codes[outside])[:, 0]
    return own, np.asarray(encoder.fit(codes, y).encodings_[0], np.float64)
