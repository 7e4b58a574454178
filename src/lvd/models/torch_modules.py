"""Torch modules: building the MLP, training with Adam, and extracting the last hidden layer of any module."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError
from lvd.models.rows import NamedRows

Loss = Callable[[Tensor, Tensor], Tensor]
Parameters = dict[str, Tensor]
"""Parameters of networks of one shape: weights and biases by layer, stacked along a first axis."""
Inputs = Tensor | NamedRows
"""A module's input: a tensor, or several keyed by argument name."""
_PROCESS_GENERATORS = Lock()


def build_mlp(
    n_inputs: int, hidden_sizes: Sequence[int], n_outputs: int, *, generator: torch.Generator
) -> nn.Sequential:
    """Build an MLP: linear layers with ReLUs in between.

    The weights follow torch's default Linear initialisation (weights, then bias, layer by layer), drawn from
    `generator`; the global generator is untouched.
    """
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise([n_inputs, *hidden_sizes, n_outputs]):
        linear: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
        nn.init.kaiming_uniform_(linear.weight, a=math.sqrt(5), generator=generator)
        nn.init.uniform_(linear.bias, -(n_in**-0.5), n_in**-0.5, generator=generator)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def run_mlp(mlp: Any, inputs: Float[Tensor, "n p"]) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n h"]]:
    """The output of :func:`build_mlp`'s network in float64, and the input of its last layer.

    Equals :func:`forward_with_embedding`, without its hooks and copies of parameter names.
    """
    entered = output = inputs
    for layer in mlp:
        entered = output
        if isinstance(layer, nn.Linear):
            output = nn.functional.linear(entered, layer.weight.double(), layer.bias.double())
        else:
            output = layer(entered)
    return output, entered


def new_stack(n_members: int, sizes: Sequence[int], generator: torch.Generator) -> Parameters:
    """New multilayer perceptrons with these layer sizes, their parameters stacked along a first axis."""
    n_inputs, *hidden_sizes, n_outputs = sizes
    nets = [build_mlp(n_inputs, hidden_sizes, n_outputs, generator=generator) for _ in range(n_members)]
    parameters, _ = stack_module_state(nets)
    return {name: parameter.detach() for name, parameter in parameters.items()}


def layers(parameters: Parameters) -> list[tuple[Float[Tensor, "m o i"], Float[Tensor, "m o"]]]:
    """Weights and biases by layer."""
    tensors = list(parameters.values())
    return list(zip(tensors[0::2], tensors[1::2], strict=True))


def forward(
    parameters: Parameters, inputs: Float[Tensor, "m b p"], masks: Sequence[Tensor] | None = None
) -> Float[Tensor, "m b o"]:
    """Every member's output for its own rows; the input of layer k is multiplied by ``masks[k]``."""
    hidden = inputs
    for depth, (weight, bias) in enumerate(layers(parameters)):
        if depth > 0:
            hidden = hidden.relu()
        if masks is not None:
            hidden = hidden * masks[depth]
        hidden = torch.baddbmm(bias[:, None], hidden, weight.mT)
    return hidden


def call_module(module: nn.Module, inputs: Inputs, weights: dict[str, Tensor] | None = None) -> Any:
    """The module's output for a copy of the inputs, so it may write to them; `weights` replace its own."""
    places: tuple[Any, ...] = ()
    names: dict[str, Tensor] = {}
    if not isinstance(inputs, NamedRows):
        places = (inputs.clone(),)
    else:
        names = {name: tensor.clone() for name, tensor in inputs.arrays.items()}
        if takes_batch(module, names):
            places, names = (names,), {}
    if weights is None:
        return module(*places, **names)
    return functional_call(module, weights, places, names)


def argument_names(module: nn.Module) -> list[str] | None:
    """The argument names of the module's forward; None if it takes any."""
    parameters = signature(module.forward).parameters.values()
    if any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters):
        return None
    return [one.name for one in parameters]


def takes_batch(module: nn.Module, names: Iterable[str]) -> bool:
    """Whether it takes all arrays as one dict, as in ``forward(batch)``, rather than each by its name."""
    arguments = argument_names(module)
    return arguments is not None and len(arguments) == 1 and arguments[0] not in names


def to_tensors(rows: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """The rows as tensors; named integer arrays stay integers."""
    if not isinstance(rows, NamedRows):
        return torch.as_tensor(rows, dtype=dtype, device=device)
    tensors = {name: torch.as_tensor(array, device=device) for name, array in rows.arrays.items()}
    return NamedRows({name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()})


def draw_with_replacement(
    n_rows: int, n_batches: int, batch_size: int, seed: int
) -> Iterator[Int[NDArray, "b"]]:
    """`n_batches` batches of row indices, drawn with replacement."""
    rng = np.random.RandomState(seed)  # the paper's results used this generator
    for _ in range(n_batches):
        yield rng.choice(n_rows, batch_size)


@contextmanager
def own_random_numbers(seed: int) -> Iterator[None]:
    """Seed torch's global generators inside this block and restore them afterwards; one block at a time."""
    with _PROCESS_GENERATORS, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def train(
    module: nn.Module,
    inputs: Inputs,
    targets: Float[Tensor, "n t"],
    batches: Iterable[Int[NDArray, "b"]],
    *,
    learning_rate: float,
    weight_decay: float,
    loss: Loss,
    on_batch: Callable[[], None] | None,
) -> None:
    """Train `module` in place, one Adam step per batch."""
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate, weight_decay=weight_decay)
    module.train()
    value = targets.new_zeros(())
    for batch in batches:
        rows = torch.as_tensor(batch, device=targets.device)
        optimizer.zero_grad(set_to_none=True)
        value = loss(call_module(module, inputs[rows]), targets[rows])
        value.backward()
        optimizer.step()
        if on_batch is not None:
            on_batch()
    module.eval()
    if not torch.isfinite(value):
        raise InputError(
            f"training diverged: the last batch's loss is {value.item():g}; "
            "lower learning_rate, or scale the inputs and the target"
        )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; each layer returns to its previous mode afterwards."""
    training = [layer for layer in module.modules() if layer.training]
    if training:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer in training:
            layer.training = True


def find_last_linear(module: nn.Module, sample: Inputs) -> str:
    """The name of the Linear layer that `module` calls last on `sample`."""
    called: list[str] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _layer, _inputs, name=name: called.append(name))
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        call_module(module, sample)
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
    """The module's parameters and buffers for :func:`forward_with_embedding`, with floats as float64."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.double() for name, tensor in state.items() if tensor.is_floating_point()}


def forward_with_embedding(
    module: nn.Module, layer: str, inputs: Inputs, weights: dict[str, Tensor] | None = None
) -> tuple[Any, Float[Tensor, "n h"]]:
    """The module's output, and the named layer's input, flattened per row; `weights` replace its own."""
    layers = dict(module.named_modules())
    if layer not in layers:
        raise InputError(
            f"the embedding's layer {layer!r} is not in the module; choose one of: {_layer_names(module)}"
        )
    entered: list[Tensor] = []
    hook = layers[layer].register_forward_pre_hook(lambda _layer, arguments: entered.append(arguments[0]))
    try:
        output = call_module(module, inputs, weights)
    finally:
        hook.remove()
    if not entered or len(entered[-1]) != len(inputs):
        raise InputError(
            f"the embedding's layer {layer!r} does not see one entry per row when the module runs; "
            f"choose another of: {_layer_names(module)}"
        )
    return output, entered[-1].flatten(1)


def as_predictions(output: Any, n_rows: int, n_targets: int) -> Float[Tensor, "n t"]:
    """The module's output as one column per target, after checking its shape."""
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
