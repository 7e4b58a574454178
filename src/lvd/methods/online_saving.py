"""Saving and loading of intervals over time: the regressor and everything seen since, as arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from lvd._validation import InputError
from lvd.calibration.fading import FadingRows
from lvd.calibration.level_adaptation import AdaptedLevel
from lvd.methods.lvd import LVDRegressor
from lvd.methods.online_intervals import OnlineIntervals, Waiting, row_of, stacked
from lvd.metrics.rolling import TimeBlocks
from lvd.models import Evaluation

PARAMETERS = (
    "regressor",
    "confidence_level",
    "level",
    "half_life",
    "max_rows",
    "max_waiting",
    "max_infinite",
    "refit_every",
    "retrain",
)
AS_THEY_ARE = ("losses_", "counts_", "largest_", "seen_range_")
NUMBERS = ("time_", "most_late_", "n_models_", "n_complete_", "refitted_at_")


def take_state(online: OnlineIntervals) -> dict[str, Any]:
    """The object's parameters, current regressor and state, for saving."""
    learned = vars(online)
    by_model: dict[int, list[Any]] = {}
    for name, row in online.waiting_.items():
        by_model.setdefault(row.model, []).append((name, row))
    newest = list(online.newest_)
    state = {
        **{name: learned[name] for name in (*AS_THEY_ARE, *NUMBERS)},
        "latest": online.latest_,
        "dated": online.dated_,
        "history": [{"sums": blocks.sums, "size": blocks.size} for blocks in online.history_],
        "levels": [level.to_dict() for level in online.levels_],
        "rows": [rows.to_dict() for rows in online.rows_],
        "recent": [np.array(recent, dtype=np.float64).reshape(-1, 3) for recent in online.recent_],
        "waiting": [_waiting_apart(rows) for rows in by_model.values()],
        "order": list(online.waiting_),
        "done": list(online.done_),
        "newest": None
        if not newest
        else {
            "times": np.array([time for time, _, _ in newest]),
            "evaluation": _evaluation_apart([evaluation for _, evaluation, _ in newest]),
            "y": np.stack([y for _, _, y in newest]),
        },
    }
    parameters = {name: learned[name] for name in PARAMETERS}
    return {**parameters, "regressor_": online.regressor_, "state_": state}


def put_state(online: OnlineIntervals) -> None:
    """Restore a loaded object's state, checking that its parts fit together."""
    learned = vars(online)
    state, regressor = (learned.pop(name) for name in ("state_", "regressor_"))
    if not isinstance(regressor, LVDRegressor):
        raise InputError("intervals over time need an LVDRegressor")
    online._begin()
    online.regressor_ = regressor
    for name in NUMBERS:
        setattr(online, name, int(state[name]))
    online.latest_, online.dated_ = float(state["latest"]), bool(state["dated"])
    for name in AS_THEY_ARE:
        _check_like(name, state[name], learned[name])
        setattr(online, name, state[name])
    n_ways, n_targets = learned["losses_"].shape[1], online.n_targets
    if (
        not len(state["levels"])
        == len(state["rows"])
        == len(state["recent"])
        == len(state["history"])
        == n_targets
    ):
        raise InputError("each target needs a level, rows and a record")
    online.levels_ = [AdaptedLevel.from_dict(saved, n_ways) for saved in state["levels"]]
    online.rows_ = [FadingRows(**saved, most=online.max_rows) for saved in state["rows"]]
    online.history_ = [TimeBlocks(**saved) for saved in state["history"]]
    for recent, saved in zip(online.recent_, state["recent"], strict=True):
        recent.extend((bool(covered), float(width), bool(unknown)) for covered, width, unknown in saved)
    rows = dict(row for saved in state["waiting"] for row in _waiting_together(saved))
    online.waiting_ = {name: rows[name] for name in state["order"]}
    online.done_ = dict.fromkeys(state["done"])
    if state["newest"] is not None:
        newest = state["newest"]
        evaluations = _evaluations(newest["evaluation"], len(newest["y"]))
        online.newest_ = deque(
            zip(newest["times"].tolist(), evaluations, newest["y"], strict=True), maxlen=online.newest_.maxlen
        )


def _waiting_apart(rows: Sequence[tuple[Any, Waiting]]) -> dict[str, Any]:
    names, waiting = zip(*rows, strict=True)
    columns = dict(zip(Waiting._fields, zip(*waiting, strict=True), strict=True))
    evaluation = _evaluation_apart(columns.pop("evaluation"))
    return {
        "names": list(names),
        "evaluation": evaluation,
        **{name: np.array(values) for name, values in columns.items()},
    }


def _waiting_together(saved: dict[str, Any]) -> list[tuple[Any, Waiting]]:
    names = saved["names"]
    columns = [saved[name].tolist() for name in ("number", "moment", "model", "known")]
    arrays = [list(saved[name]) for name in ("issued", "ends", "passed_over", "left")]
    evaluations = _evaluations(saved["evaluation"], len(names))
    return list(zip(names, map(Waiting, *columns, evaluations, *arrays), strict=True))


def _evaluation_apart(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    return stacked(evaluations)._asdict()


def _evaluations(saved: dict[str, Any], n_rows: int) -> list[Evaluation]:
    whole = Evaluation(**saved)
    for part in whole:
        if part is not None and len(part) != n_rows:
            raise InputError("the rows that wait, or were observed, lack parts")
    return [row_of(whole, number) for number in range(n_rows)]


def _check_like(name: str, saved: Any, new: Any) -> None:
    if isinstance(new, dict):
        if saved.keys() != new.keys():
            raise InputError(f"{name} lacks a part")
        for part, value in new.items():
            _check_like(part, saved[part], value)
    elif not isinstance(saved, np.ndarray) or saved.shape != new.shape or saved.dtype != new.dtype:
        raise InputError(f"{name} does not belong to the regressor")
