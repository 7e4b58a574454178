"""Charts as data: positions in the drawing, for the template to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lvd._typing import Float, NDArray

WIDTH, HEIGHT = 480.0, 330.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 24.0, 12.0, 46.0


@dataclass(frozen=True)
class Shape:
    """A mark: its element, CSS class and attributes, and a text that is shown when it is pointed at."""

    element: str
    css: str
    attributes: dict[str, str | float]
    tip: str = ""
    text: str = ""


@dataclass(frozen=True)
class Scale:
    """From values to positions along one axis of the drawing."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The position, to a tenth of a unit; values outside lie on the border."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)


@dataclass(frozen=True)
class Chart:
    """A drawing with two axes; `label` is its text alternative."""

    label: str
    x_title: str
    y_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    shapes: tuple[Shape, ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def x_scale(low: float, high: float) -> Scale:
    """A horizontal axis from low to high."""
    return Scale(low, high, LEFT, WIDTH - RIGHT)


def y_scale(low: float, high: float) -> Scale:
    """A vertical axis from low, below, to high."""
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def nice_ticks(high: float, n_most: int = 6) -> list[float]:
    """Round numbers from 0 to at most `high`, at most `n_most` of them."""
    step = 10.0 ** math.floor(math.log10(high / n_most))
    step *= next(factor for factor in (1, 2, 5, 10) if high / (step * factor) < n_most)
    return [step * i for i in range(math.floor(high / step + 1e-9) + 1)]


def ticks(scale: Scale, values: Sequence[float], texts: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Positions of values with their texts."""
    return tuple((scale(value), text) for value, text in zip(values, texts, strict=True))


def polyline(css: str, x: Scale, y: Scale, xs: Float[NDArray, "k"], ys: Float[NDArray, "k"]) -> Shape:
    """A line through points."""
    return Shape("polyline", css, {"points": _points(x, y, xs, ys)})


def area(
    css: str,
    x: Scale,
    y: Scale,
    xs: Float[NDArray, "k"],
    ends: tuple[Float[NDArray, "k"], Float[NDArray, "k"]],
) -> Shape:
    """The area between two lines."""
    lower, upper = ends
    both = _points(x, y, np.concatenate([xs, xs[::-1]]), np.concatenate([upper, lower[::-1]]))
    return Shape("polygon", css, {"points": both})


def line(css: str, x1: float, y1: float, x2: float, y2: float) -> Shape:
    """A straight line between two positions."""
    return Shape("line", css, {"x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _points(x: Scale, y: Scale, xs: Float[NDArray, "k"], ys: Float[NDArray, "k"]) -> str:
    return " ".join(f"{x(a):g},{y(b):g}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True))
