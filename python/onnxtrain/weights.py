"""Trained weights back in the framework that a model was exported from, by name or by what they were before."""
from __future__ import annotations

import collections
import itertools
import json
import os
from typing import Any, Mapping, NamedTuple

import numpy as np

from onnxtrain.trainer import Trainer

class _Source(NamedTuple):
    """Where an array of a framework is in the model: a weight with its axes in another order, negated where -1."""

    name: str
    order: tuple[int, ...]
    sign: int

    def arrange(self, weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return self.sign * weight.squeeze().transpose(self.order).reshape(shape)


def _arrange(name: str, weight: np.ndarray, target: np.ndarray) -> _Source | None:
    """How `weight` becomes `target`, in another shape and, by the shape, another order of axes, or negated."""
    if weight.size != target.size:
        return None
    extents = sorted(target.squeeze().shape)
    for order in itertools.permutations(range(weight.squeeze().ndim)):
        if order != tuple(sorted(order)) and sorted(weight.squeeze().shape) != extents:
            return None
        for sign in (1, -1):
            source = _Source(name, order, sign)
            if np.array_equal(source.arrange(weight, target.shape), target):
                return source
    return None


def _by_value(value: np.ndarray, weights: Mapping[str, np.ndarray]) -> list[_Source]:
    return [source for name, weight in weights.items() if (source := _arrange(name, weight, value)) is not None]


def _is_constant(value: np.ndarray) -> bool:
    return value.size > 0 and bool((value == value.flat[0]).all())


def _find_sources(
    arrays: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]
) -> dict[str, _Source]:
    """The weights that the arrays were, by name, else by value. Weights of one value throughout differ by name only."""
    sources = {}
    for name in arrays.keys() & before.keys():
        if arrays[name].shape == before[name].shape:
            sources[name] = _Source(name, tuple(range(before[name].squeeze().ndim)), 1)
        if found := _arrange(name, before[name], arrays[name]):
            sources[name] = found
        if name not in sources:
            raise ValueError(
                f"'{name}' is {list(arrays[name].shape)}, the trained weight is {list(before[name].shape)}"
            )
    others = {name: weight for name, weight in before.items() if name not in sources}
    found = {name: _by_value(value, others) for name, value in arrays.items() if name not in sources}
    uses = collections.Counter(source.name for candidates in found.values() for source in candidates)
    for name, candidates in found.items():
        value = arrays[name]
        if _is_constant(value) and candidates and (not value.flat[0] or uses[candidates[0].name] > 1):
            raise ValueError(
                f"'{name}' {list(value.shape)} is {value.flat[0]} throughout, which does not tell whether it was "
                f"'{candidates[0].name}': call onnxtrain.separate_weights(model) before the export"
            )
        if len(candidates) > 1:
            raise ValueError(
                f"'{name}' {list(value.shape)} had the values of several weights of the model: "
                + ", ".join(f"'{source.name}'" for source in candidates)
            )
        sources |= {name: source for source in candidates}
    return sources


def to_arrays(trainer: Trainer, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The trained values of `arrays`, which hold what the model was exported with, by the same names.

    An array is found by its name in the model, else by its values: the weight that was equal to it before training, up
    to shape, order of axes and sign. Arrays that the model does not train are returned as they are. Fails where a
    trained weight belongs to none of them, where the shapes of a name differ, and where values do not tell which weight
    an array was.
    """
    trained, before = trainer.parameters(), trainer.initial_parameters()
    values = {name: np.asarray(array) for name, array in arrays.items()}
    sources = _find_sources(values, before)
    if lost := sorted(set(trained) - {source.name for source in sources.values()}):
        raise ValueError(
            "no array had the values of the trained weights " + ", ".join(f"'{name}'" for name in lost)
            + ": the exporter computed them, from a folded BatchNorm or packed gates, say"
        )
    results = dict(values)
    for name, source in sources.items():
        value = values[name]
        arranged = source.arrange(trained[source.name], value.shape)
        results[name] = np.ascontiguousarray(arranged).astype(value.dtype, copy=False)
    return results


def separate_weights(model: Any, noise: float = 1e-4, seed: int = 0) -> None:
    """Adds noise to the trainable weights of a Keras model or PyTorch module that have one value throughout.

    Before the export of a model that was not trained yet: exporters drop biases of zeros and store equal weights once,
    and values then do not tell which weight of the model is which of the framework.
    """
    rng = np.random.default_rng(seed)
    if hasattr(model, "state_dict"):
        weights = [(weight.detach().cpu().numpy(), weight.data.copy_) for weight in model.parameters()]
        from torch import from_numpy as make
    else:
        weights = [(np.asarray(weight.numpy()), weight.assign) for weight in model.trainable_weights]
        make = np.asarray
    for value, assign in weights:
        if _is_constant(value):
            assign(make((value + noise * rng.standard_normal(value.shape)).astype(value.dtype)))


def to_state_dict(trainer: Trainer, module: Any) -> dict[str, Any]:
    """The state_dict of the PyTorch module that the model was exported from, with the trained weights.

        module.load_state_dict(onnxtrain.to_state_dict(trainer, module))

    The module must still have the weights that were exported. Shapes and transposition are checked by their values.
    """
    import torch

    state = module.state_dict()
    arrays = to_arrays(trainer, {name: tensor.detach().cpu().numpy() for name, tensor in state.items()})
    return {
        name: torch.from_numpy(np.array(arrays[name])).to(device=tensor.device, dtype=tensor.dtype)
        for name, tensor in state.items()
    }


def to_keras(trainer: Trainer, model: Any) -> list[np.ndarray]:
    """The weights of the Keras model that the model was exported from, in the order of model.set_weights().

    TensorFlow's exporter folds BatchNorm, packs the gates of LSTMs and drops biases of zeros. A model that has them is
    exported with KERAS_BACKEND=jax, which keeps every weight; its weights fit the model of any Keras backend.
    """
    names = [getattr(weight, "path", weight.name) for weight in model.weights]
    arrays = to_arrays(trainer, dict(zip(names, model.get_weights(), strict=True)))
    return [arrays[name] for name in names]


_SAFETENSORS = {
    "float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint8": "U8", "bool": "BOOL",
}


def save_safetensors(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name, as trainer.parameters() returns them, as a .safetensors file."""
    header, offset = {}, 0
    for name, array in arrays.items():
        if array.dtype.name not in _SAFETENSORS:
            raise TypeError(f"'{name}' is {array.dtype.name}, expected one of " + ", ".join(_SAFETENSORS))
        kind, end = _SAFETENSORS[array.dtype.name], offset + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())
