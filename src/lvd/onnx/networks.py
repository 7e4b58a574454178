"""Networks in the graph, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import nn

from lvd._typing import NDArray
from lvd._validation import InputError
from lvd.models.regressor import FAR_SHARE, NetRegressor
from lvd.models.torch_modules import Parameters, layers
from lvd.onnx.graph import DOUBLE, SINGLE, Node


def softplus(x: Node) -> Node:
    """``log(1 + e^x)``, without overflow for large x."""
    return x.at_least(0.0) + ((-x.then("Abs")).then("Exp") + 1.0).then("Log")


def _in_double(tensor: Any) -> NDArray:
    array: NDArray = tensor.detach().cpu().double().numpy()
    return array


def _linear(x: Node, layer: Any) -> Node:
    product = x @ _in_double(layer.weight).T
    return product if layer.bias is None else product + _in_double(layer.bias)


def _batch_norm(x: Node, layer: Any) -> Node:
    if layer.running_mean is None:
        raise InputError("a BatchNorm1d without running statistics cannot be exported to ONNX")
    centred = (x - _in_double(layer.running_mean)) / np.sqrt(_in_double(layer.running_var) + layer.eps)
    return _rescaled(centred, layer)


def _layer_norm(x: Node, layer: Any) -> Node:
    centred = x - x.reduce("Mean")
    variance = (centred * centred).reduce("Mean")
    return _rescaled(centred / (variance + layer.eps).then("Sqrt"), layer)


def _rescaled(x: Node, layer: Any) -> Node:
    scaled = x if layer.weight is None else x * _in_double(layer.weight)
    return scaled if layer.bias is None else scaled + _in_double(layer.bias)


def _gelu(x: Node, layer: Any) -> Node:
    if layer.approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * float(np.sqrt(2.0 / np.pi))
        return x * 0.5 * (inner.then("Tanh") + 1.0)
    # On most machines the operator only supports float32.
    error = (x * float(np.sqrt(0.5))).cast(SINGLE).then("Erf").cast(x.dtype)
    return x * 0.5 * (error + 1.0)


LAYERS: dict[type[nn.Module], Callable[[Node, Any], Node]] = {
    nn.Linear: _linear,
    nn.ReLU: lambda x, _: x.at_least(0.0),
    nn.LeakyReLU: lambda x, layer: x.at_least(0.0) + x.at_most(0.0) * layer.negative_slope,
    nn.ELU: lambda x, layer: x.at_least(0.0) + (x.at_most(0.0).then("Exp") - 1.0) * layer.alpha,
    nn.Tanh: lambda x, _: x.then("Tanh"),
    nn.Sigmoid: lambda x, _: x.then("Sigmoid"),
    nn.SiLU: lambda x, _: x * x.then("Sigmoid"),
    nn.GELU: _gelu,
    nn.Softplus: lambda x, layer: softplus(x * layer.beta) / layer.beta,
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    **dict.fromkeys((nn.Dropout, nn.Identity, nn.Flatten), lambda x, _: x),
}
"""The layers that can be exported; in evaluation mode Dropout does nothing."""


def network_outputs(net: NetRegressor, X: Node) -> tuple[Node, Node]:
    """Predictions and embeddings of :meth:`NetRegressor.evaluate`."""
    if "n_features_in_" not in vars(net):
        raise InputError("a network that takes several arrays by name cannot be exported to ONNX")
    scaled = (X - net.x_mean_) / net.x_scale_
    farthest = vars(net).get("farthest_")
    if farthest is not None:
        inside = scaled.within(farthest)
        scaled = inside + (scaled - inside) * FAR_SHARE
    hidden = scaled.cast(DOUBLE if vars(net).get("in_float64_", net.module is None) else SINGLE)
    entered = hidden
    for name, layer in _one_by_one(net.module_, ""):
        if name == net.embedding_layer_:
            entered = hidden
        if type(layer) not in LAYERS:
            known = ", ".join(one.__name__ for one in LAYERS)
            raise InputError(
                f"a network with a {type(layer).__name__} cannot be exported to ONNX; an nn.Sequential of these "
                f"can: {known}"
            )
        hidden = LAYERS[type(layer)](hidden, layer)
    return hidden.cast(DOUBLE).shaped(-1, net.n_targets_) * net.y_scale_ + net.y_mean_, entered.cast(DOUBLE)


def _one_by_one(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of a Sequential in order, by their full names."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for number, layer in module.named_children():
        yield from _one_by_one(layer, f"{name}.{number}".lstrip("."))


def run_stack(parameters: Parameters, inputs: Node) -> Node:
    """The outputs (m, n, o) of all members of a stack of networks, in the inputs' precision."""
    hidden = inputs
    for depth, (weight, bias) in enumerate(layers(parameters)):
        hidden = hidden.at_least(0.0) if depth else hidden
        hidden = hidden @ _in_double(weight).swapaxes(1, 2) + _in_double(bias)[:, None]
    return hidden


NODE_OF_ACTIVATION: Mapping[str, Callable[[Node], Node]] = {
    "identity": lambda x: x,
    "logistic": lambda x: x.then("Sigmoid"),
    "tanh": lambda x: x.then("Tanh"),
    "relu": lambda x: x.at_least(0.0),
}
"""The output activations of scikit-learn's MLPRegressor."""


def run_sklearn_mlp(mlp: Any, inputs: Node) -> tuple[Node, Node]:
    """Predictions of a fitted MLPRegressor, and the input of its output layer."""
    hidden = entered = inputs
    for depth, (weights, bias) in enumerate(zip(mlp.coefs_, mlp.intercepts_, strict=True)):
        entered = hidden
        hidden = hidden @ weights + bias
        if depth < len(mlp.coefs_) - 1:
            hidden = NODE_OF_ACTIVATION[mlp.activation](hidden)
    return hidden if mlp.out_activation_ == "identity" else hidden.then("Exp"), entered
