"""Trained chemprop networks, used as they are."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

from sklearn.base import BaseEstimator

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, row_digests
from lvd.models.model import Evaluation, Model
from lvd.molecules.features import ATOM_FEATURIZERS, read_molecules
from lvd.molecules.lazy import chemprop_adapter
from lvd.molecules.network import run_all, to_evaluation
from lvd.molecules.packed import Molecules

MOLECULE_SETTINGS = ("keep-h", "add-h", "ignore-stereo", "reorder-atoms")
"""Settings of the chemprop command that change the graphs of molecules and that no checkpoint records."""


@dataclass(eq=False, repr=False)
class TrainedMPNN(Model, BaseEstimator):
    """A trained ``chemprop.models.MPNN`` for regression; it is not modified and stays on its device.

    The embedding is the last hidden layer of the feed-forward part, after its activation. Networks with mean,
    sum or norm aggregation run on packed batches with lvd's own sums; others use chemprop's forward pass. If a
    network also outputs its uncertainty, only the prediction is used.

    Parameters
    ----------
    module : the network.
    atom_featurizer : the atom features it was trained on; ``"auto"`` infers them from their number.
    target_names : the targets' names, by column, if known.
    cache_features, n_jobs : as in :class:`ChempropEstimator`.
    """

    prefit: ClassVar[bool] = True

    module: Any
    _: KW_ONLY
    atom_featurizer: str = "auto"
    target_names: tuple[str, ...] | None = None
    cache_features: bool = True
    n_jobs: int = -1

    def check(self, X: ArrayLike) -> Molecules:
        """Convert SMILES, from a list, array or column, to graphs; an error names rows that RDKit cannot read."""
        adapter = chemprop_adapter()
        adapter.check_usable(self.module)
        fitting = adapter.find_featurizer(self.module, ATOM_FEATURIZERS)
        if self.atom_featurizer not in ("auto", fitting):
            raise InputError(
                f"atom_featurizer={self.atom_featurizer!r} does not give the features that the network takes; "
                f"{fitting!r} does"
            )
        return read_molecules(X, atom_featurizer=fitting, n_jobs=self.n_jobs, cache=self.cache_features)

    def same_case(self, X: Any) -> NDArray:
        """Labels by molecule: rows with the same molecule, however it is written, are one case."""
        return row_digests(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> TrainedMPNN:
        """Check the number of targets; there is nothing to train."""
        if self.module.n_tasks != y.shape[1]:
            raise InputError(
                f"the network predicts {self.module.n_tasks} target(s), but y has {y.shape[1]} column(s)"
            )
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Predict and embed."""
        return to_evaluation(*run_all(self.module, self.check(X)))


def trained_mpnn(estimator: Any, *, prefit: bool) -> TrainedMPNN:
    """The model of a chemprop network, which must already be trained."""
    if not isinstance(estimator, chemprop_adapter().MPNN):
        raise InputError(
            f"of chemprop's classes, lvd takes a trained MPNN, got {type(estimator).__name__}; to train one, "
            "give a ChempropEstimator"
        )
    if not prefit:
        raise InputError(
            "a chemprop MPNN must already be trained, with prefit=True; to train one, give a ChempropEstimator"
        )
    return TrainedMPNN(estimator)


def read_trusted_checkpoint(path: str | os.PathLike[str]) -> TrainedMPNN:
    """Read a network from a chemprop ``.ckpt`` or ``.pt`` file, for use with ``prefit=True``.

    Reading such a file can run any code: only read files that you would trust as a program. Models saved by lvd
    itself are safe, and are read by :func:`lvd.load`.
    """
    try:
        module, names = chemprop_adapter().read_checkpoint(path)
    except InputError:
        raise
    except Exception as error:  # unpickling can raise anything
        raise InputError(
            f"{os.fspath(path)!r} cannot be read as a checkpoint of chemprop 2 ({type(error).__name__}: {error})"
        ) from error
    refuse_other_graphs(Path(path))
    return TrainedMPNN(module, target_names=names)


def refuse_other_graphs(checkpoint: Path) -> None:
    """Raise for chemprop settings, in a file next to the checkpoint, that change how molecules become graphs.

    Warn if there is no such file, since the settings are then unknown.
    """
    beside = (folder / "config.toml" for folder in checkpoint.absolute().parents[:3])
    files = [file for file in beside if file.is_file()]
    if not files:
        warnings.warn(
            f"there is no config.toml near {os.fspath(checkpoint)!r}, where chemprop notes the settings of a "
            f"training: if it was trained with {' or '.join(MOLECULE_SETTINGS)}, which lvd does not support, "
            "predictions are wrong; compare some with those of chemprop predict",
            stacklevel=3,
        )
    for file in files:
        text = file.read_text(errors="replace")
        found = [name for name in MOLECULE_SETTINGS if re.search(rf"^{name}\s*=\s*true", text, re.MULTILINE)]
        if found:
            raise InputError(
                f"{os.fspath(checkpoint)!r} was trained with {found[0]} (see {file}), which lvd does not support; "
                "train it without that setting"
            )
