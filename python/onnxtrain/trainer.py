"""A training of one model: weights, optimizer state and compiled programs."""
from __future__ import annotations

import ctypes
import json
import math
import os
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

import numpy as np

from onnxtrain import _capi
from onnxtrain._capi import api
from onnxtrain.arrays import Tensors, as_array, describe, take_tensors, view_tensor

Batch = Mapping[str, Any]  # arrays by name: [batch, sample…]
Data = Union[Batch, Iterable[Any], Callable[[], Union[Batch, Iterable[Any]]]]


@dataclass(frozen=True)
class BatchTensor:
    """A tensor of a batch: an input of the model or a label; `shape` is that of one sample."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StepResult:
    """One update: mean loss before it, norm of the gradient before clipping, rate, updates so far."""

    loss: float
    grad_norm: float
    learning_rate: float
    step: int
    skipped: bool


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and, where the loss counts correct predictions, their share (else None)."""

    loss: float
    accuracy: float | None
    samples: int


def version() -> str:
    """The version of the library."""
    return api.GetVersion().decode()


def load_plugin(path: str | os.PathLike[str]) -> None:
    """Loads a library with operators of other domains, for models that are loaded from now on.

    A backend of one's own is an argument of the trainer: Trainer("x.onnx", backend="path/libX.so").
    """
    api.LoadPlugin(os.fsencode(path))


def _load_model(model: str | os.PathLike[str] | bytes) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    if isinstance(model, (bytes, bytearray, memoryview)):
        content = bytes(model)
        api.LoadModelFromBytes(content, len(content), b"model", ctypes.byref(handle))
    else:
        api.LoadModelFromFile(os.fsencode(model), ctypes.byref(handle))
    return handle


def _to_json(config: Mapping[str, Any]) -> bytes:
    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise TypeError(f"a configuration holds no {type(value).__name__}")

    try:
        return json.dumps(config, default=plain, allow_nan=False).encode()
    except ValueError as error:
        raise ValueError(f"a configuration holds finite numbers only: {config}") from error


