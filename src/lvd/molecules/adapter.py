"""Everything that lvd needs from chemprop's networks and features.

chemprop's networks are described in JSON types and rebuilt from that description, so a model can be saved
without pickling.
"""

from __future__ import annotations

import inspect
import json
import os
from typing import Any, Literal

import torch
from chemprop import __version__ as chemprop_version
from chemprop.featurizers import MultiHotAtomFeaturizer, SimpleMoleculeMolGraphFeaturizer
from chemprop.featurizers.atom import RIGRAtomFeaturizer
from chemprop.featurizers.bond import RIGRBondFeaturizer
from chemprop.models import MPNN
from chemprop.nn import (
    AtomMessagePassing,
    AttentiveAggregation,
    BondMessagePassing,
    MeanAggregation,
    NormAggregation,
    RegressionFFN,
    SumAggregation,
)
from chemprop.nn.predictors import EvidentialFFN, MveFFN, QuantileFFN
from chemprop.nn.transforms import GraphTransform, ScaleTransform, UnscaleTransform
from rdkit import __version__ as rdkit_version
from torch import Tensor, nn

from lvd._validation import InputError
from lvd.molecules.forward import Route
from lvd.store.decoding import load_state

VERSIONS = chemprop_version, rdkit_version
"""The fields that determine a molecule's features."""
MESSAGES, AGGREGATIONS, PREDICTORS = (
    {part.__name__: part for part in parts}
    for parts in (
        (BondMessagePassing, AtomMessagePassing),
        (MeanAggregation, SumAggregation, NormAggregation, AttentiveAggregation),
        (RegressionFFN, MveFFN, QuantileFFN, EvidentialFFN),
    )
)
"""The supported parts of a network, by name."""
OF_TRAINING = ("metrics.", "predictor.criterion.")
"""Prefixes of state dict entries that do not affect predictions."""
OTHERWISE_KNOWN = ("cls", "criterion", "task_weights", "threshold", "output_transform", "graph_transform")
"""Settings of a part that only matter in training, or that are not JSON types and described separately."""
ELSEWHERE = ("device", "dtype", "inplace")
"""Constructor arguments that do not affect any value."""
NO_CHANGE = [0, 0]
"""The widths of an identity graph transform."""


def graph_featurizer(name: str) -> SimpleMoleculeMolGraphFeaturizer:
    """The featurizer with this name."""
    if name == "rigr":
        return SimpleMoleculeMolGraphFeaturizer(RIGRAtomFeaturizer(), RIGRBondFeaturizer())
    return SimpleMoleculeMolGraphFeaturizer(getattr(MultiHotAtomFeaturizer, name)())


def find_featurizer(module: MPNN, names: tuple[str, ...]) -> str:
    """The one of `names` whose feature widths match the network's."""
    messages = module.message_passing.hparams
    for name in names:
        if graph_featurizer(name).shape == (messages["d_v"], messages["d_e"]):
            return name
    raise InputError(
        f"the network takes {messages['d_v']} features per atom and {messages['d_e']} per bond, which none of "
        f"chemprop's featurizers {', '.join(names)} gives; networks with custom features are not supported"
    )


def new_mpnn(
    *, n_outputs: int, widths: tuple[int, int], hidden_size: int, depth: int, generator: torch.Generator
) -> MPNN:
    """A network built as in chemprop 1, with Xavier-normal weights and zero biases from `generator`.

    Directed bond messages, mean aggregation, and a feed-forward part with one hidden layer; ReLU throughout.
    """
    with torch.random.fork_rng(devices=[]):  # chemprop's own initial weights, replaced below
        module = MPNN(
            BondMessagePassing(*widths, d_h=hidden_size, depth=depth),
            MeanAggregation(),
            RegressionFFN(n_tasks=n_outputs, input_dim=hidden_size, hidden_dim=hidden_size),
        )
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter, generator=generator)
        else:
            nn.init.zeros_(parameter)
    return module


def find_route(module: MPNN) -> Route:
    """Which parts of the forward pass lvd can run itself, judged by the classes of chemprop's parts."""
    messages = module.message_passing
    return Route(
        divisor=_divisor(module.agg),
        bond_messages=type(messages) is BondMessagePassing
        and _scaled_widths(messages.graph_transform) == NO_CHANGE
        and not messages.undirected,
    )


def _divisor(aggregation: Any) -> Literal["atoms"] | float | None:
    if type(aggregation) is MeanAggregation:
        return "atoms"
    if type(aggregation) is SumAggregation:
        return 1.0
    if type(aggregation) is NormAggregation:
        return float(aggregation.norm)
    return None


def check_usable(module: MPNN) -> None:
    """Raise for networks that do not predict numbers or need more than one molecule per row."""
    if type(module) is not MPNN:
        raise InputError(f"a {type(module).__name__} is not supported; give a chemprop.models.MPNN")
    if type(module.message_passing) not in MESSAGES.values():
        raise InputError(
            f"the network passes messages by a {type(module.message_passing).__name__}; lvd takes networks of one "
            f"molecule per row: {', '.join(MESSAGES)}. Reactions and several molecules per row are not supported"
        )
    if type(module.predictor) not in PREDICTORS.values():
        raise InputError(
            f"the network ends in a {type(module.predictor).__name__}; lvd takes networks for regression: "
            f"{', '.join(PREDICTORS)}"
        )
    if (
        module.predictor.input_dim != module.message_passing.output_dim
        or module.message_passing.W_d is not None
    ):
        raise InputError(
            "the network takes extra descriptors besides the molecule, which is not supported; "
            "train one on the molecules alone"
        )


