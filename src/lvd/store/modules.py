"""Torch modules as a state dict: the built-in MLP is rebuilt, other modules must be given again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lvd._validation import InputError


def describe_layers(module: nn.Module) -> list[Any] | None:
    """The layers of a plain MLP, to build it from again; None for any other module."""
    if type(module) is not nn.Sequential:
        return None
    layers: list[Any] = []
    for layer in module:
        if type(layer) is nn.Linear and layer.bias is not None:
            layers.append("linear")
        elif type(layer) is nn.ReLU:
            layers.append("relu")
        elif type(layer) is nn.Dropout:
            layers.append(["dropout", layer.p])
        else:
            return None
    return layers


def build_layers(layers: Sequence[Any], state: Mapping[str, Tensor]) -> nn.Sequential:
    """An MLP with the sizes of the weights in `state`, which are there already: no size is taken on trust."""
    built: list[nn.Module] = []
    for number, layer in enumerate(layers):
        match layer:
            case "linear":
                weight = state[f"{number}.weight"]
                n_outputs, n_inputs = weight.shape
                built.append(nn.utils.skip_init(nn.Linear, n_inputs, n_outputs, dtype=weight.dtype))
            case "relu":
                built.append(nn.ReLU())
            case ["dropout", p]:
                built.append(nn.Dropout(p))
            case _:
                raise InputError(f"unknown layer {layer!r}")
    return nn.Sequential(*built)


def load_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put saved weights into `module`; they must be its own, name by name."""
    wanted, found = (
        {key: _describe(tensor) for key, tensor in d.items()} for d in (state, module.state_dict())
    )
    differing = [key for key in wanted | found if wanted.get(key) != found.get(key)]
    if differing:
        raise InputError(
            "; ".join(
                f"{key}: saved {wanted.get(key, 'not at all')}, in the module {found.get(key, 'not at all')}"
                for key in differing[:3]
            )
        )
    module.load_state_dict(dict(state))


def _describe(tensor: Any) -> str:
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
