"""From JSON and tensors back to objects; anything that `encoding` would not write is refused."""

from __future__ import annotations

import copy
import os
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter as Argument
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from lvd._validation import InputError, MissingExtraError, Parameter, note_origin, resolve_device
from lvd.store.boosters import load_booster
from lvd.store.encoding import DTYPES, STORABLES, Storable, class_named, extension, full_name, is_code
from lvd.store.estimators import load_estimator
from lvd.store.folder import MANIFEST, REMEDY, Contents, read_folder

MOST_TIMES, LEAST_BYTES = 4, 1 << 24
"""lvd's own files refer to each tensor and file once. A description may refer to at most this many times the
bytes of the folder, plus a fixed allowance for small folders."""
LEARNED = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*")


def load_object(
    folder: str | os.PathLike[str], given: Mapping[str, Any], trusted: Sequence[type[Any] | str] = ()
) -> Any:
    """The object that :func:`save_object` wrote; of classes outside lvd, only `trusted` ones are created.

    `given` holds the functions and torch modules that the object was constructed with, by parameter name: they
    are not in the folder. None counts as not given.
    """
    given = {name: part for name, part in given.items() if part is not None}
    contents = read_folder(folder)
    decoder = _Decoder(contents, given, [class_named(one) for one in trusted])
    try:
        for entry in contents.description["objects"]:
            decoder.objects.append(decoder.object(entry))
        root = decoder.objects[-1]
    except (_NotGivenError, MissingExtraError):
        raise
    except Exception as error:  # what is in the file decides which error it is
        raise InputError(
            f"{MANIFEST} in {os.fspath(folder)!r} does not describe a model that can be rebuilt "
            f"({type(error).__name__}: {error}); {REMEDY}"
        ) from error
    storable = decoder.classes.get(str(contents.description.get("class")))
    if storable is None or not storable.root or type(root) is not storable.cls:
        raise InputError(
            f"{MANIFEST} in {os.fspath(folder)!r} describes a {type(root).__name__}, which is not a model; {REMEDY}"
        )
    if unused := given.keys() - decoder.used:
        raise InputError(f"{min(unused)}= is not needed to load this model: leave it out")
    if not given:
        note_origin(root, os.fspath(folder))
    return root


class _NotGivenError(InputError):
    """Something that is not in the folder was not given, or does not match what was saved."""


