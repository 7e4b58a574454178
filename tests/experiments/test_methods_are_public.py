"""Every method of the experiments is its public class: a user who trains all of it anew gets the same bits."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

import lvd
from experiments.paper.methods import FOLDS, MAIN_VARIANT, METHODS, VARIANTS
from experiments.paper.protocols import PROTOCOLS, Protocol
from experiments.paper.stages import TableSplit

LEVELS = [0.5, 0.9]
SEED = 3
pytestmark = pytest.mark.filterwarnings("ignore::lvd.CalibrationWarning")  # few rows, on purpose


class QuickProtocol(Protocol):
    """Kernels, too, learn for a moment only."""

    def kernel(self, seed, *, smoothness, device):
        return super().kernel(seed, smoothness=smoothness, device=device).set_params(max_iter=3)


@pytest.fixture(scope="module")
def splits():
    """A small table under both protocols, with networks that see few batches."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(60, 3))
    y = X[:, 0] + rng.normal(size=60) * np.abs(X[:, 1])
    data = lvd.data.Dataset(X, y, ("a", "b", "c"), ("y",), "made here", "none needed")
    short = {"hidden_sizes": (10,), "n_batches": 20}
    return {
        name: TableSplit(data, QuickProtocol(**asdict(protocol) | short), SEED)
        for name, protocol in PROTOCOLS.items()
    }


def network(split):
    return split.protocol.network(SEED)


def kernel(split, method="smooth"):
    return split.protocol.kernel(SEED, smoothness="nosmooth" not in method, device="cpu")


def second_network(split):
    """The paper's second network learns the errors of the first one, also around the kernel regression."""
    X, y = split.X[split.train], split.y[split.train]
    second = network(split).fit(X, np.abs(y - network(split).fit(X, y).predict(X)))
    return second.predict, second.embed


def variant(split, method):
    estimator, conformity_score = network(split), "absolute"
    if "-KR-" in method:
        estimator = lvd.KernelRegressor(
            estimator, kernel=kernel(split, method), device="cpu", random_state=SEED
        )
    if method.endswith("-MN"):
        # A user's second network learns the errors of what predicts: around the kernel regression, those of the
        # regression. The paper's learns those of the first network.
        second = second_network(split) if "-KR-" in method else network(split)
        conformity_score = lvd.scores.NormalizedResidual(second, errors="in_sample")
    return lvd.LVDRegressor(
        estimator, preset="paper", conformity_score=conformity_score, kernel=kernel(split, method)
    )


def conformal_method(split, method, level):
    """The class with the settings that the protocol names."""
    quantile = split.protocol.quantile
    if method in VARIANTS:
        return variant(split, method)
    return {
        "split": lambda: lvd.SplitConformalRegressor(network(split)),
        "MADSplit": lambda: lvd.MADSplitRegressor(
            network(split), error_estimator=network(split), errors="in_sample", quantile=quantile
        ),
        "CQR": lambda: lvd.ConformalizedQuantileRegressor(
            network(split), quantile=quantile, confidence_level=level
        ),
    }[method]()


UNCALIBRATED = {
    "DJ": lambda split: lvd.DiscriminativeJackknifeRegressor(random_state=SEED),
    "DE": lambda split: lvd.DeepEnsembleRegressor(random_state=SEED),
    "MCDP": lambda split: lvd.MCDropoutRegressor(random_state=SEED),
    "PBP": lambda split: lvd.PBPRegressor(random_state=SEED),
    "JackknifePlus": lambda split: lvd.JackknifePlusRegressor(
        network(split), cv=FOLDS, device="cpu", random_state=SEED
    ),
}


def of_a_user(split, method):
    """Predictions (n, L) and intervals (n, 2, L), level by level."""
    train, calib, test = lvd.data.split_indices(len(split.y), SEED, sizes=split.protocol.sizes)
    X, y, answers = split.X, split.y, []
    for levels in [[level] for level in LEVELS] if method == "CQR" else [LEVELS]:
        if method in UNCALIBRATED:
            rows = np.concatenate([train, calib]) if split.protocol.name == "sound" else train
            fitted = UNCALIBRATED[method](split).fit(X[rows], y[rows])
        else:
            fitted = conformal_method(split, method, levels[0])
            fitted.set_params(calib_size=None, device="cpu", random_state=SEED).fit(X[train], y[train])
            fitted.conformalize(X[calib], y[calib])
        answers += [fitted.predict_interval(X[test], level) for level in levels]
    y_pred, intervals = zip(*answers, strict=True)
    return np.stack(y_pred, axis=1), np.concatenate(intervals, axis=2)


@pytest.mark.parametrize(
    ("protocol", "method"),
    # The paper's protocol has other inputs, targets, quantiles and rows: a method of each kind shows these.
    [
        *(("sound", method) for method in METHODS),
        *(("paper", m) for m in (MAIN_VARIANT, "MADSplit", "CQR", "PBP")),
    ],
)
def test_bit_for_bit(splits, protocol, method):
    split = splits[protocol]
    found_pred, found_intervals = METHODS[method](split, np.array(LEVELS))
    y_pred, intervals = of_a_user(split, method)
    by_level = np.broadcast_to(found_pred.T, y_pred.T.shape).T
    np.testing.assert_array_equal(by_level, y_pred)
    np.testing.assert_array_equal(found_intervals, intervals)
    assert np.isfinite(intervals).any()


def test_every_public_method_is_there():
    shown = {"LVD" if name in VARIANTS else name for name in METHODS}
    assert shown == {"LVD", "split", "MADSplit", "CQR", *UNCALIBRATED}
