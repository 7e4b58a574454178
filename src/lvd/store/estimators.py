"""Scikit-learn estimators in skops format, which names types instead of running code."""

from __future__ import annotations

import copy
from io import BytesIO
from types import ModuleType
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from lvd._validation import InputError, MissingExtraError

TRUSTED = frozenset(
    {
        "functools.partial",
        "numpy.dtype",
        "numpy.mean",
        "scipy._lib.array_api_compat.numpy._aliases.asarray",
        "scipy.interpolate._bsplines.BSpline",
        *(f"scipy.sparse._{kind}.{kind}_{form}" for kind in ("csc", "csr") for form in ("array", "matrix")),
        "sklearn._loss.loss.HalfTweedieLoss",
        "sklearn._loss.loss.HalfTweedieLossIdentity",
        "sklearn.cluster._bisect_k_means._BisectingTree",
        "sklearn.cluster._kmeans._kmeans_single_elkan",
        "sklearn.cluster._kmeans._kmeans_single_lloyd",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.feature_selection._mutual_info.mutual_info_classif",
        "sklearn.feature_selection._mutual_info.mutual_info_regression",
        *(
            f"sklearn.feature_selection._univariate_selection.{name}"
            for name in ("chi2", "f_classif", "f_regression", "r_regression")
        ),
        *(
            f"sklearn.gaussian_process.kernels.{name}"
            for name in (
                *("CompoundKernel", "ConstantKernel", "DotProduct", "ExpSineSquared", "Exponentiation"),
                *("Matern", "Product", "RBF", "RationalQuadratic", "Sum", "WhiteKernel"),
            )
        ),
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
        "sklearn.utils.validation.check_array",
    }
)
"""Parts of scikit-learn's regressors and transformers that skops does not trust by default. They are listed by
name, because a rule such as "all of sklearn" would admit functions that read files. The functions among them only
compute with arrays; some are called through a ``partial``, whose content must be trusted too. Indices in trees
and splines are not checked: a forged file cannot run code, but can crash the process."""


SCHEMA_BYTES = 64 << 20
"""The longest description of an estimator, which takes up to 30 times the memory when parsed."""
SPARSE_RATIO = 20
"""A sparse matrix, which scipy compresses, may have this many times its packed size, plus `SCHEMA_BYTES`."""


def dump_estimator(estimator: Any, name: str) -> bytes:
    """The estimator in skops format, if every type in it could be loaded again."""
    io = _skops()
    try:
        data: bytes = io.dumps(estimator)
        untrusted = _untrusted(io, data)
    except Exception as error:  # skops passes on whatever the estimator's parts raise
        raise InputError(
            f"{name}, a {type(estimator).__name__}, cannot be saved: {error}; save it your own way "
            "and give lvd a pair of functions (predict, embed)"
        ) from error
    if untrusted:
        raise InputError(
            f"{name}, a {type(estimator).__name__}, cannot be saved: it holds {', '.join(untrusted)}, and only "
            "scikit-learn's own types are loaded again; save it your own way and give lvd a pair of functions "
            "(predict, embed)"
        )
    return data


def load_estimator(data: bytes, name: str) -> Any:
    """The estimator in a skops file, if it holds trusted types only."""
    io = _skops()
    try:
        _check_sizes(data)
        untrusted = _untrusted(io, data)
        if untrusted:
            raise InputError(f"it holds {', '.join(untrusted)}, which are not scikit-learn's own types")
        return io.loads(data, trusted=sorted(TRUSTED))
    except Exception as error:  # a damaged file can raise anything in a parser that is not ours
        raise InputError(
            f"{name} cannot be loaded: {error}; save the model again, with the scikit-learn installed here"
        ) from error


def without_last(pipeline: Any) -> Any:
    """The Pipeline with its last step removed."""
    shorter = copy.copy(pipeline)
    shorter.steps = [*pipeline.steps[:-1], (pipeline.steps[-1][0], "passthrough")]
    return shorter


def _check_sizes(data: bytes) -> None:
    """Refuse archives that grow when unpacked: `dump_estimator` does not compress."""
    with ZipFile(BytesIO(data)) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != ZIP_STORED for entry in entries):
            raise InputError("it is compressed, but lvd writes uncompressed files")
        if sum(entry.file_size for entry in entries) > len(data):
            raise InputError("it says that its parts are longer than the file")
        for entry in entries:
            with archive.open(entry) as part:
                packed = part.read(4) == b"PK\x03\x04"
            if entry.filename == "schema.json" and entry.file_size > SCHEMA_BYTES:
                raise InputError(
                    f"its schema.json has {entry.file_size:,} bytes, and may have {SCHEMA_BYTES:,}"
                )
            if packed and _unpacked(archive.read(entry)) > SPARSE_RATIO * entry.file_size + SCHEMA_BYTES:
                raise InputError(f"its part {entry.filename} is too large when it is unpacked")


def _unpacked(data: bytes) -> int:
    with ZipFile(BytesIO(data)) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def _untrusted(io: ModuleType, data: bytes) -> list[str]:
    return sorted(set(io.get_untrusted_types(data=data)) - TRUSTED)


def _skops() -> ModuleType:
    try:
        import skops.io
    except ModuleNotFoundError:
        raise MissingExtraError(
            "a model with a scikit-learn estimator is saved and loaded with skops, which is not installed; "
            'run: pip install "lvd[sklearn-models]"'
        ) from None
    return skops.io