def weights(module: MPNN) -> dict[str, Tensor]:
    """The part of the network's state that predictions depend on."""
    return {key: value for key, value in module.state_dict().items() if not key.startswith(OF_TRAINING)}


def describe(module: MPNN) -> dict[str, Any]:
    """Describe the network's structure in JSON types; together with `weights` it is complete."""
    check_usable(module)
    transform = module.predictor.output_transform
    return {
        "message_passing": _describe_part(module.message_passing, MESSAGES),
        "agg": _describe_part(module.agg, AGGREGATIONS),
        "predictor": _describe_part(module.predictor, PREDICTORS),
        "batch_norm": not isinstance(module.bn, nn.Identity),
        "n_scaled": transform.mean.shape[1] if isinstance(transform, UnscaleTransform) else 0,
        "graph_scaled": _scaled_widths(module.message_passing.graph_transform),
    }


def build(description: dict[str, Any], state: dict[str, Tensor]) -> MPNN:
    """Build the network from its description and weights."""
    messages, agg, predictor = (description[part] for part in ("message_passing", "agg", "predictor"))
    n_scaled = description["n_scaled"]
    transform = UnscaleTransform([0.0] * n_scaled, [1.0] * n_scaled) if n_scaled else None
    graphs = _graph_transform(description.get("graph_scaled", NO_CHANGE))  # lvd 0.2.0 did not save one
    with torch.random.fork_rng(devices=[]):  # initial weights, replaced below
        module = MPNN(
            MESSAGES[messages["class"]](**_settings(messages), graph_transform=graphs),
            AGGREGATIONS[agg["class"]](**agg["settings"]),
            PREDICTORS[predictor["class"]](**_settings(predictor), output_transform=transform),
            batch_norm=description["batch_norm"],
        )
    of_training = {key: value for key, value in module.state_dict().items() if key.startswith(OF_TRAINING)}
    load_state(module, {**of_training, **state})
    return module.eval()


def _describe_part(part: Any, classes: dict[str, type[nn.Module]]) -> dict[str, Any]:
    name, known = type(part).__name__, part.hparams
    if classes.get(name) is not type(part):
        raise InputError(f"a network with a {name} cannot be saved; only chemprop's own parts can")
    settings = {
        key: describe_activation(value) if key == "activation" else value
        for key, value in known.items()
        if key not in OTHERWISE_KNOWN and value is not None
    }
    try:
        return {"class": name, "settings": json.loads(json.dumps(settings))}
    except TypeError:
        raise InputError(f"a network whose {name} has settings {settings} cannot be saved") from None


def _settings(part: dict[str, Any]) -> dict[str, Any]:
    return part["settings"] | {"activation": build_activation(part["settings"].get("activation", "relu"))}


def describe_activation(activation: Any) -> Any:
    """The activation's name, or torch's class and constructor arguments; its weights are saved separately."""
    if not isinstance(activation, nn.Module):
        return str(activation)
    name = type(activation).__name__
    if _activation_class(name) is not type(activation):
        raise InputError(f"a network with the activation {name} cannot be saved; only torch's own can")
    settings = {argument: getattr(activation, argument, None) for argument in _arguments(type(activation))}
    if not all(isinstance(value, bool | int | float | str | None) for value in settings.values()):
        raise InputError(f"a network whose activation is {activation} cannot be saved")
    return {"class": name, "settings": settings}


def build_activation(description: Any) -> Any:
    """Build the activation from its description."""
    if isinstance(description, str):
        return description
    found = _activation_class(description["class"])
    if found is None:
        raise InputError(f"torch has no activation {description['class']!r}; it is needed by a saved network")
    return found(**description["settings"])


def _activation_class(name: str) -> type[nn.Module] | None:
    known = nn.modules.activation.__all__
    return getattr(nn.modules.activation, name) if name in known else None


def _arguments(cls: type[nn.Module]) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    return [
        one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.name not in ELSEWHERE
    ]


def _scaled_widths(transform: Any) -> list[int]:
    """How many atom and bond features a network scales before message passing; 0 for none."""
    if isinstance(transform, nn.Identity):
        return NO_CHANGE
    parts = (transform.V_transform, transform.E_transform)
    return [part.mean.shape[1] if isinstance(part, ScaleTransform) else 0 for part in parts]


def _graph_transform(widths: list[int]) -> GraphTransform | None:
    """A transform of these widths, whose weights are loaded with the network's."""
    if widths == NO_CHANGE:
        return None
    return GraphTransform(*(ScaleTransform([0.0] * n, [1.0] * n) if n else nn.Identity() for n in widths))


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[MPNN, tuple[str, ...] | None]:
    """Read a network from a chemprop ``.ckpt`` or ``.pt`` file, with the names of its targets if known.

    Reading the file can run code in it.
    """
    content = torch.load(path, map_location="cpu", weights_only=False)
    if "atom_predictor" in content["hyper_parameters"]:
        raise InputError(
            f"{os.fspath(path)!r} holds a network for properties of atoms or bonds, which is not supported"
        )
    read = MPNN.load_from_checkpoint if os.fspath(path).endswith(".ckpt") else MPNN.load_from_file
    module, names = read(path, map_location="cpu").eval(), content.get("output_columns")
    check_usable(module)
    return module, None if names is None else tuple(map(str, names))
