"""Measures of prediction intervals; all of them handle infinite ends.

Everywhere: `y` and `y_pred` are vectors, `intervals` has shape (n, 2), or (n, 2, L) where several levels are
asked for; numpy, pandas and torch are welcome; rates are fractions, and an interval is closed.
"""

from lvd.intervals import binomial_band
from lvd.metrics.conditional import (
    TargetCoverageRisk,
    WorstSlab,
    excess_risk_of_target_coverage,
    worst_slab_coverage,
)
from lvd.metrics.distribution import PitHistogram, crps, pinball_loss, pit_histogram
from lvd.metrics.interval_metrics import (
    CalibrationCurve,
    Summary,
    calibration_curve,
    finite_fraction,
    finite_rows,
    hsic,
    joint_coverage_rate,
    marginal_coverage_rate,
    mean_absolute_deviation,
    mean_finite_width,
    mean_log_volume,
    residual_auroc,
    summary,
    tail_coverage_rate,
    width_coverage_correlation,
    width_error_correlation,
    winkler_score,
)
from lvd.metrics.scorer import IntervalScorer
from lvd.metrics.strata import (
    GroupCoverage,
    coverage_gap,
    feature_stratified_coverage,
    group_coverage,
    size_stratified_coverage,
)

__all__ = [
    "CalibrationCurve",
    "GroupCoverage",
    "IntervalScorer",
    "PitHistogram",
    "Summary",
    "TargetCoverageRisk",
    "WorstSlab",
    "binomial_band",
    "calibration_curve",
    "coverage_gap",
    "crps",
    "excess_risk_of_target_coverage",
    "feature_stratified_coverage",
    "finite_fraction",
    "finite_rows",
    "group_coverage",
    "hsic",
    "joint_coverage_rate",
    "marginal_coverage_rate",
    "mean_absolute_deviation",
    "mean_finite_width",
    "mean_log_volume",
    "pinball_loss",
    "pit_histogram",
    "residual_auroc",
    "size_stratified_coverage",
    "summary",
    "tail_coverage_rate",
    "width_coverage_correlation",
    "width_error_correlation",
    "winkler_score",
    "worst_slab_coverage",
]
