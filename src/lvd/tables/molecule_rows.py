"""What a model of molecules keeps of the table it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import Int, NDArray
from lvd._validation import InputError
from lvd.tables.table_encoder import check_texts


@dataclass(frozen=True, eq=False)
class MoleculeRows:
    """The numbers of the calibration and the test rows, counting from 1, and the calibration rows' SMILES.

    With them neighbours are shown as molecules, without the table.
    """

    calibration: Int[NDArray, "m"]
    test: Int[NDArray, "k"]
    smiles: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        return {
            "calibration": self.calibration.tolist(),
            "test": self.test.tolist(),
            "smiles": list(self.smiles),
        }

    @classmethod
    def from_dict(cls, content: Any, n_rows: Any) -> MoleculeRows:
        """What `to_dict` described, of a table of `n_rows`; anything else is refused."""
        try:
            calibration, test = (_row_numbers(content[part], n_rows) for part in ("calibration", "test"))
            smiles = check_texts(content["smiles"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"the list of the model's molecules is damaged ({error!r}); fit again") from None
        if len(smiles) != len(calibration) or np.intersect1d(calibration, test).size:
            raise InputError("the list of the model's molecules is damaged; fit again")
        return cls(calibration, test, smiles)


def _row_numbers(values: Any, n_rows: Any) -> Int[NDArray, "m"]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("row numbers must be integers")
    numbers = np.array(values, dtype=np.int64)
    if len(np.unique(numbers)) < len(numbers) or not ((numbers >= 1) & (numbers <= n_rows)).all():
        raise ValueError(f"row numbers must lie between 1 and {n_rows}, each once")
    return numbers