class Trainer:
    """Trains the ONNX model in a file, or in bytes.

    `config` are the flags of `onnxtrain train` with underscores: Trainer("x.onnx", optimizer="sgd", lr=0.1,
    freeze=["encoder*"]). `samples` describes what follows neither from the model nor from defaults, as arrays of one
    sample without the batch axis: inputs with free dimensions, labels that fit several losses. `varying` names axes of
    samples whose extents differ between batches, up to those of the sample, for all tensors that have them:
    {"ids": [0], "mask": [0]}.

    With out="run" the trainer records its updates in that folder as the command line does: metrics, TensorBoard's
    events and checkpoints (log_every, save_every, keep_last); finish() writes the model and the summary. With
    resume="auto" it goes on at the newest checkpoint there, if there is one, and fit() leaves out as many batches as it
    was trained on: the same calls make the same weights, interrupted or not.

    One thread at a time; cancel() may be called by any.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        *,
        samples: Mapping[str, Any] | None = None,
        varying: Mapping[str, Sequence[int]] | None = None,
        **config: Any,
    ) -> None:
        self._source = (model, samples, varying, config)
        described = Tensors(samples or {})
        for name, axes in (varying or {}).items():
            described.vary(name, axes)
        loaded, handle = _load_model(model), ctypes.c_void_p()
        try:
            api.CreateTrainer(
                loaded, _to_json(config), described.tensors, described.count, ctypes.byref(handle)
            )
        finally:
            api.ReleaseModel(loaded)
        self._handle = handle
        self._release = weakref.finalize(self, api.ReleaseTrainer, handle)
        self._batch_size = int(config.get("batch_size", 32))
        self._done = self.steps  # updates of the run that this one goes on with, and that fit() has not left out yet

    def close(self) -> None:
        """Frees the memory; the trainer is of no further use."""
        self._release()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("a trainer can be neither copied nor pickled: save() keeps its state, export() the model")

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def steps(self) -> int:
        """The updates so far, with those of the run that this one goes on with."""
        steps = ctypes.c_int64()
        api.GetStepCount(self._handle, ctypes.byref(steps))
        return steps.value

    def finish(self) -> dict[str, Any]:
        """Ends the run of a trainer with `out`: writes model.onnx and summary.json there, and returns the summary."""
        out = ctypes.c_void_p()
        api.FinishRun(self._handle, ctypes.byref(out))
        try:
            return json.loads(ctypes.string_at(api.GetBytesData(out), api.GetBytesSize(out)))
        finally:
            api.ReleaseBytes(out)

    @property
    def batch_tensors(self) -> list[BatchTensor]:
        """What a batch consists of: inputs first, then labels."""
        count = ctypes.c_uint64()
        api.GetBatchTensorCount(self._handle, ctypes.byref(count))
        tensors = []
        for index in range(count.value):
            tensor = _capi.Tensor()
            api.GetBatchTensor(self._handle, index, ctypes.byref(tensor))
            tensors.append(BatchTensor(*describe(tensor)))
        return tensors

    def step(self, batch: Batch) -> StepResult:
        """Makes one update on a batch."""
        tensors, result = Tensors(batch), _capi.StepResult()
        api.TrainStep(self._handle, tensors.tensors, tensors.count, ctypes.byref(result))
        return self._to_step(result)

    def accumulate(self, batch: Batch) -> None:
        """Adds the gradient of the batch's mean loss to those since the last update."""
        tensors = Tensors(batch)
        api.Accumulate(self._handle, tensors.tensors, tensors.count)

    def apply(self) -> StepResult:
        """Makes one update with what was accumulated."""
        result = _capi.StepResult()
        api.Apply(self._handle, ctypes.byref(result))
        return self._to_step(result)

    def gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        """The gradients of the mean loss with respect to every trained weight, before clipping; changes nothing."""
        tensors, out = Tensors(batch), ctypes.c_void_p()
        api.GetGradients(self._handle, tensors.tensors, tensors.count, None, ctypes.byref(out))
        return take_tensors(out.value)

    def input_gradients(self, batch: Batch) -> dict[str, np.ndarray]:
        """The gradients of the mean loss with respect to the inputs of floating-point type, by name, in their shapes.

        With loss="dot" the labels are vectors of the outputs' shapes; these gradients, and those of `gradients`, are
        then vector-Jacobian products divided by the number of samples.
        """
        tensors, out = Tensors(batch), ctypes.c_void_p()
        api.GetInputGradients(self._handle, tensors.tensors, tensors.count, None, ctypes.byref(out))
        return take_tensors(out.value)

    def evaluate(self, data: Data, batch_size: int | None = None) -> Evaluation:
        """Evaluates arrays, cut into batches, or an iterable of batches, or what a function returns of these."""
        loss, total = 0.0, _capi.Evaluation()
        for batch in self._batches(data, self._choose_batch_size(batch_size), None):
            tensors, part = Tensors(batch), _capi.Evaluation()
            api.Evaluate(self._handle, tensors.tensors, tensors.count, ctypes.byref(part))
            loss += part.loss * part.weight
            total.weight += part.weight
            total.correct += part.correct
            total.targets += part.targets
            total.samples += part.samples
        if total.samples == 0:
            raise ValueError("there are no samples to evaluate")
        total.loss = loss / total.weight if total.weight > 0 else float("nan")
        api.RecordEvaluation(self._handle, ctypes.byref(total))
        counts = not math.isnan(total.correct) and total.targets > 0
        return Evaluation(total.loss, total.correct / total.targets if counts else None, total.samples)

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """The outputs of the model by name, as read-only arrays."""
        tensors, out = Tensors(batch), ctypes.c_void_p()
        api.Predict(self._handle, tensors.tensors, tensors.count, ctypes.byref(out))
        return take_tensors(out.value)

    def fit(
        self,
        data: Data,
        eval_data: Data | None = None,
        *,
        epochs: int = 1,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 42,
        callbacks: Sequence[Callable[[Trainer, StepResult | Evaluation], Any]] = (),
    ) -> list[Evaluation]:
        """Trains for some epochs; evaluates after each where there is `eval_data`, and returns these evaluations.

        `data`: arrays by name, which are cut into batches, in another order each epoch where `shuffle`; or an iterable
        of batches, as a DataLoader is, whose batches are mappings, or tuples in the order of `batch_tensors`; or a
        function without arguments that returns either, as generators are made, called once an epoch. Callbacks
        are called after each update and each evaluation; one that returns False ends the training. Fails where an epoch
        has no samples. Epochs of which a resumed run has trained all batches are not evaluated again.
        """
        for given in (data, eval_data):
            if epochs > 1 and isinstance(given, Iterator):
                raise TypeError("an iterator can be read once only: pass arrays, a list, a DataLoader or a function")
        order, evaluations = np.random.default_rng(seed) if shuffle else None, []
        size = self._choose_batch_size(batch_size)
        for _ in range(epochs):
            result, trained = None, False
            for batch in self._batches(data, size, order):
                if self._done > 0:
                    self._done, trained = self._done - 1, True
                    continue
                result = self.step(batch)
                if any([callback(self, result) is False for callback in callbacks]):
                    return evaluations
            if result is None and not trained:
                raise ValueError("there are no samples to train on")
            if eval_data is None or result is None:
                continue
            evaluations.append(self.evaluate(eval_data, batch_size))
            if any([callback(self, evaluations[-1]) is False for callback in callbacks]):
                return evaluations
        return evaluations

    def parameters(self) -> dict[str, np.ndarray]:
        """A copy of the weights that training changes, with running statistics, by initializer name."""
        out = ctypes.c_void_p()
        api.GetParameters(self._handle, None, ctypes.byref(out))
        return take_tensors(out.value)

    def initial_parameters(self) -> dict[str, np.ndarray]:
        """The weights as they were when the trainer was made, read again from the model, which must still be there."""
        model, samples, varying, config = self._source
        with Trainer(model, samples=samples, varying=varying, **config) as fresh:
            return fresh.parameters()

    def view(self, name: str) -> np.ndarray:
        """A weight in the trainer's own memory, read-only and without a copy: it shows each update.

        Not to be read while a call works on the trainer, nor after close().
        """
        tensor = _capi.Tensor()
        api.ViewParameter(self._handle, name.encode(), ctypes.byref(tensor))
        return view_tensor(self, tensor)

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Sets some or all weights; none where one does not fit."""
        tensors = Tensors(parameters)
        api.SetParameters(self._handle, tensors.tensors, tensors.count)

    @property
    def learning_rate(self) -> float:
        """The rate of the next update; set: the base rate that the schedule multiplies."""
        rate = ctypes.c_double()
        api.GetLearningRate(self._handle, ctypes.byref(rate))
        return rate.value

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        api.SetLearningRate(self._handle, float(rate))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves weights, optimizer state and counters: load() goes on with the same bits."""
        api.SaveStateToFile(self._handle, os.fsencode(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads what a trainer of the same model and configuration has saved."""
        api.LoadStateFromFile(self._handle, os.fsencode(path))

    def export(self, path: str | os.PathLike[str] | None = None) -> bytes | None:
        """Exports the trained model for inference, to a file or, without `path`, as bytes."""
        if path is not None:
            api.ExportToFile(self._handle, os.fsencode(path))
            return None
        out = ctypes.c_void_p()
        api.ExportToBytes(self._handle, ctypes.byref(out))
        try:
            return ctypes.string_at(api.GetBytesData(out), api.GetBytesSize(out))
        finally:
            api.ReleaseBytes(out)

    def cancel(self) -> None:
        """Ends the call that works on the trainer, and lets later ones fail, until clear_cancel()."""
        api.Cancel(self._handle)

    def clear_cancel(self) -> None:
        """Allows calls again."""
        api.ClearCancel(self._handle)

    @staticmethod
    def _to_step(result: _capi.StepResult) -> StepResult:
        return StepResult(
            result.loss, result.grad_norm, result.learning_rate, result.step, result.skipped > 0
        )

    def _choose_batch_size(self, batch_size: int | None) -> int:
        size = self._batch_size if batch_size is None else batch_size
        if size < 1:
            raise ValueError(f"batch_size {size}: expected at least 1")
        return size

    def _batches(self, data: Data, batch_size: int, order: np.random.Generator | None) -> Iterator[Batch]:
        if callable(data) and not isinstance(data, Iterable):
            data = data()
        if isinstance(data, Mapping):
            yield from self._cut(data, batch_size, order)
            return
        names = [tensor.name for tensor in self.batch_tensors]
        for batch in data:
            yield self._to_batch(batch, names)

    @staticmethod
    def _to_batch(batch: Any, names: list[str]) -> Batch:
        if isinstance(batch, Mapping):
            return batch
        if not isinstance(batch, (tuple, list)):
            raise TypeError(f"expected a batch as a mapping or a tuple, got {type(batch).__name__}")
        if len(batch) != len(names):
            raise ValueError(f"a batch has {len(batch)} tensors, expected {len(names)}: {', '.join(names)}")
        return dict(zip(names, batch))

    @staticmethod
    def _cut(data: Batch, batch_size: int, order: np.random.Generator | None) -> Iterator[Batch]:
        data = {name: as_array(name, array) for name, array in data.items()}
        for name, array in data.items():
            if array.ndim == 0:
                raise ValueError(f"'{name}' is one number, expected an array of samples")
        sizes = {name: int(array.shape[0]) for name, array in data.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the arrays have different numbers of samples: {sizes}")
        samples = next(iter(sizes.values()), 0)
        rows = np.arange(samples) if order is None else order.permutation(samples)
        for begin in range(0, samples, batch_size):
            end = min(begin + batch_size, samples)
            chosen = slice(begin, end) if order is None else rows[begin:end]
            yield {name: array[chosen] for name, array in data.items()}
