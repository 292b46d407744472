"""Trained weights back in the framework that a model was exported from, by name or by what they were before."""
from __future__ import annotations

import itertools
import json
import os
from typing import Any, Mapping

import numpy as np

from onnxtrain.trainer import Trainer

# What exporters do to a weight: nothing, or another order of its axes (Linear, and convolutions of Keras).
_ORDERS = {
    rank: [tuple(range(rank)), *(p for p in itertools.permutations(range(rank)) if p != tuple(range(rank)))]
    for rank in range(6)
}


def _order(source: np.ndarray, target: np.ndarray) -> tuple[int, ...] | None:
    """The order of axes in which `source` equals `target`; axes of extent 1 do not count."""
    source, target = source.squeeze(), target.squeeze()
    if sorted(source.shape) != sorted(target.shape):
        return None
    for order in _ORDERS.get(source.ndim, []):
        if np.array_equal(source.transpose(order), target):
            return order
    return None


def _by_value(
    name: str, value: np.ndarray, before: Mapping[str, np.ndarray]
) -> tuple[str, tuple[int, ...]] | None:
    found = [(other, order) for other, old in before.items() if (order := _order(old, value)) is not None]
    if len(found) > 1:
        raise ValueError(
            f"'{name}' {list(value.shape)} had the values of several weights of the model: "
            + ", ".join(f"'{other}'" for other, _ in found)
        )
    return found[0] if found else None


def to_arrays(trainer: Trainer, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The trained values of `arrays`, which hold what the model was exported with, by the same names.

    An array is found by its name in the model, else by its values: the weight that was equal to it before training, up
    to the order of axes. Arrays that the model does not train are returned as they are. Fails where a trained weight
    belongs to none of them, and where the shapes of a name differ.
    """
    trained, before = trainer.parameters(), trainer.initial_parameters()
    results, used = {}, set()
    for name, array in arrays.items():
        value = np.asarray(array)
        if name in trained:
            order = _order(before[name], value)
            if order is None and trained[name].shape != value.shape:
                raise ValueError(
                    f"'{name}' is {list(value.shape)}, the trained weight is {list(trained[name].shape)}"
                )
            source, order = name, order or tuple(range(value.squeeze().ndim))
        elif (found := _by_value(name, value, before)) is not None:
            source, order = found
        else:
            results[name] = value
            continue
        used.add(source)
        arranged = trained[source].squeeze().transpose(order).reshape(value.shape)
        results[name] = np.ascontiguousarray(arranged).astype(value.dtype, copy=False)
    if lost := sorted(set(trained) - used):
        raise ValueError("no array had the values of the trained weights " + ", ".join(f"'{name}'" for name in lost))
    return results


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
    """The weights of the Keras model that the model was exported from, in the order of model.set_weights()."""
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
