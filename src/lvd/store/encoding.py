"""From objects to JSON and tensors, and which classes may be saved.

The description is one flat list of objects, each after those it refers to by index. So a shared object, such as
the kernel of a regressor and its calibration, is saved once. Any other value is stored as it is if JSON has its
type, else as ``{tag: content}``.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from lvd._typing import NDArray
from lvd._validation import InputError
from lvd.store.boosters import LIBRARIES, booster_library, dump_booster
from lvd.store.estimators import dump_estimator, without_last
from lvd.store.folder import Contents, write_folder

DTYPES = frozenset(
    f"{kind}{bits}"
    for kind, sizes in {"float": (16, 32, 64), "int": (8, 16, 32, 64), "uint": (8, 16, 32, 64)}.items()
    for bits in sizes
) | {"bool"}
RANDOM = (np.random.RandomState, np.random.Generator)


def save_object(
    root: Any,
    folder: str | os.PathLike[str],
    *,
    columns: Any = None,
    card: str | None = None,
    replace: bool = True,
) -> None:
    """Write an object to a folder that :func:`load_object` reads.

    `columns` describes the columns of the table that it was fitted on, in JSON types; `card` is a text for
    people. Without `replace` an existing model is kept.
    """
    if storable_of(type(root)) is None:
        raise InputError(f"a {type(root).__name__} cannot be saved; only lvd's own classes can")
    encoder = _Encoder()
    encoder.value(root, "", "")
    description = {"class": encoder.objects[-1]["class"], "columns": columns, "objects": encoder.objects}
    contents = Contents(description, encoder.tensors, encoder.estimators, card)
    write_folder(folder, contents, replace=replace)


class _Encoder:
    """Collects the parts of one model.

    `name` locates a value in the model. `path` locates it among the root's constructor parameters, as in
    ``estimator``, ``embed`` or ``estimator.module``; None for what `fit` created. Functions and modules are not
    saved, but asked for again by their path.
    """

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.tensors: dict[str, Tensor] = {}
        self.estimators: dict[str, bytes] = {}
        self._numbers: dict[int, int] = {}
        self._given: dict[int, tuple[str, Any]] = {}
        self._by_type: dict[Any, Callable[[Any, str, str | None], Any]] = {
            np.generic: self._scalar,  # before float: numpy's float64 is a float, and must keep its type
            float: lambda value, name, path: value if math.isfinite(value) else {"float": str(value)},
            (list, tuple): self._sequence,
            dict: self._dict,
            np.ndarray: self._array,
            Tensor: lambda tensor, name, path: {"tensor": self._keep(name, tensor)},
            # No prediction depends on it, and a saved state would be one more thing to check when loading.
            RANDOM: lambda generator, name, path: None,
            (*STORABLES, *EXTENSIBLE, nn.Module, BaseEstimator): self._object,
        }

    def value(self, value: Any, name: str, path: str | None) -> Any:
        """`value` in JSON types."""
        if value is None or type(value) in (bool, int, str):
            return value
        for types, encode_as in self._by_type.items():
            if isinstance(value, types):
                return encode_as(value, name, path)
        if booster_library(value) is not None:
            return self._object(value, name, path)
        if is_code(value):
            return {"given": [self._path(value, name, path), _called(value)]}
        raise InputError(f"{name} is a {type(value).__name__}, which cannot be saved")

    def _sequence(self, values: Any, name: str, path: str | None) -> Any:
        if type(values) not in (list, tuple):
            raise InputError(f"{name} is a {type(values).__name__}, which cannot be saved")
        items = [self.value(v, f"{name}.{i}", _below(path, i)) for i, v in enumerate(values)]
        return items if type(values) is list else {"tuple": items}

    def _dict(self, values: dict[Any, Any], name: str, path: str | None) -> Any:
        return {
            "dict": [
                [self.value(key, name, None), self.value(value, f"{name}.{number}", None)]
                for number, (key, value) in enumerate(values.items())
            ]
        }

    def _array(self, array: NDArray, name: str, path: str | None) -> Any:
        if array.dtype == object and array.ndim == 1 and all(type(item) is str for item in array):
            return {"texts": array.tolist()}
        _check_dtype(str(array.dtype), name)
        self._keep(name, torch.from_numpy(np.array(array, order="C")))
        # Products of another memory layout may round differently: the same bits need the same layout.
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        return {"fortran array" if fortran else "array": name}

    def _scalar(self, value: Any, name: str, path: str | None) -> Any:
        _check_dtype(str(value.dtype), name)
        return {"scalar": [self.value(value.item(), name, None), str(value.dtype)]}

    def _object(self, value: Any, name: str, path: str | None) -> Any:
        if id(value) not in self._numbers:
            if storable_of(type(value)) is not None:
                entry = self._known(value, name, path)
            elif isinstance(value, nn.Module):
                entry = self._module(value, name, path)
            elif (library := booster_library(value)) is not None:
                entry = self._booster(value, library, name)
            elif isinstance(value, BaseEstimator):
                entry = self._estimator(value, name)
            else:
                raise InputError(f"{name} is a {type(value).__name__}, which cannot be saved")
            self.objects.append(entry)
            self._numbers[id(value)] = len(self.objects) - 1
        return {"object": self._numbers[id(value)]}

    def _known(self, value: Any, name: str, path: str | None) -> dict[str, Any]:
        storable = storable_of(type(value))
        assert storable is not None
        attributes = dict(storable.take_apart(value))
        parameters = {
            key: self.value(attributes.pop(key), _dotted(name, key), _below(path, key))
            for key in storable.parameters
        }
        learned = {
            key: self.value(item, _dotted(name, key), self._template(value, key))
            for key, item in attributes.items()
        }
        cls = type(value)
        known = cls.__name__ if cls in STORABLES else full_name(cls)
        return {"class": known, "parameters": parameters, "learned": learned}

    def _module(self, module: nn.Module, name: str, path: str | None) -> dict[str, Any]:
        layers = _describe_layers(module) if path is None else None
        source = (
            {"layers": layers}
            if layers is not None
            else {"given": [self._path(module, name, path), _called(module)]}
        )
        state = {key: self._keep(f"{name}.{key}", tensor) for key, tensor in module.state_dict().items()}
        return {**source, "state": state, "training": module.training}

    def _estimator(self, estimator: Any, name: str) -> dict[str, Any]:
        key, last = getattr(estimator, "steps", [("", None)])[-1]
        if booster_library(last) is None:
            return {"estimator": self._file(dump_estimator(estimator, name), "skops")}
        file = self._file(dump_estimator(without_last(estimator), name), "skops")
        return {"estimator": file, "last": self.value(last, f"{name}.{key}", None)}

    def _booster(self, estimator: Any, library: str, name: str) -> dict[str, Any]:
        given: dict[str, Any] = getattr(estimator, "get_params", dict)()
        parameters = {key: self.value(item, f"{name}.{key}", None) for key, item in given.items()}
        data = dump_booster(estimator, library)
        file = None if data is None else self._file(data, LIBRARIES[library].ending)
        kind = [library, type(estimator).__name__]
        return {"booster": kind, "parameters": parameters, "file": file}

    def _file(self, data: bytes, ending: str) -> str:
        name = f"estimator-{len(self.estimators)}.{ending}"
        self.estimators[name] = data
        return name

    def _template(self, owner: Any, key: str) -> str | None:
        """The path of the module that a learned module is a trained copy of: ``module`` for ``module_``."""
        template = vars(owner).get(key.removesuffix("_"))
        return self._given.get(id(template), (None, None))[0]

    def _path(self, value: Any, name: str, path: str | None) -> str:
        """The path by which to ask for `value`, or one like it, again."""
        if path is not None:
            self._given[id(value)] = path, value
            return path
        if id(value) in self._given:
            return self._given[id(value)][0]
        alike = {known for known, other in self._given.values() if type(other) is type(value)}
        if isinstance(value, nn.Module) and len(alike) == 1:
            return alike.pop()
        raise InputError(
            f"{name} holds {_called(value)}, which cannot be saved, and was not given to the constructor as it "
            "is, so it could not be given again in load(); train such a model first, and give it with prefit=True"
        )

    def _keep(self, name: str, tensor: Tensor) -> str:
        if not isinstance(tensor, Tensor) or tensor.is_complex():
            raise InputError(f"{name} is not a tensor of real numbers and cannot be saved")
        self.tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        return name


def _describe_layers(module: nn.Module) -> list[Any] | None:
    """The layers of a plain MLP, to rebuild it from; None for any other module."""
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


def _dotted(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


def _below(path: str | None, key: str | int) -> str | None:
    return None if path is None else _dotted(path, key)


def _called(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _check_dtype(dtype: str, name: str) -> None:
    if dtype not in DTYPES:
        raise InputError(f"{name} holds values of type {dtype}, which cannot be saved; only numbers can")


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, without the values of ``cached_property``, which are computed again."""
    kept = vars(value).items()
    return {
        name: item for name, item in kept if not isinstance(getattr(type(value), name, None), cached_property)
    }


