"""Which rows a model was trained and calibrated on, recognised by their content."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, row_digests


def row_ids(X: Any, y: Float[NDArray, "n *t"], places: Sequence[int] | None = None) -> Int[NDArray, "n t"]:
    """A digest of each row's inputs and one of each target; 0 for missing targets.

    The name, column order and format of a table make no difference, nor do columns that the model does not
    read. `places` are the indices of the targets among the model's, by default all of them.
    """
    inputs, columns = row_digests(X).tolist(), y.reshape(len(y), -1).T + 0.0  # -0.0 equals 0.0
    ids = [
        row_digests(list(zip(inputs, repeat(place), column.tolist(), strict=False)))
        for place, column in zip(range(len(columns)) if places is None else places, columns, strict=True)
    ]
    return np.where(np.isnan(columns), 0, np.stack(ids).view(np.int64)).T


def repeats_earlier(ids: Int[NDArray, "n t"]) -> Bool[NDArray, "n"]:
    """Which rows repeat the inputs and a target of an earlier one."""
    again = np.ones(ids.shape, dtype=bool)
    for number, column in enumerate(ids.T):
        again[np.unique(column, return_index=True)[1], number] = False
    return np.any(again & (ids != 0), axis=1)


@dataclass(frozen=True, eq=False)
class SeenRows:
    """The :func:`row_ids` of the training rows, and of the current calibration rows, in order."""

    train: Int[NDArray, "k t"]
    calibration: Int[NDArray, "m t"]

    def trained(self, ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
        """Which rows are training rows."""
        return _holds(self.train, ids)

    def calibrated(self, ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
        """Which rows are calibration rows."""
        return _holds(self.calibration, ids)

    def with_more(self, ids: Int[NDArray, "n t"], n_newest: int | None) -> SeenRows:
        """The state after these rows have joined the calibration rows, of which the newest are kept."""
        return replace(self, calibration=np.concatenate([self.calibration, ids])[-(n_newest or 0) :])

    def to_dict(self) -> dict[str, str]:
        """The complete state, in JSON types."""
        return {
            name: base64.b64encode(ids.astype("<i8").tobytes()).decode() for name, ids in vars(self).items()
        }

    @classmethod
    def from_dict(cls, content: Any, n_targets: int, n_calib: int) -> SeenRows:
        """Restore the output of `to_dict` for this many targets and calibration rows; anything else is an error."""
        try:
            train, calibration = (
                np.frombuffer(base64.b64decode(content[name], validate=True), "<i8").reshape(-1, n_targets)
                for name in ("train", "calibration")
            )
            if len(calibration) != n_calib:
                raise ValueError(f"{len(calibration)} of {n_calib} calibration rows")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the record of the model's rows is damaged ({error!r}); fit again") from None
        return cls(train, calibration)


def _holds(known: Int[NDArray, "m t"], ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
    return np.any(np.isin(ids, known) & (ids != 0), axis=1)
