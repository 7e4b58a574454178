"""Rival methods on the same model and the same calibration rows, from what a saved model keeps of them.

A model keeps, of each calibration row, its error and its place in the kernel's coordinates. That is all that
split conformal needs, and it lets MADSplit fit its model of the error on one half of the calibration rows and
calibrate on the other. So no row that the page evaluates takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import InputError, check_choice
from lvd.conformal import AbsoluteResidual, LocalConformal, NormalizedResidual, conformal_quantile
from lvd.intervals import clip
from lvd.methods.lvd import LVDRegressor
from lvd.nets import NetRegressor
from lvd.report.page.evaluation import Evaluated

RIVALS = ("split", "madsplit")
LEAST_ROWS = 4


@dataclass(frozen=True, eq=False)
class Method:
    """A method's intervals at all levels of the page, what they promise and how they were made."""

    name: str
    promise: str
    how: str
    all_intervals: Float[NDArray, "n 2 l"]


def parse_rivals(text: str | None) -> tuple[str, ...]:
    """The names in a list separated by commas."""
    names = [] if text is None else [name.strip().lower() for name in text.split(",")]
    return tuple(dict.fromkeys(check_choice(name, "compare", RIVALS) for name in names))


def local_method(evaluated: Evaluated) -> Method:
    """The model's own intervals."""
    return Method(
        "LVD",
        "near each row",
        "the calibration errors, weighted by their similarity to the row",
        evaluated.all_intervals,
    )


def make_rivals(
    names: Sequence[str], evaluated: Evaluated, regressor: LVDRegressor, place: int, seed: int
) -> list[Method]:
    """The named rivals at all levels of the page, for target number `place` of the model."""
    parameters = regressor.get_params()
    if names and (parameters["score"], parameters["sides"]) != ("absolute", "same"):
        raise InputError(
            'compare needs a model of absolute errors (score="absolute", sides="same"), as lvd fit makes it, '
            f"got score={parameters['score']!r}, sides={parameters['sides']!r}; leave compare out"
        )
    conformal = regressor.conformals_[place]
    errors = conformal.calibration_.scores.cpu().numpy()
    made = {
        "split": lambda: split(evaluated, errors),
        "madsplit": lambda: madsplit(evaluated, errors, conformal, device=regressor.device, seed=seed),
    }
    return [made[name]() for name in names]


def split(evaluated: Evaluated, errors: Float[NDArray, "m"]) -> Method:
    """Split conformal: one radius for all rows, the finite-sample quantile of the calibration errors."""
    radius = conformal_quantile(errors, evaluated.levels)
    intervals = AbsoluteResidual(evaluated.y_pred).intervals(_for_all_rows(radius, evaluated))
    return Method(
        "Split",
        "on average",
        "one width for all rows, from the same calibration errors",
        clip(intervals, *evaluated.y_range),
    )


def madsplit(
    evaluated: Evaluated, errors: Float[NDArray, "m"], conformal: LocalConformal, *, device: str, seed: int
) -> Method:
    """MADSplit: a radius in proportion to the error that a second network expects."""
    if len(errors) < LEAST_ROWS:
        raise InputError(
            f"compare=madsplit needs at least {LEAST_ROWS} calibration rows, the model has {len(errors)}; "
            "leave it out, or fit on more rows"
        )
    points = conformal.calibration_.rows.points.cpu().numpy()
    queries = (conformal.kernel.scaled(evaluated.embeddings) / conformal.bandwidth_).cpu().numpy()
    learn, calibrate = np.array_split(np.random.default_rng(seed).permutation(len(errors)), 2)
    error_model = NetRegressor(device=device, random_state=seed).fit(points[learn], errors[learn])
    # The errors are |y - y_pred| already, so as targets they are those of a prediction of 0.
    normalized = NormalizedResidual(np.zeros(len(calibrate)), error_model.predict(points[calibrate]))
    radius = conformal_quantile(normalized(errors[calibrate]), evaluated.levels)
    score = NormalizedResidual(evaluated.y_pred, error_model.predict(queries))
    return Method(
        "MADSplit",
        "on average",
        "widths in proportion to a predicted error: a second network learns the errors of one half of the "
        "calibration rows, and the other half calibrates",
        clip(score.intervals(_for_all_rows(radius, evaluated)), *evaluated.y_range),
    )


def _for_all_rows(radius: Float[NDArray, "l"], evaluated: Evaluated) -> Float[NDArray, "n l"]:
    return np.broadcast_to(radius, (len(evaluated.y), len(radius)))
