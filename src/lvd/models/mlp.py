"""The built-in multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


def build_mlp(
    n_inputs: int,
    hidden_sizes: Sequence[int],
    n_outputs: int,
    *,
    generator: torch.Generator,
    dropout: float = 0.0,
) -> nn.Sequential:
    """ReLU layers; with `dropout` > 0 a dropout layer stands before every Linear layer.

    The weights are those of torch's default Linear initialisation (weights, then bias, layer by layer), drawn
    from `generator`: nothing touches the generator of the process.
    """
    layers: list[nn.Module] = []
    sizes = [n_inputs, *hidden_sizes, n_outputs]
    for n_in, n_out in pairwise(sizes):
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        linear: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
        nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=generator)
        nn.init.uniform_(linear.bias, -(n_in**-0.5), n_in**-0.5, generator=generator)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
