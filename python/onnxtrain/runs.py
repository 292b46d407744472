"""Training, evaluation and prediction by the program: the functions have its subcommands' names and flags."""
from __future__ import annotations

import csv
import html
import json
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from onnxtrain import program

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from onnxtrain._flags import CompareFlags, EvalFlags, InspectFlags, PlanFlags, PredictFlags, TrainFlags

Path = Union[str, "os.PathLike[str]"]
Columns = dict[str, np.ndarray]


class Report:
    """The report of a run: a page without scripts, which a notebook shows."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Report({str(self.path)!r})"

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="640" style="border: 0"></iframe>'


class Run:
    """The folder of a run, as `train` writes it and as any other program may read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = pathlib.Path(folder)
        if not (self.folder / "metrics.jsonl").exists():
            raise FileNotFoundError(f"{self.folder} holds no run")

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def model(self) -> pathlib.Path:
        """The trained model."""
        return self.folder / "model.onnx"

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json: losses, evaluations, times, memory and the configuration."""
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def metrics(self) -> Columns:
        """metrics.jsonl as columns of equal length, one row per event: step, epoch, loss, eval_loss, lr …

        A number that an event does not have is NaN.
        """
        with open(self.folder / "metrics.jsonl", encoding="utf-8") as lines:
            events = [json.loads(line) for line in lines]
        names = dict.fromkeys(name for event in events for name in event)
        return {name: _column([event.get(name) for event in events]) for name in names}

    @property
    def report(self) -> Report:
        """report.html."""
        return Report(self.folder / "report.html")

    def evaluate(self, data: Path, **flags: Unpack[EvalFlags]) -> dict[str, Any]:
        """Evaluates the trained model; see `evaluate`."""
        return evaluate(self.model, data, **flags)

    def predict(self, data: Path, **flags: Unpack[PredictFlags]) -> Columns:
        """Predicts with the trained model; see `predict`."""
        return predict(self.model, data, **flags)

    def resume(self, **flags: Unpack[TrainFlags]) -> Run:
        """Continues the run in its folder, with more epochs, say; see `train`."""
        return _train({**flags, "resume": self.folder})


def _column(values: list[Any]) -> np.ndarray:
    if all(value is None or isinstance(value, (int, float)) for value in values):
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return np.array(["" if value is None else str(value) for value in values])


def _train(flags: dict[str, Any]) -> Run:
    summary = json.loads(program.run("train", {**flags, "json": True}))
    return Run(summary["config"]["out"])


def train(model: Path, data: Path | None = None, **flags: Unpack[TrainFlags]) -> Run:
    """Trains a model and returns the run; `flags` are those of `onnxtrain train`, with underscores.

    Shows a progress bar where tqdm is installed, else lines; `quiet=True` shows nothing. Without `data`, trains some
    updates on synthetic samples. Raises Error with one line that names the file, node, column or flag; an interrupt
    saves the state, then raises KeyboardInterrupt: `Run(folder).resume()` continues.

        run = onnxtrain.train("x.onnx", "train.csv", eval_split=0.2, epochs=3, out="runs/a")
    """
    return _train({"model": model, "data": data, **flags})


def evaluate(model: Path, data: Path, **flags: Unpack[EvalFlags]) -> dict[str, Any]:
    """Returns loss, accuracy and metrics of a model on data, as `onnxtrain eval --json` prints them."""
    return json.loads(program.run("eval", {"quiet": True, "model": model, "data": data, "json": True, **flags}))


def predict(model: Path, data: Path, **flags: Unpack[PredictFlags]) -> Columns:
    """Returns the columns that `onnxtrain predict` writes, by name, each with one value per sample.

    Columns of numbers are float64, others are text. `out` keeps the CSV file.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = {"quiet": True, "out": os.path.join(folder, "predictions.csv"), **flags}
        program.run("predict", {"model": model, "data": data, **given})
        with open(given["out"], newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    text = {"file", "prediction"} if "probability" in rows[0] else {"file"}  # classes have names
    columns = {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}
    return {name: np.array(column) if name in text else _parse(column) for name, column in columns.items()}


def _parse(texts: list[str]) -> np.ndarray:
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return np.array(texts)


def plan(model: Path, data: Path | None = None, **flags: Unpack[PlanFlags]) -> dict[str, Any]:
    """Returns what a run would need, as `onnxtrain plan --json` prints it; `flags` are those of `train`."""
    return json.loads(program.run("plan", {"quiet": True, "model": model, "data": data, "json": True, **flags}))


def inspect(model: Path, **flags: Unpack[InspectFlags]) -> dict[str, Any]:
    """Returns inputs, operators, weights and the loss that fits, as `onnxtrain inspect --json` prints them."""
    return json.loads(program.run("inspect", {"quiet": True, "model": model, "json": True, **flags}))


def compare(model: Path, data: Path | None = None, **flags: Unpack[CompareFlags]) -> dict[str, Any]:
    """Returns the comparison of the backends, or with `reference`, as `onnxtrain compare --json` prints it."""
    return json.loads(program.run("compare", {"quiet": True, "model": model, "data": data, "json": True, **flags}))
