"""LVD: locally valid and discriminative prediction intervals (Algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from lvd._validation import InputError, check_choice
from lvd.kernels import MahalanobisKernel
from lvd.methods.conformal import as_score
from lvd.methods.local import LocalRegressor
from lvd.models import Model, as_model
from lvd.models.candidates import Candidates
from lvd.models.kinds import takes
from lvd.models.wrap import model_and_embedding
from lvd.scores import ConformityScore, JointResidual, ScaledResidual, TrainingRows
from lvd.scores.joint import SHAPES


@dataclass(frozen=True)
class Preset:
    """Choices that belong together; `mass` is that of adaptive bandwidths, `estimator` the model of None."""

    conformity_score: str | ConformityScore
    kernel_target: str
    bandwidth: float | str
    when_unknown: str
    estimator: str
    mass: float = 3.0


PRESETS = {
    "default": Preset("scaled", "errors", "adaptive", "infinite", "auto"),
    "paper": Preset("absolute", "y", 1.0, "widen", "paper"),
}


MASS_OF_AVERAGED = 4.0
"""The `mass` with averaged kernels, in which fewer rows are near each other."""


@dataclass(eq=False, repr=False)
class LVDRegressor(LocalRegressor):
    """Prediction intervals that are wide where similar cases went wrong, and infinite where none are known.

    A network is trained (or used as given), a kernel is learned on its last hidden layer, and the calibration
    errors, weighted by their similarity to the row in question, give the radius of its interval.

    The promise is local by default; ``predict_interval(X, guarantee="randomized")`` or ``"calibrated"`` take one
    that holds on average too, from the same calibration; with ``"randomized"`` also ``smoothed=True``, which meets
    the level exactly (see :meth:`LocalConformal.radius`).

    `fit` and `conformalize` take ``groups=``, for a promise within each group, and ``weights=``, likelihood ratios
    for new rows of another population (:func:`lvd.shift.estimate_weights`); whatever predicts intervals then takes
    those of its rows, as in ``predict_interval(X, groups=..., weights=...)``.

    Parameters
    ----------
    estimator : the model. None or ``"auto"`` takes the better of ``"net"`` (:class:`NetRegressor`) and ``"trees"``
        (:class:`TreesRegressor`) by cross-validation on the training rows; in the preset ``"paper"`` None is the
        paper's network. With the other names numbers may be missing (NaN): the trees take them as they are, the
        network gets the column's mean and a flag. Or a torch module, one of lvd's regressors, a scikit-learn
        regressor or Pipeline, LightGBM, XGBoost, CatBoost or whatever else has `fit` and `predict`, or, of a
        trained model, a function `predict`. Or a pair of a model and its embedding: of a torch module the name of
        the layer whose input it is, of others a function from rows to embeddings.
    preset : the values of the next four parameters where they are None. ``"default"``: errors scaled by the error
        to expect, a kernel of the errors, a bandwidth for each row, and infinite intervals for unknown rows.
        ``"paper"``: the paper's method, absolute errors and a kernel of y with bandwidth 1.
    conformity_score : what is calibrated: ``"scaled"`` errors (:class:`lvd.scores.ScaledResidual`);
        ``"absolute"`` ones; ``"normalized"`` by a second model's prediction of the error; ``"signed"``, for errors
        that are not symmetric, with a quantile for each end; ``"sided"``, errors measured by what is usual on their
        side; or a score of :mod:`lvd.scores`.
    kernel_target : what makes rows similar: ``"errors"`` or ``"y"``. Noise that does not move the mean is
        invisible to a kernel of y.
    bandwidth : widens the kernel by this factor; ``"adaptive"`` widens it for each row just enough to expect
        sufficient calibration rows (see :class:`LocalConformal`).
    when_unknown : the interval of a row that is unlike all training rows, in the embedding or in the inputs:
        ``"infinite"``, or ``"widen"``: as wide as the calibration rows say, flagged by ``known`` in
        :meth:`predict_with_evidence`.
    joint : for several targets, a region that holds them together instead of an interval for each (see
        :meth:`predict_region`): a ``"box"``, intervals that hold together, or an ``"ellipsoid"``, smaller where the
        errors are correlated. One kernel of the errors serves all targets, and `conformity_score` is ``"scaled"``,
        or ``"absolute"`` for the same units at every row.
    kernel : a :class:`MahalanobisKernel` of your settings; one that is fitted already is used as it is.
    confidence_level : the default level of :meth:`predict_interval`.
    calib_size : share of the rows of :meth:`fit` set aside for calibration. None: use all of them for training;
        :meth:`conformalize` is then required.
    prefit : the estimator is trained already and left untouched. Rows it was trained on must not calibrate:
        use ``calib_size=None`` and conformalize on rows it has not seen.
    y_range : known bounds of y, ``(lowest, highest)``, which clip the intervals; None for no bound.
    device, random_state : where to compute, and the seed of everything random.

    Attributes
    ----------
    model_ : the trained model.
    choice_ : where the better of two was chosen, their errors on held-out training rows by name, as shares of the
        standard deviation of y.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.normal(size=400) * np.abs(X[:, 1])
    >>> reg = lvd.LVDRegressor(random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:5], confidence_level=[0.5, 0.9])
    >>> y_pred.shape, intervals.shape
    ((5,), (5, 2, 2))
    >>> skewed = lvd.LVDRegressor(conformity_score="signed", when_unknown="widen", random_state=0)
    >>> halves = np.where(X[:, 0] > 0, "right", "left")
    >>> _, intervals = skewed.fit(X, y, groups=halves).predict_interval(X[:5], groups=halves[:5])
    >>> bool(np.isfinite(intervals).all())
    True
    """

    _: KW_ONLY
    preset: str = "default"
    conformity_score: str | ConformityScore | None = None
    kernel_target: str | None = None
    bandwidth: float | str | None = None
    when_unknown: str | None = None
    joint: str | None = None

    @property
    def settings(self) -> Preset:
        """The preset, with what was given in place of it."""
        check_choice(self.preset, "preset", tuple(PRESETS))
        names = ("conformity_score", "kernel_target", "bandwidth", "when_unknown")
        given = {name: vars(self)[name] for name in names if vars(self)[name] is not None}
        settings = replace(PRESETS[self.preset], **given)
        check_choice(settings.kernel_target, "kernel_target", ("errors", "y"))
        check_choice(settings.when_unknown, "when_unknown", ("infinite", "widen"))
        return settings

    def _new_model(self, seed: int) -> Model | Candidates:
        name = self.settings.estimator if self.estimator is None and not self.prefit else self.estimator
        named = {"auto": ("net", "trees"), "net": ("net",)}.get(name, ()) if isinstance(name, str) else ()
        if named and not self.prefit:
            return Candidates({one: as_model(one, device=self.device, random_state=seed) for one in named})
        given = "net" if named else name
        return as_model(given, prefit=self.prefit, device=self.device, random_state=seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        preset = PRESETS.get(self.preset, PRESETS["default"])
        model, _ = model_and_embedding(preset.estimator if self.estimator is None else self.estimator)
        missing = model != "paper" if isinstance(model, str) else takes(model, "allow_nan")
        tags.input_tags.allow_nan = missing
        return tags

    @property
    def _kernel_target(self) -> str:
        return self.settings.kernel_target

    @property
    def _infinite_when_unknown(self) -> bool:
        return self.settings.when_unknown == "infinite"

    def _kernel_template(self, training: TrainingRows | None = None) -> MahalanobisKernel:
        own = training is not None and training.rows.evaluation.spread is not None
        if self.kernel is None and own and self._kernel_target == "errors":
            # The better way there; on tables, for errors of models without a spread, both are as good.
            return MahalanobisKernel(average=True, max_iter=300, device=self.device)
        return super()._kernel_template(training)

    def _reach(self) -> tuple[float | str, float]:
        averaged = any(kernel.average for kernel in getattr(self, "kernels_", ()))
        return self.settings.bandwidth, MASS_OF_AVERAGED if averaged else self.settings.mass

    def _conformity_score(self) -> ConformityScore:
        given = self.settings.conformity_score
        score = as_score(given) if self.joint is None else _joint_score(self.joint, given)
        if score.joint and self.settings.kernel_target != "errors":
            raise InputError(
                "joint regions need kernel_target 'errors', as one kernel learns the errors of all targets, got "
                "'y', which is also that of preset 'paper'; choose 'errors', or leave the joint region out"
            )
        return score


def _joint_score(shape: str, given: str | ConformityScore) -> ConformityScore:
    """The score of all targets together that measures them as the given one does."""
    check_choice(shape, "joint", SHAPES)
    scales = {"scaled": ScaledResidual(), "absolute": ScaledResidual(scales=())}
    chosen = scales.get(given) if isinstance(given, str) else given
    if not isinstance(chosen, ScaledResidual):
        raise InputError(
            "conformity_score must be 'scaled', 'absolute' or a ScaledResidual for joint regions, got "
            f"{given!r}; leave joint= out for others"
        )
    return JointResidual(shape, chosen.scales)
