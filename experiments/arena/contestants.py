"""The contestants of the arena: each maps a split and a level to a function from rows to intervals.

All learning uses the training rows and all calibration rows calibrate, so that every contestant has the same
data; CV+, which has no calibration set, trains on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from experiments.arena import rivals
from experiments.arena.boosted import boosted_local
from experiments.arena.clear import clear_intervals
from experiments.arena.crossed import boosted_errors, crossed_ten_lines
from experiments.arena.distributional import distributional
from experiments.arena.epicscore import learn_scores
from experiments.arena.histograms import histogram_intervals
from experiments.arena.normals import Moments, dropout_moments, ensemble_moments
from experiments.arena.pcp import fit_mixture, posterior_radius
from experiments.arena.rectified import learn_quantile
from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ARENA_MODELS, ArenaSplit, digest
from lvd import (
    ConformalizedQuantileRegressor,
    DeepEnsembleRegressor,
    JackknifePlusRegressor,
    LVDRegressor,
    MADSplitRegressor,
    MCDropoutRegressor,
    NetRegressor,
    SplitConformalRegressor,
)
from lvd._typing import Bool, Float, NDArray
from lvd.engine import conformal_quantile
from lvd.intervals import from_radius

Rows: TypeAlias = Float[NDArray, "n p"]
ToNumbers: TypeAlias = Callable[[NDArray], NDArray]
CV_FOLDS = 5


@dataclass(frozen=True)
class Contestant:
    """A method of the arena.

    Parameters
    ----------
    title : its name on the page.
    learn : maps a split and a level to a function from rows to intervals (n, 2).
    settings : its settings, and why.
    models : the models it runs with; methods that bring their own model run once.
    most_rows : the most test rows to evaluate, for methods that are slow per row.
    ours : whether it is LVD.
    crossed : whether the calibration rows are also trained on, as in CV+; the others set rows aside.
    known : a function that returns which rows it considers known; None for methods without novelty detection.
    """

    title: str
    learn: Callable[[ArenaSplit, float], ToIntervals]
    settings: str
    models: tuple[str, ...] = ARENA_MODELS
    most_rows: int | None = None
    ours: bool = False
    crossed: bool = False
    known: Callable[[ArenaSplit, float, NDArray], NDArray] | None = None


def error_scale(split: ArenaSplit) -> ToNumbers:
    """A boosted model of the absolute out-of-fold errors from inputs and prediction, bounded away from zero."""

    def learn() -> Any:
        return boosted_errors(np.column_stack([split.X_train, split.held_out]), split.held_out_errors)

    model, predict = split.stages.once("error scale", learn), split.predict
    least = 0.1 * float(np.median(split.held_out_errors))
    return lambda X: np.maximum(model.predict(np.column_stack([X, predict(X)])), least)


def scaled_split(split: ArenaSplit, level: float, predict: ToNumbers, scale: ToNumbers) -> ToIntervals:
    """Split conformal prediction on errors divided by a given scale."""
    scores = np.abs(split.y_calib - predict(split.X_calib)) / scale(split.X_calib)
    (quantile,) = conformal_quantile(scores, np.array([level]))
    return lambda X: from_radius(predict(X), quantile * scale(X))


def ten_lines(split: ArenaSplit, level: float) -> ToIntervals:
    """Split conformal prediction on errors scaled by a boosted model of the out-of-fold errors."""
    return scaled_split(split, level, split.predict, error_scale(split))


def calibrated_intervals(regressor: Any, split: ArenaSplit, level: float) -> ToIntervals:
    """One of our conformal methods, fitted on the training rows and calibrated on the calibration rows."""
    regressor.set_params(calib_size=None, device="cpu", random_state=split.seed)
    regressor.fit(split.X_train, split.y_train).conformalize(split.X_calib, split.y_calib)
    return lambda X: regressor.predict_interval(X, level)[1][:, :, 0]


def post_hoc(make: Callable[..., Any], split: ArenaSplit, level: float) -> ToIntervals:
    """One of our conformal methods around the shared model."""
    return calibrated_intervals(make(split.estimator), split, level)


def lvd_regressor(split: ArenaSplit, level: float, **parameters: Any) -> LVDRegressor:
    """LVD around the shared model: learned once, and calibrated for each level separately."""

    def learn() -> LVDRegressor:
        regressor = LVDRegressor(
            split.estimator, calib_size=None, device="cpu", random_state=split.seed, **parameters
        )
        return regressor.fit(split.X_train, split.y_train)

    regressor = split.stages.once(f"LVD {sorted(parameters.items())}", learn)
    regressor.set_params(confidence_level=level)
    return regressor.conformalize(split.X_calib, split.y_calib)


def lvd_intervals(
    split: ArenaSplit,
    level: float,
    *,
    guarantee: str = "local",
    when_unknown: str | None = None,
    **parameters: Any,
) -> ToIntervals:
    """LVD with one of its guarantees."""
    regressor = lvd_regressor(split, level, **parameters)

    def intervals(X: Rows) -> Float[NDArray, "n 2"]:
        regressor.set_params(when_unknown=when_unknown)  # set every time, since the regressor is shared
        return regressor.predict_interval(X, level, guarantee=guarantee, random_state=split.seed)[1][:, :, 0]

    return intervals


def lvd_crossed(split: ArenaSplit, level: float, *, calibration: str = "cross") -> LVDRegressor:
    """LVD on training and calibration rows together, like CV+; each level is learned separately."""

    def learn() -> LVDRegressor:
        regressor = LVDRegressor(split.estimator, calibration=calibration, device="cpu")
        regressor.set_params(confidence_level=level, random_state=split.seed)
        return regressor.fit(*split.rows_but_test)

    return split.stages.once(f"LVD {calibration} {level}", learn)


def crossed_intervals(split: ArenaSplit, level: float, **choices: Any) -> ToIntervals:
    """Intervals of LVD on training and calibration rows together."""
    regressor = lvd_crossed(split, level, **choices)
    return lambda X: regressor.predict_interval(X, level)[1][:, :, 0]


def known_rows(
    split: ArenaSplit, level: float, X: Rows, learn: Callable[..., LVDRegressor] = lvd_regressor
) -> Bool[NDArray, "n"]:
    """The rows that LVD considers known, at any level."""

    def ask() -> Bool[NDArray, "n"]:
        evidence: Any = learn(split, level).predict_with_evidence(X, level)
        return np.asarray(evidence.known)

    return split.stages.once(f"known {learn} {digest(X)}", ask)


def cqr_network(split: ArenaSplit, level: float) -> ToIntervals:
    """A network that predicts two quantiles."""
    network = NetRegressor(device="cpu", random_state=split.seed)
    return calibrated_intervals(ConformalizedQuantileRegressor(network, confidence_level=level), split, level)


def cqr_boosted(split: ArenaSplit, level: float) -> ToIntervals:
    """Two boosted quantile models."""
    ends = boosted_quantiles(split, level)[:2]
    functions = (lambda X: np.column_stack([model.predict(X) for model in ends]), lambda X: X)
    regressor = ConformalizedQuantileRegressor(functions, confidence_level=level, prefit=True)
    return calibrated_intervals(regressor, split, level)


def boosted_quantiles(split: ArenaSplit, level: float) -> list[Any]:
    """Boosted models of the lower and upper quantile and of the median."""

    def learn() -> list[Any]:
        return [
            HistGradientBoostingRegressor(loss="quantile", quantile=quantile, random_state=split.seed).fit(
                split.X_train, split.y_train
            )
            for quantile in ((1 - level) / 2, (1 + level) / 2, 0.5)
        ]

    return split.stages.once(f"quantiles {level}", learn)


def cv_plus(split: ArenaSplit, level: float) -> ToIntervals:
    """CV+ on training and calibration rows together."""

    def learn() -> JackknifePlusRegressor:
        regressor = JackknifePlusRegressor(
            split.estimator, cv=CV_FOLDS, n_jobs=1, progress=False, device="cpu", random_state=split.seed
        )
        return regressor.fit(*split.rows_but_test)

    regressor = split.stages.once("CV+", learn)
    return lambda X: regressor.predict_interval(X, level)[1][:, :, 0]


def conformal_normal(make: Callable[..., Any], split: ArenaSplit, level: float) -> ToIntervals:
    """Split conformal prediction on errors divided by the standard deviation of a predicted normal distribution."""
    name, untrained = f"normal {make.__name__}", make(device="cpu", random_state=split.seed)
    regressor = split.stages.once(name, lambda: untrained.fit(split.X_train, split.y_train))

    def ask(X: Rows) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
        y_pred, ends = split.stages.once(f"{name} {digest(X)}", lambda: regressor.predict_interval(X, 0.5))
        return y_pred, (ends[:, 1, 0] - ends[:, 0, 0]) / 2.0

    return scaled_split(split, level, lambda X: ask(X)[0], lambda X: ask(X)[1])


def normal_at_its_best(
    learn: Callable[[ArenaSplit], Moments], split: ArenaSplit, level: float
) -> ToIntervals:
    """Split conformal prediction on errors divided by the standard deviation that these networks predict."""
    moments = split.stages.once(learn.__name__, lambda: learn(split))

    def ask(X: Rows) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
        return split.stages.once(f"{learn.__name__} {digest(X)}", lambda: moments(X))

    return scaled_split(split, level, lambda X: ask(X)[0], lambda X: ask(X)[1])


def posterior(split: ArenaSplit, level: float) -> ToIntervals:
    """Posterior conformal prediction with a mixture fixed by the training rows."""
    errors, scores, predict = split.held_out_errors, np.abs(split.calib_errors), split.predict
    mixture = split.stages.once("PCP", lambda: fit_mixture(split.X_train, errors, len(scores), split.seed))
    radius = partial(posterior_radius, mixture, split.X_calib, scores, level=level, seed=split.seed)
    return lambda X: from_radius(predict(X), radius(X))


def rectified_scores(split: ArenaSplit, level: float, *, weighted: bool) -> ToIntervals:
    """Split conformal prediction on errors minus a network's quantile of them."""
    errors, predict = split.held_out_errors, split.predict
    quantile = learn_quantile(split.X_train, errors, level, split.seed, weighted=weighted)
    (more,) = conformal_quantile(np.abs(split.calib_errors) - quantile(split.X_calib), np.array([level]))
    return lambda X: from_radius(predict(X), np.maximum(quantile(X) + more, 0.0))