@dataclass(frozen=True)
class Storable:
    """A class that may be saved. By default an object is saved as its attributes.

    Parameters
    ----------
    cls : the class; subclasses do not count.
    parameters : the constructor's; all other attributes are learned.
    root : whether its objects are models by themselves, not only parts of one.
    take_apart : returns the attributes to save, in types that can be saved.
    complete : called on the rebuilt object after its attributes are set, to restore the rest.
    check : refuses a rebuilt object whose parameters are not valid.
    """

    cls: type[Any]
    parameters: Mapping[str, inspect.Parameter]
    root: bool = False
    take_apart: Callable[[Any], dict[str, Any]] = attributes_of
    complete: Callable[[Any], None] | None = None
    check: Callable[[Any], None] | None = None


EXTENSIBLE: list[type[Any]] = []
"""Interfaces that users implement in their own classes. Such objects are saved under the full name of their
class, and loaded only if the caller names that class as trusted."""


def full_name(cls: type[Any]) -> str:
    """The name under which a user's class is saved."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_named(name: str | type[Any]) -> type[Any]:
    """The class with this :func:`full_name`, whose module is imported; a class is returned as it is."""
    if not isinstance(name, str):
        return name
    module, _, path = name.partition(":")
    if not path or not module:
        raise InputError(f"a class of your own is named as MODULE:CLASS, got {name!r}")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{name} cannot be imported ({error}); name a class of a module in the current folder or of an "
            "installed package, as MODULE:CLASS"
        ) from error
    if not isinstance(found, type):
        raise InputError(f"{name} must be a class, got {type(found).__name__}; name the class itself")
    return found


def storable_of(cls: type[Any]) -> Storable | None:
    """How objects of this class are saved; None if they cannot be."""
    if cls in STORABLES:
        return STORABLES[cls]
    return extension(cls) if issubclass(cls, tuple(EXTENSIBLE)) else None


def extension(cls: type[Any], *, root: bool = False) -> Storable:
    """How objects of a user's class are saved: as their parameters and what `fit` learned."""
    check = getattr(cls, "_check_parameters", None)
    return Storable(cls, inspect.signature(cls).parameters, root=root, check=check)


STORABLES: dict[type[Any], Storable] = {}
"""The classes that may be saved and loaded, once the modules that register them are imported."""


def register(cls: type[Any], **ways: Any) -> None:
    """Register a class for saving and loading; no other class is ever looked up.

    `ways` are fields of :class:`Storable`; `check` defaults to the class's ``_check_parameters``, if any.
    """
    ways.setdefault("check", getattr(cls, "_check_parameters", None))
    STORABLES[cls] = Storable(cls, inspect.signature(cls).parameters, **ways)


def is_code(value: Any) -> bool:
    """Whether it is the user's code, to be given again when loading: a function, or an object that predicts."""
    return callable(value) or callable(getattr(value, "predict", None))
