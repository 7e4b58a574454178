"""Loading of whatever was saved, with the columns of the table or frame that it was fitted on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import lvd.methods  # noqa: F401  # which registers what can be loaded
from lvd.store import load_object, read_manifest
from lvd.tables.table_encoder import TableEncoder


def load(
    folder: str | os.PathLike[str],
    estimator: Any = None,
    *,
    trusted: Sequence[type[Any] | str] = (),
    **parts: Any,
) -> Any:
    """What ``save(folder)`` or ``lvd fit`` wrote: the same method, with the same bits in every prediction.

    What was fitted on a table or a frame takes rows as a pandas frame, a dict of columns or a list of dicts, with
    texts, dates and missing cells as they were given to `fit`.

    Functions, torch modules and trained objects of your own are not in the folder, as they are code. Give them
    again as they were given to the constructor: ``lvd.load(folder, estimator=module)``, or ``estimator=(None,
    function)`` where only the embedding is one. The weights that were saved go into a copy of the module. Kernels,
    scores, support rules and methods of your own are made again only if their classes, or their names as
    ``"module:Class"``, are among the `trusted` ones. A model saved on a GPU that this machine does not have gets
    ``device="auto"``, and a generator given as `random_state` comes back as None.

    Examples
    --------
    >>> import numpy as np, lvd, tempfile
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> reg = lvd.SplitConformalRegressor(random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reg.save(folder)
    ...     loaded = lvd.load(folder)
    >>> bool((loaded.predict(X) == reg.predict(X)).all())
    True
    """
    loaded = load_object(folder, {"estimator": estimator, **parts}, trusted)
    columns = read_manifest(folder).get("columns")
    content = columns.get("encoder") if isinstance(columns, dict) else None
    if isinstance(content, dict) and "columns" in content:
        encoder = TableEncoder.from_dict(content)
        loaded.columns_, loaded.level_places_ = encoder, encoder.level_places
    return loaded