class _Decoder:
    """Rebuilds the objects in order, so that references are always to finished ones."""

    def __init__(self, contents: Contents, given: Mapping[str, Any], trusted: Sequence[type[Any]]) -> None:
        self.objects: list[Any] = []
        self.used: set[str] = set()
        self._contents = contents
        self.classes = {cls.__name__: storable for cls, storable in STORABLES.items()}
        self.classes |= {full_name(cls): extension(cls, root=True) for cls in trusted}
        self._given = given
        self._read: dict[tuple[str, str], Any] = {}
        self._bytes = 0
        self._most = LEAST_BYTES + MOST_TIMES * sum(
            (
                *(tensor.nbytes for tensor in contents.tensors.values()),
                *map(len, contents.estimators.values()),
            )
        )
        self._by_tag: dict[str, Callable[[Any], Any]] = {
            "float": float,
            "tuple": lambda items: tuple(self.value(item) for item in items),
            "dict": lambda pairs: {self.value(key): self.value(item) for key, item in pairs},
            "array": lambda name: self._shared("array", name),
            "fortran array": lambda name: self._shared("fortran array", name),
            "texts": _texts,
            "scalar": self._scalar,
            "tensor": lambda name: self._shared("tensor", name),
            "given": lambda content: self._ask(*content),
            "object": self._reference,
        }

    def value(self, node: Any) -> Any:
        """The value that was encoded as `node`."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        ((tag, content),) = node.items()
        return self._by_tag[tag](content)

    def object(self, entry: Mapping[str, Any]) -> Any:
        """The object of one entry of the list."""
        if "class" in entry:
            return self._known(entry)
        if "state" in entry:
            return self._module(entry)
        if "booster" in entry:
            return self._booster(entry)
        file = entry["estimator"]
        estimator = load_estimator(self._file(file), file)
        if "last" in entry:
            estimator.steps[-1] = estimator.steps[-1][0], self.value(entry["last"])
        return estimator

    def _count(self, n_bytes: int) -> None:
        """Refuse a description that would exhaust memory by repeated references."""
        self._bytes += n_bytes
        if self._bytes > self._most:
            raise InputError(f"it refers to more than {self._most:,} bytes, many times what the folder holds")

    def _shared(self, kind: str, name: str) -> Any:
        """An array or tensor, shared by all references to it."""
        tensor = self._contents.tensors[name]
        self._count(tensor.nbytes)
        if (kind, name) not in self._read:
            order: Literal["C", "F"] = "F" if kind == "fortran array" else "C"
            value = tensor.clone() if kind == "tensor" else np.array(tensor.numpy(), order=order)
            self._read[kind, name] = value
        return self._read[kind, name]

    def _file(self, name: str) -> bytes:
        data = self._contents.estimators[name]
        self._count(len(data))
        return data

    def _booster(self, entry: Mapping[str, Any]) -> Any:
        parameters = {name: self.value(node) for name, node in entry["parameters"].items()}
        file = entry["file"]
        data = None if file is None else self._file(file)
        library, kind = entry["booster"]
        return load_booster(library, kind, parameters, data)

    def _known(self, entry: Mapping[str, Any]) -> Any:
        name = entry["class"]
        if ":" in name and name not in self.classes:
            raise _NotGivenError(
                f"this model holds a {name}, a class of its user's own, whose code would run; if you trust "
                "it, give ",
                Parameter("trusted", [name]),
            )
        storable = self.classes[name]
        value = object.__new__(storable.cls)
        saved = (
            {name: self.value(node) for name, node in entry[part].items()}
            for part in ("parameters", "learned")
        )
        parameters, learned = saved
        vars(value).update(self._parameters(storable, parameters))
        for name in learned:
            if not LEARNED.fullmatch(name) or name in vars(value) or hasattr(storable.cls, name):
                raise InputError(f"{name!r} cannot be the name of a learned attribute")
        if "device" in vars(value):
            learned = {name: _placed(item, value) for name, item in learned.items()}
        vars(value).update(learned)
        for finish in (storable.check, storable.complete):
            if finish is not None:
                finish(value)
        return value

    def _parameters(self, storable: Storable, saved: Mapping[str, Any]) -> dict[str, Any]:
        """The saved parameters; those that did not exist when the model was saved have their defaults."""
        known = storable.parameters
        if unknown := saved.keys() - known.keys():
            raise InputError(f"{storable.cls.__name__} has no parameter {min(unknown)!r}")
        values = {name: saved[name] if name in saved else known[name].default for name in known}
        if missing := [name for name, value in values.items() if value is Argument.empty]:
            raise InputError(f"{storable.cls.__name__} lacks its parameter {missing[0]!r}")
        if "device" in values:
            values["device"] = _available(values["device"])
        return values

    def _module(self, entry: Mapping[str, Any]) -> nn.Module:
        state = {key: self._contents.tensors[name] for key, name in entry["state"].items()}
        self._count(sum(tensor.nbytes for tensor in state.values()))
        if "layers" in entry:
            module: nn.Module = _build_layers(entry["layers"], state)
            load_state(module, state)
        else:
            path, kind = entry["given"]
            module = self._ask_module(path, kind, state)
        return module.train(entry["training"])

    def _ask_module(self, path: str, kind: str, state: Mapping[str, Tensor]) -> nn.Module:
        module = self._ask(path, kind)
        if not isinstance(module, nn.Module):
            raise _NotGivenError(
                f"{_spoken(path)} must be a torch module, a {kind}, got {reprlib.repr(module)}"
            )
        module = copy.deepcopy(module)
        try:
            load_state(module, state)
        except InputError as error:
            raise _NotGivenError(
                f"{_spoken(path)} does not have the weights that were saved ({error}); give a module built as "
                "the saved one was"
            ) from None
        return module

    def _scalar(self, content: Any) -> Any:
        node, dtype = content
        if dtype not in DTYPES:
            raise InputError(f"unknown type {dtype!r}")
        return np.dtype(dtype).type(self.value(node))

    def _reference(self, number: int) -> Any:
        if number < 0:
            raise InputError(f"no object has the number {number}")
        return self.objects[number]

    def _ask(self, path: str, kind: str) -> Any:
        """What the caller gave at `path`, as ``estimator.module`` for the module of a NetRegressor."""
        parameter, *keys = path.split(".")
        value = self._given.get(parameter)
        if value is None:
            raise _NotGivenError(
                f"this model was made with {kind} as {_spoken(path)}, which is not in the folder: give "
                f"{parameter}= again, as lvd.load(folder, {parameter}=...)"
            )
        self.used.add(parameter)
        for key in keys:
            if isinstance(value, BaseEstimator):
                value = value.get_params(deep=False).get(key)
            elif isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                value = None
        if not is_code(value):
            raise _NotGivenError(
                f"{parameter}= must be given as it was when the model was made, with {kind} as {_spoken(path)}"
            )
        return value


def _build_layers(layers: Sequence[Any], state: Mapping[str, Tensor]) -> nn.Sequential:
    """An MLP with the sizes of the weights in `state`, which are already in memory: no stated size is trusted."""
    built: list[nn.Module] = []
    for number, layer in enumerate(layers):
        match layer:
            case "linear":
                built.append(_unset_linear(state[f"{number}.weight"]))
            case "relu":
                built.append(nn.ReLU())
            case ["dropout", p]:
                built.append(nn.Dropout(p))
            case _:
                raise InputError(f"unknown layer {layer!r}")
    return nn.Sequential(*built)


def _unset_linear(weight: Tensor) -> nn.Linear:
    """A layer with uninitialised weights, made without random numbers or torch's symbolic shapes."""
    n_outputs, n_inputs = weight.shape
    layer = nn.Linear(n_inputs, n_outputs, device="meta")
    layer.weight = nn.Parameter(torch.empty_like(weight))
    layer.bias = nn.Parameter(torch.empty(n_outputs, dtype=weight.dtype))
    return layer