def epistemic_scores(split: ArenaSplit, level: float) -> ToIntervals:
    """The predicted distribution of the error, inverted at a level chosen on the calibration rows."""
    errors, predict = split.held_out_errors, split.predict
    distribution = split.stages.once("EPICSCORE", lambda: learn_scores(split.X_train, errors, split.seed))
    scores = distribution.cdf(split.X_calib, np.abs(split.calib_errors))
    (share,) = conformal_quantile(scores, np.array([level]))
    return lambda X: from_radius(predict(X), distribution.quantile(X, float(share)))


def lvd_form(title: str, settings: str, **choices: Any) -> Contestant:
    """LVD in one of its forms, all with the same known rows."""
    return Contestant(title, partial(lvd_intervals, **choices), settings, ours=True, known=known_rows)


def crossed_form(title: str, settings: str, **choices: Any) -> Contestant:
    """LVD on training and calibration rows together, in one of its forms."""
    intervals = partial(crossed_intervals, **choices)
    known = partial(known_rows, learn=partial(lvd_crossed, **choices))
    return Contestant(title, intervals, settings, ours=True, crossed=True, known=known)


CONTESTANTS: dict[str, Contestant] = {
    "split": Contestant("split", partial(post_hoc, SplitConformalRegressor), "finite-sample quantile"),
    "cqr-network": Contestant(
        "CQR, network",
        cqr_network,
        "the built-in network with the pinball loss, one for each level",
        ("network",),
    ),
    "cqr-boosted": Contestant(
        "CQR, boosted", cqr_boosted, "HistGradientBoosting of both quantiles, its defaults", ("trees",)
    ),
    "madsplit": Contestant(
        "MADSplit",
        partial(post_hoc, MADSplitRegressor),
        "a second model like the first, of its held-out errors",
    ),
    "ten-lines": Contestant(
        "ten lines",
        ten_lines,
        "HistGradientBoosting of the held-out errors, 8 leaves, on inputs and prediction",
    ),
    "crepes-normalized": Contestant(
        "crepes, normalized",
        rivals.crepes_normalized,
        "difficulty: held-out errors of 25 neighbours",
    ),
    "crepes-mondrian": Contestant(
        "crepes, Mondrian", rivals.crepes_mondrian, "five bins of the same difficulty"
    ),
    "mapie-split": Contestant("MAPIE, split", rivals.mapie_split, "its defaults"),
    "forest-cqr": Contestant(
        "CQR, quantile forest",
        rivals.forest_cqr,
        "quantile-forest: 100 trees with at least 10 rows in a leaf",
        ("trees",),
    ),
    "mapie-cqr": Contestant(
        "MAPIE, CQR",
        lambda split, level: rivals.mapie_cqr(split, level, boosted_quantiles(split, level)),
        "the quantile models of CQR, boosted; both ends moved alike",
        ("trees",),
    ),
    "mapie-conditional": Contestant(
        "MAPIE, conditional",
        rivals.mapie_conditional,
        "linear functions of five principal components; one linear program a row, so its score is of 200 test rows",
        most_rows=200,
    ),
    "cv-plus": Contestant(
        "CV+", cv_plus, f"{CV_FOLDS} folds of training and calibration rows together", crossed=True
    ),
    "ensemble": Contestant(
        "deep ensemble, conformal",
        partial(conformal_normal, DeepEnsembleRegressor),
        "lvd's defaults",
        ("network",),
    ),
    "dropout": Contestant(
        "MC dropout, conformal",
        partial(conformal_normal, MCDropoutRegressor),
        "rate and precision chosen",
        ("network",),
    ),
    "ensemble-best": Contestant(
        "deep ensemble of the arena's network, conformal",
        partial(normal_at_its_best, ensemble_moments),
        "five of the arena's networks, each with a mean and a variance",
        ("network",),
    ),
    "dropout-best": Contestant(
        "MC dropout in the arena's network, conformal",
        partial(normal_at_its_best, dropout_moments),
        "its widths and start, early stopping, a mean and a variance, 100 passes; rate .05, .1 or .2 by likelihood",
        ("network",),
    ),
    "cqr-lightgbm": Contestant(
        "CQR, LightGBM",
        rivals.lightgbm_cqr,
        "both quantiles, 8 leaves, rate 0.05, stopped by a tenth of the training rows",
        ("trees",),
    ),
    "cv-plus-ten-lines": Contestant(
        "CV+, ten lines",
        crossed_ten_lines,
        "CV+ with errors in units of ten lines' model of them, which has not seen the row's fold",
        crossed=True,
    ),
    "dcp": Contestant(
        "distributional",
        partial(distributional, shortest=False),
        "11 quantiles of y by the network, or by boosted trees as those of CQR; as published, no local weights",
    ),
    "dcp-optimal": Contestant(
        "distributional, shortest",
        partial(distributional, shortest=True),
        "the same quantiles; misses are split between the ends so that intervals are short",
    ),
    "chr": Contestant(
        "CHR",
        histogram_intervals,
        "conformal histogram regression, from the paper: the same quantiles, up to 1,000 bins, masses in steps of "
        "0.001, not randomized; half of the bins are narrow where training rows are many",
    ),
    "boosted": Contestant(
        "boosted conformal",
        lambda split, level: boosted_local(split, level, error_scale(split)),
        "from the paper: ten lines, whose centre and scale trees of one cut boost for a small mean length; rate "
        "0.02; 5 folds of the training rows choose up to 500 rounds; not the paper's form for even coverage",
    ),
    "clear": Contestant(
        "CLEAR",
        clear_intervals,
        "from the paper: the median of 10 bootstraps of the shared model, boosted quantiles of their errors on "
        "rows left out; the calibration rows also choose how much the bootstraps' spread counts",
    ),
    "pcp": Contestant(
        "PCP (frozen)",
        posterior,
        "the authors' grids; the mixture from training rows, so that it is exactly valid",
    ),
    "rcp": Contestant(
        "RCP",
        partial(rectified_scores, weighted=False),
        "the authors' network, as many epochs as CPCP's, stopped by a tenth of the rows",
    ),
    "cpcp": Contestant(
        "CPCP",
        partial(rectified_scores, weighted=True),
        "clipped at 5 and mixed by half, as recommended",
    ),
    "epicscore": Contestant(
        "EPICSCORE, MC dropout", epistemic_scores, "the authors' network, batches of 512, 100 passes averaged"
    ),
    "lvd-paper": Contestant(
        "LVD, paper", partial(lvd_intervals, preset="paper"), "LVDRegressor(preset='paper')", ours=True
    ),
    "lvd": lvd_form("LVD", "LVDRegressor(), local"),
    "lvd-cross": crossed_form(
        "LVD, cross",
        "LVDRegressor(calibration='cross'): 5 folds of training and calibration rows together, 10 below 1,000 rows",
    ),
    "lvd-ensemble": crossed_form(
        "LVD, ensemble", "the same, with calibration='ensemble'", calibration="ensemble"
    ),
    "lvd-scaled": lvd_form(
        "LVD, scaled", "LVDRegressor(conformity_score='scaled')", conformity_score="scaled"
    ),
    **{
        f"lvd-{guarantee}": lvd_form(f"LVD, {guarantee}", "the default's model", guarantee=guarantee)
        for guarantee in ("calibrated", "randomized", "transductive")
    },
    "lvd-widen": lvd_form(
        "LVD, widened", "the default's model; unknown rows get a finite interval too", when_unknown="widen"
    ),
}
"""All contestants by name, in the order of the page."""
