"""How an experiment is done. Every departure from the paper's procedure has a name here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from lvd import InputError, MahalanobisKernel, NetRegressor


@dataclass(frozen=True)
class Protocol:
    """The choices that determine the numbers.

    `data` names the version of each table (the paper's Bike has its target among the inputs). `quantile` is the
    rule of MADSplit and CQR. `max_neighbors` limits the kernel's training neighbours. `uncalibrated_rows` sets
    the training rows of methods without a calibration step: the training part alone, or training and
    calibration part together. `interval_ends` says whether a y exactly at the end of its interval is covered;
    in Concrete, which has duplicate rows, this changes a printed digit. On QM8 and QM9 `scale_target` only
    affects CQR and deep ensembles: the paper's base networks had standardised targets. `split` is ``"random"``
    or, for molecules, ``"scaffold"``: no scaffold is in two of the three parts.
    """

    name: str
    data: str
    scale_inputs: bool
    scale_target: bool
    quantile: str
    max_neighbors: int | None
    uncalibrated_rows: str
    hidden_sizes: tuple[int, ...] = (100,)
    n_batches: int = 1000
    batch_size: int = 100
    learning_rate: float = 1e-2
    sizes: tuple[float, float, float] = (0.6, 0.2, 0.2)
    interval_ends: str = "closed"
    split: str = "random"

    @property
    def choices(self) -> dict[str, Any]:
        """The choices that name results, without interval ends, which do not change them, and random splits."""
        choices = asdict(self)
        del choices["interval_ends"]
        if self.split == "random":
            del choices["split"]
        return choices

    def network(self, seed: int) -> NetRegressor:
        """The base network of a split; every network of a split restarts from its seed."""
        return NetRegressor(
            hidden_sizes=self.hidden_sizes,
            n_batches=self.n_batches,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            scale_inputs=self.scale_inputs,
            scale_target=self.scale_target,
            device="cpu",
            random_state=seed,
        )

    def kernel(self, seed: int, *, smoothness: bool, device: str) -> MahalanobisKernel:
        """The kernel of a split."""
        return MahalanobisKernel(
            smoothness=smoothness,
            max_neighbors=self.max_neighbors,
            min_scale=1e-3,
            device=device,
            random_state=seed,
        )


PAPER = Protocol(
    name="paper",
    data="paper",
    scale_inputs=False,
    scale_target=False,
    quantile="percentile",
    max_neighbors=3000,
    uncalibrated_rows="train",
    interval_ends="open",
)
"""How the printed numbers were made."""

SOUND = Protocol(
    name="sound",
    data="sound",
    scale_inputs=True,
    scale_target=True,
    quantile="finite_sample",
    max_neighbors=None,
    uncalibrated_rows="train+calib",
)
"""What we recommend: no leak in Bike, scaled inputs and target, finite-sample quantiles."""

SCAFFOLD = replace(SOUND, name="scaffold", split="scaffold")
"""The same, on molecules whose scaffolds neither training nor calibration has seen."""

PROTOCOLS = {protocol.name: protocol for protocol in (PAPER, SOUND, SCAFFOLD)}


def get_protocol(name: str) -> Protocol:
    """The protocol with this name."""
    if name not in PROTOCOLS:
        raise InputError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {name!r}")
    return PROTOCOLS[name]