def load_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put saved weights into `module`; they must be its own, name by name."""
    wanted, found = (
        {key: _described(tensor) for key, tensor in d.items()} for d in (state, module.state_dict())
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


def _described(tensor: Any) -> str:
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _texts(items: Any) -> Any:
    if not (isinstance(items, list) and all(isinstance(item, str) for item in items)):
        raise InputError("texts must be a list of strings")
    return np.array(items, dtype=object)


def _spoken(path: str) -> str:
    parameter, *keys = path.split(".")
    return f"{parameter}=" if not keys else f"part {'.'.join(keys)} of {parameter}="


def _available(device: str) -> str:
    """The saved device, or ``"auto"`` where this machine does not have it."""
    torch.device("cpu" if device == "auto" else device)
    try:
        resolve_device(device)
    except InputError:
        return "auto"
    return device


def _placed(value: Any, owner: Any) -> Any:
    """Learned tensors and modules on the owner's device; a prefit module stays where it is."""
    if isinstance(value, Tensor):
        return value.to(resolve_device(owner.device))
    if isinstance(value, nn.Module) and not getattr(owner, "prefit", False):
        return value.to(resolve_device(owner.device))
    if isinstance(value, list | tuple):
        return type(value)(_placed(item, owner) for item in value)
    if isinstance(value, dict):
        return {key: _placed(item, owner) for key, item in value.items()}
    return value
