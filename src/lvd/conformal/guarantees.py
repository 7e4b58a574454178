"""What a radius promises, chosen at predict time: the rules that turn one calibration into radii."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd._validation import InputError, check_choice
from lvd.conformal import calibrated, engine
from lvd.conformal.calibration import Calibration, Part
from lvd.conformal.randomized import draw_centres, draw_shares
from lvd.conformal.rows import Places, Rows

GUARANTEES = ("local", "randomized", "calibrated")


@dataclass(frozen=True)
class Rule:
    """A `guarantee`, whether it is met exactly by a draw (`smoothed`), and the seed of what is drawn."""

    guarantee: str = "local"
    smoothed: bool = False
    seed: int = 0

    def check(self, *, floored: bool) -> Rule:
        """Refuse what makes no sense."""
        check_choice(self.guarantee, "guarantee", GUARANTEES)
        if self.smoothed and self.guarantee != "randomized":
            raise InputError(
                f'smoothed=True goes with guarantee="randomized" alone, got {self.guarantee!r}; leave it out'
            )
        if floored and self.guarantee == "randomized":
            raise InputError(
                'guarantee="randomized" draws from the kernel as a density, and one with a floor is none; '
                'give guarantee="calibrated", or conformalize with kernel_floor=0'
            )
        return self

    def radii(
        self, rows: Rows, calibration: Calibration, levels: Float[NDArray, "l"], *, mirrored: bool = False
    ) -> Float[Tensor, "n l"]:
        """The radius of each row from the calibration rows of its group; +inf in a group without any."""

        def ask(part: Part, places: Places) -> Tensor:
            return self.radius(*rows.at(places), part, levels, keys=rows.keys_at(places), mirrored=mirrored)

        unseen = rows.points.new_full((len(rows.points), len(levels)), torch.inf)
        return calibration.answer(rows, unseen, ask)

    def radius(
        self,
        queries: Float[Tensor, "n k"],
        self_weights: Float[Tensor, "n"] | None,
        part: Part,
        levels: Float[NDArray, "l"],
        *,
        keys: NDArray | None = None,
        mirrored: bool = False,
    ) -> Float[Tensor, "n l"]:
        """Radii from the calibration rows of one group; `mirrored` for scores with their signs turned round.

        `keys` are what the draws belong to, by default the queries themselves.

        The smoothed form keeps v while ``p(v) = sum_i w_i 1{V_i > v} + U w_test > alpha``: it leaves the share U of
        the query's own mass at +inf and moves the rest to -inf.
        """
        chosen = part.mirrored if mirrored else part
        if self.guarantee == "calibrated":
            return calibrated.radius(queries, chosen.sorted, chosen.standing, levels, self_weights)
        if self.guarantee == "local":
            return engine.radius(queries, chosen.sorted, levels, self_weights)
        centres = draw_centres(queries, self.seed, keys)
        own = (centres - queries).square().sum(1).neg().exp()
        if self_weights is not None:
            own *= self_weights
        if not self.smoothed:
            return engine.radius(centres, chosen.sorted, levels, own)
        at_infinity = own * draw_shares(queries, self.seed, keys)
        above, below = (own - at_infinity, at_infinity) if mirrored else (at_infinity, own - at_infinity)
        return engine.radius(centres, chosen.sorted, levels, above, below)
