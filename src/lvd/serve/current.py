"""The current model: replaced between requests when its folder changes, kept if the new one is broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lvd._json import to_json
from lvd._validation import InputError
from lvd.serve.answers import answer_all
from lvd.serve.bodies import Asked
from lvd.serve.served import Served, Signature, load_served, signature_of


class CurrentModel:
    """The model of a folder; `problem` says why a newer one was not loaded."""

    def __init__(
        self, folder: Path, trusted: Sequence[type[Any] | str] = (), fitted_on: pa.Table | None = None
    ) -> None:
        self.folder, self._trusted, self._fitted_on = folder, trusted, fitted_on
        self.served = self._load()
        self.loaded_at = time.time()
        self.problem: str | None = None
        self.n_failures = 0
        self._failed: Signature = ()
        self._refreshing = threading.Lock()

    def refresh(self) -> bool:
        """Load the folder's model if it has changed; return whether it was loaded."""
        with self._refreshing:
            found = signature_of(self.folder)
            if found == self.served.signature:
                self.problem = None
                return False
            if self.problem is not None and found == self._failed:
                return False
            try:
                served = self._load()
            except Exception as error:
                text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
                self.problem = " ".join(text.split())
                self._failed, self.n_failures = found, self.n_failures + 1
                return False
            self.served, self.loaded_at, self.problem = served, time.time(), None
            return True

    def _load(self) -> Served:
        served = load_served(self.folder, self._trusted)
        if self._fitted_on is not None:
            served.show_rows_of(self._fitted_on)
        if not served.keeps_rows:
            _warm_up(served)
        return served


def _warm_up(served: Served) -> None:
    """Predict one row of usual values, so that compilation does not delay the first request."""
    row = {column.name: column.usual for column in served.columns}
    for path in ("/predict", "/explain"):
        answer_all(served, [Asked(path, to_json(row).encode())], most_rows=1)
