"""Reading the last hidden layer out of any torch module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lvd._typing import Float
from lvd._validation import InputError


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every layer is in the mode it was in."""
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, training in modes:
            layer.training = training


def find_last_linear(module: nn.Module, sample: Tensor) -> str:
    """The name of the Linear layer that is called last when `module` runs on `sample`."""
    called: list[str] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _layer, _inputs, name=name: called.append(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        module(sample)
    finally:
        for hook in hooks:
            hook.remove()
    if not called:
        raise InputError(
            "no Linear layer is called in the module, so its embedding cannot be found; "
            f"name the layer of the embedding, one of: {_layer_names(module)}"
        )
    return called[-1]


def weights_in_float64(module: nn.Module) -> dict[str, Tensor]:
    """The module's parameters and buffers for :func:`forward_with_embedding`, its real numbers in float64."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.double() for name, tensor in state.items() if tensor.is_floating_point()}


def forward_with_embedding(
    module: nn.Module, layer: str, inputs: Tensor, weights: dict[str, Tensor] | None = None
) -> tuple[Any, Float[Tensor, "n h"]]:
    """The module's output, and what enters the named layer, flattened per row; `weights` stand in for its own."""
    layers = dict(module.named_modules())
    if layer not in layers:
        raise InputError(
            f"the embedding's layer {layer!r} is not in the module; choose one of: {_layer_names(module)}"
        )
    entered: list[Tensor] = []
    hook = layers[layer].register_forward_pre_hook(lambda _layer, arguments: entered.append(arguments[0]))
    try:
        output = module(inputs) if weights is None else functional_call(module, weights, (inputs,))
    finally:
        hook.remove()
    if not entered or len(entered[-1]) != len(inputs):
        raise InputError(
            f"the embedding's layer {layer!r} does not see one entry per row when the module runs; "
            f"choose another of: {_layer_names(module)}"
        )
    return output, entered[-1].flatten(1)


def as_predictions(output: Any, n_rows: int, n_targets: int) -> Float[Tensor, "n t"]:
    """The module's output as one column per target."""
    if not isinstance(output, Tensor):
        raise InputError(
            f"the module must return one tensor, got {type(output).__name__}; wrap it so that it does"
        )
    if output.shape == (n_rows,):
        output = output[:, None]
    if output.shape != (n_rows, n_targets):
        raise InputError(
            f"the module returns an output of shape {tuple(output.shape)} for {n_rows} rows; "
            f"it must return {n_targets} value(s) per row, as y has {n_targets} column(s)"
        )
    return output


def _layer_names(module: nn.Module) -> str:
    return ", ".join(name for name, _ in module.named_modules() if name) or "(the module has no layers)"
