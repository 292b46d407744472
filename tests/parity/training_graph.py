#!/usr/bin/env python3
"""Trains with onnxtrain, and with its exported training graph in onnxruntime: losses and weights must agree.

    training_graph.py TOOL MODEL DATA.npz [--steps N] [--batch-size B] [FLAGS OF TRAIN AND EXPORT …]

Run by hand, with PyPI's numpy, onnx and onnxruntime. The inputs and the label of the graph are arrays of DATA.npz by
the same names. Prints the largest difference of a loss, relative, and of a weight, relative to the largest element of
its tensor. Fails above 1e-5, or three times the spread of onnxruntime where that is more: how far the same graph comes
from itself without its fusions, and from weights one rounding away (two random ones). AdamW moves a weight whose true
gradient is nearly zero by the rate, in the direction of the rounding.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

TOLERANCE, SPREAD = 1e-5, 3


def run(tool, *words):
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")


def open_graph(model, fuses):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if fuses else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def move_weights(model, rng):
    """A copy of the graph whose parameters are one rounding away."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    names = {o.name.removesuffix("_new") for o in model.graph.output if ":" not in o.name}
    for tensor in moved.graph.initializer:
        value = onnx.numpy_helper.to_array(tensor)
        if tensor.name in names and value.dtype == np.float32 and value.ndim > 0:
            value = (value * (1 + rng.choice([-1, 1], value.shape) * 2.0**-23)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    return moved


def train_graph(model, data, steps, batch, fuses=True):
    """Returns losses and state after the last step."""
    session = open_graph(model, fuses)
    outputs = [o.name for o in session.get_outputs()]
    state, losses = {}, []
    types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}
    kinds = {i.name: types.get(i.type) for i in session.get_inputs()}
    samples = len(next(iter(data.values())))
    per_epoch = -(-samples // batch)  # the last one of an epoch may be short
    for step in range(steps):
        first = step % per_epoch * batch
        rows = slice(first, min(first + batch, samples))
        feeds = {name: data[name][rows].astype(kind) for name, kind in kinds.items() if name in data}
        results = dict(zip(outputs, session.run(None, {**feeds, **state})))
        losses.append(float(results["loss"]))
        state = {name.removesuffix("_new"): value for name, value in results.items() if name.endswith("_new")}
    return losses, state


def difference(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-6)) if want.size else 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    args, flags = parser.parse_known_args()
    data = dict(np.load(args.data))
    with tempfile.TemporaryDirectory() as folder:
        graph, out = pathlib.Path(folder, "t.onnx"), pathlib.Path(folder, "run")
        run(args.tool, "export", "--model", args.model, "--data", args.data, "--training-graph", graph, *flags)
        run(args.tool, "train", "--model", args.model, "--data", args.data, "--no-shuffle", "--max-steps", args.steps,
            "--batch-size", args.batch_size, "--log-every", 1, "--backend", "cpu", "--out", out, *flags)
        training, rng = onnx.load(graph), np.random.default_rng(0)
        losses, state = train_graph(training, data, args.steps, args.batch_size)
        others = [train_graph(training, data, args.steps, args.batch_size, fuses=False)]
        for _ in range(2):
            others.append(train_graph(move_weights(training, rng), data, args.steps, args.batch_size))
        lines = [json.loads(line) for line in pathlib.Path(out, "metrics.jsonl").read_text().splitlines()]
        want = [line["loss"] for line in lines if "loss" in line and "lr" in line]
        model = onnx.load(pathlib.Path(out, "model.onnx"))
    trained = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    compared = {name: difference(state.get(f"average:{name}", value), trained[name])  # with --ema-decay the averages
                for name, value in state.items() if name in trained}
    spread = {name: max(difference(other[name], state[name]) for _, other in others) for name in compared}
    excess = {name: value / max(TOLERANCE, SPREAD * spread[name]) for name, value in compared.items()}
    worst = max(excess, key=excess.get)

    def farthest(other):
        return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(losses, other, strict=True))

    loss, loss_spread = farthest(want), max(farthest(other) for other, _ in others)
    print(f"{args.steps} steps: loss {losses[0]:.6f} to {losses[-1]:.6f}, differs by {loss:.2g}; "
          f"{len(compared)} tensors, {worst} differs by {compared[worst]:.2g} (onnxruntime from itself: "
          f"{loss_spread:.2g}, {spread[worst]:.2g})")
    return 0 if loss <= max(TOLERANCE, SPREAD * loss_spread) and excess[worst] <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
