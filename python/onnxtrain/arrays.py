"""Arrays of NumPy, and of every library that speaks DLPack, as tensors of the C interface and back, without copies."""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Mapping, Sequence

import numpy as np

from onnxtrain import _capi
from onnxtrain._capi import api

# Element types by their number in ONNX.
_TYPES = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
}
_BFLOAT16 = 16
_NUMBERS = {np.dtype(t): number for number, t in _TYPES.items()}


def _resolve_tensor(tensor: Any) -> Any:
    """A tensor of PyTorch as DLPack hands it on: without history, views that negate, or bfloat16 (unknown to NumPy)."""
    tensor = tensor.detach()
    for resolve in ("resolve_conj", "resolve_neg"):
        tensor = getattr(tensor, resolve, lambda tensor=tensor: tensor)()
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def as_array(name: str, array: Any) -> np.ndarray:
    """An array that shares the memory of `array` where that is possible."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"'{name}': a masked array: fill what is masked (.filled())")
    if isinstance(array, np.ndarray):
        return np.asarray(array)
    if hasattr(array, "detach"):
        array = _resolve_tensor(array)
    if not hasattr(array, "__dlpack__"):
        return np.asarray(array)
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError) as error:
        raise TypeError(f"'{name}': {str(error).splitlines()[0]}") from error


def _is_bfloat16(dtype: np.dtype) -> bool:
    return dtype.name == "bfloat16" and dtype.itemsize == 2  # of ml_dtypes


def to_numpy(name: str, array: Any) -> np.ndarray:
    """A C-contiguous array in the machine's byte order that shares the memory of `array` where that is possible."""
    array = as_array(name, array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # Unlike ascontiguousarray, leaves scalars without axes.
    array = array if array.flags.c_contiguous else array.copy(order="C")
    if array.dtype not in _NUMBERS and not _is_bfloat16(array.dtype):
        raise TypeError(f"'{name}': arrays of {array.dtype} are no tensors")
    return array


def _number(dtype: np.dtype) -> int:
    return _BFLOAT16 if _is_bfloat16(dtype) else _NUMBERS[dtype]


def _encode(name: Any) -> bytes:
    if not isinstance(name, str) or "\0" in name:
        raise TypeError(f"{name!r}: expected the name of a tensor")
    return name.encode(errors="replace")


class Tensors:
    """Arrays by name as an array of tensors, which refers to their memory."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not isinstance(arrays, Mapping):
            raise TypeError(f"expected arrays by name, {{'input': array, …}}, got {type(arrays).__name__}")
        self._held = [(_encode(name), to_numpy(name, array)) for name, array in arrays.items()]
        self.count = len(self._held)
        self.tensors = (_capi.Tensor * self.count)()
        for tensor, (name, array) in zip(self.tensors, self._held):
            tensor.name, tensor.type, tensor.rank = name, _number(array.dtype), array.ndim
            tensor.shape = array.ctypes.shape_as(ctypes.c_int64) if array.ndim else None
            tensor.data, tensor.bytes = array.ctypes.data, array.nbytes

    def vary(self, name: str, axes: Sequence[int]) -> None:
        """Tells that the extents of these axes vary, up to those of the array."""
        for tensor in self.tensors:
            if tensor.name != name.encode():
                continue
            shape = [tensor.shape[i] for i in range(tensor.rank)]
            for axis in axes:
                if not -len(shape) <= axis < len(shape):
                    raise ValueError(f"'{name}': there is no axis {axis} of {len(shape)}")
                shape[axis] = -abs(shape[axis])
            tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
            return
        raise ValueError(f"'{name}' is no sample")


def describe(tensor: _capi.Tensor) -> tuple[str, np.dtype, tuple[int, ...]]:
    """Name, element type and shape."""
    dtype = np.dtype(np.uint16 if tensor.type == _BFLOAT16 else _TYPES[tensor.type])
    return tensor.name.decode(), dtype, tuple(tensor.shape[i] for i in range(tensor.rank))


class _Memory:
    """The memory of a tensor of a handle, as NumPy asks for it."""

    def __init__(self, owner: object, address: int, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._owner = owner
        self.__array_interface__ = {"data": (address, True), "typestr": dtype.str, "shape": shape, "version": 3}


def view_tensor(owner: object, tensor: _capi.Tensor) -> np.ndarray:
    """A read-only array of memory that `owner` keeps."""
    _, dtype, shape = describe(tensor)
    return np.asarray(_Memory(owner, tensor.data, dtype, shape))


class _TensorsHandle:
    """Releases a handle of tensors once no array refers to it."""

    def __init__(self, handle: int) -> None:
        weakref.finalize(self, api.ReleaseTensors, handle)


def take_tensors(handle: int) -> dict[str, np.ndarray]:
    """The tensors of a handle as read-only arrays that share its memory. bfloat16 becomes float32."""
    owner, arrays = _TensorsHandle(handle), {}
    for index in range(api.GetTensorCount(handle)):
        tensor = _capi.Tensor()
        api.GetTensor(handle, index, ctypes.byref(tensor))
        name, dtype, shape = describe(tensor)
        array = np.asarray(_Memory(owner, tensor.data, dtype, shape))
        if tensor.type == _BFLOAT16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = array
    return arrays
