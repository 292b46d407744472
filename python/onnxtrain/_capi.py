"""The C interface (onnxtrain.h) through ctypes: structs, the table of functions, statuses as exceptions."""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p

API_VERSION = 1


class Error(RuntimeError):
    """Why a call failed: one line of text. `code` is a number of OnnxtrainCode."""

    INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED, OUT_OF_MEMORY = range(1, 5)
    CANCELLED, BUSY, UNAVAILABLE, INTERNAL, CALLBACK = range(5, 10)

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int32),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("data", c_void_p),
        ("bytes", c_uint64),
    ]


class StepResult(ctypes.Structure):
    _fields_ = [
        ("loss", c_double),
        ("grad_norm", c_double),
        ("learning_rate", c_double),
        ("step", c_int64),
        ("skipped", c_int64),
    ]


class Evaluation(ctypes.Structure):
    _fields_ = [
        ("loss", c_double),
        ("weight", c_double),
        ("correct", c_double),
        ("targets", c_double),
        ("samples", c_int64),
    ]


_Handle, _Out = c_void_p, POINTER(c_void_p)
_Batch = (_Handle, POINTER(Tensor), c_uint64)

# The functions of OnnxtrainApi in order: name, result, arguments. A result of None is a status.
_VOID = "void"
_FUNCTIONS = [
    ("GetVersion", c_char_p, ()),
    ("GetStatusCode", c_int32, (_Handle,)),
    ("GetStatusMessage", c_char_p, (_Handle,)),
    ("ReleaseStatus", _VOID, (_Handle,)),
    ("LoadModelFromFile", None, (c_char_p, _Out)),
    ("LoadModelFromBytes", None, (c_char_p, c_uint64, c_char_p, _Out)),
    ("ReleaseModel", _VOID, (_Handle,)),
    ("CreateTrainer", None, (_Handle, c_char_p, POINTER(Tensor), c_uint64, _Out)),
    ("ReleaseTrainer", _VOID, (_Handle,)),
    ("GetBatchTensorCount", None, (_Handle, POINTER(c_uint64))),
    ("GetBatchTensor", None, (_Handle, c_uint64, POINTER(Tensor))),
    ("TrainStep", None, (*_Batch, POINTER(StepResult))),
    ("Accumulate", None, _Batch),
    ("Apply", None, (_Handle, POINTER(StepResult))),
    ("GetGradients", None, (*_Batch, POINTER(c_double), _Out)),
    ("GetInputGradients", None, (*_Batch, POINTER(c_double), _Out)),
    ("Evaluate", None, (*_Batch, POINTER(Evaluation))),
    ("Predict", None, (*_Batch, _Out)),
    ("GetTensorCount", c_uint64, (_Handle,)),
    ("GetTensor", None, (_Handle, c_uint64, POINTER(Tensor))),
    ("FindTensor", None, (_Handle, c_char_p, POINTER(Tensor))),
    ("ReleaseTensors", _VOID, (_Handle,)),
    ("GetParameters", None, (_Handle, c_char_p, _Out)),
    ("SetParameters", None, _Batch),
    ("GetLearningRate", None, (_Handle, POINTER(c_double))),
    ("SetLearningRate", None, (_Handle, c_double)),
    ("SaveStateToFile", None, (_Handle, c_char_p)),
    ("SaveStateToBytes", None, (_Handle, _Out)),
    ("LoadStateFromFile", None, (_Handle, c_char_p)),
    ("LoadStateFromBytes", None, (_Handle, c_char_p, c_uint64)),
    ("ExportToFile", None, (_Handle, c_char_p)),
    ("ExportToBytes", None, (_Handle, _Out)),
    ("GetBytesData", c_void_p, (_Handle,)),
    ("GetBytesSize", c_uint64, (_Handle,)),
    ("ReleaseBytes", _VOID, (_Handle,)),
    ("Cancel", None, (_Handle,)),
    ("ClearCancel", None, (_Handle,)),
    ("ViewParameter", None, (_Handle, c_char_p, POINTER(Tensor))),
    ("Fit", None, (_Handle, c_void_p, c_uint64, POINTER(StepResult))),
    ("EvaluateAll", None, (_Handle, c_void_p, POINTER(Evaluation), POINTER(c_double))),
    ("LoadPlugin", None, (c_char_p,)),
    ("GetStepCount", None, (_Handle, POINTER(c_int64))),
    ("RecordEvaluation", None, (_Handle, POINTER(Evaluation))),
    ("FinishRun", None, (_Handle, _Out)),
]


class _Table(ctypes.Structure):
    _fields_ = [("version", c_uint32), ("reserved", c_uint32)] + [
        (name, ctypes.CFUNCTYPE({None: c_void_p, _VOID: None}.get(result, result), *arguments))
        for name, result, arguments in _FUNCTIONS
    ]


_CARRIED = pathlib.Path(__file__).parent / "lib"  # of a wheel: libraries, and the order in which they need each other
_PREFERRED = ("libstdc++.so", "libgcc_s.so")  # the process's own, which other packages share


# Prefers the library's own dependencies to what the process has loaded for all: TensorFlow has another protobuf.
_MODE = ctypes.DEFAULT_MODE | (0 if "LD_PRELOAD" in os.environ else os.RTLD_DEEPBIND)


def _load(name: str) -> ctypes.CDLL:
    if name.startswith(_PREFERRED):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return ctypes.CDLL(str(_CARRIED / name), _MODE)


def _load_library() -> ctypes.CDLL:
    """The library that ONNXTRAIN_LIBRARY names, else the one that the package carries, else the system's.

    The linker takes a library that is loaded already for another one's need of that name.
    """
    named = os.environ.get("ONNXTRAIN_LIBRARY")
    if named or not (_CARRIED / "order.txt").exists():
        return ctypes.CDLL(named or "libonnxtrain_c.so.1", _MODE)
    loaded = {name: _load(name) for name in (_CARRIED / "order.txt").read_text().split()}
    return loaded["libonnxtrain_c.so.1"]


class Api:
    """The functions as methods; those that return a status raise Error."""

    def __init__(self) -> None:
        library = _load_library()
        library.OnnxtrainGetApi.restype = POINTER(_Table)
        library.OnnxtrainGetApi.argtypes = [c_uint32]
        table = library.OnnxtrainGetApi(API_VERSION)
        if not table:
            raise ImportError(f"the library of onnxtrain is older than version {API_VERSION} of its interface")
        self._table = table.contents
        for name, result, _ in _FUNCTIONS:
            function = getattr(self._table, name)
            setattr(self, name, self._raising(function) if result is None else function)

    def _raising(self, function):
        def call(*arguments):
            status = function(*arguments)
            if not status:
                return
            code = self._table.GetStatusCode(status)
            message = self._table.GetStatusMessage(status).decode(errors="replace")
            self._table.ReleaseStatus(status)
            raise Error(code, message)

        return call


api = Api()
