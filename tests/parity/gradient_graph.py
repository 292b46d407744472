#!/usr/bin/env python3
"""Judges the gradients of a model by float64: those of the tool and those of its gradient graph in onnxruntime.

    gradient_graph.py TOOL MODEL [--batch-size B] [--seed N] [FLAGS OF EXPORT AND GRAD …]
    gradient_graph.py TOOL --shared FOLDER [--limit S]   # the models of MODELS, and a line of how many pass

Each of MODELS is judged by a process of its own, within S seconds (an hour).
Run by hand, with PyPI's numpy, onnx, onnxruntime and torch. The loss is `dot`, the product of an output and random
numbers, unless --loss is among the flags; labels must be floats. Integer inputs are drawn below --integers. Three
questions, in this order:

1. Is the graph the gradient? Evaluated in float64 (float64_graph.py), its loss rises along a random direction of all
   weights as its gradients say: central differences agree to 1e-6 at one of the steps 1e-6 … 1e-10 of the largest
   weight. A kink (of a ReLU, of a maximum) within a step adds an error that goes with the step, and rounding one that
   grows as it shrinks; a wrong gradient is wrong at all steps.
2. How far is float32 from that by itself? The error of the graph in onnxruntime, per tensor: with and without its
   fusions, and from weights one rounding away; and that of the float64 graph whose convolutions have the errors of
   float32 added (three random ones).
3. Are the tool's gradients as good? A tensor equals that of the graph in onnxruntime to 1e-5 of its norm; else its
   error is at most three times the larger of those of 2 and 2e-6 of its norm: the difference is the conditioning of
   the model in float32. Where that fails, all are judged again by the float64 graph with ReLUs inverted whose inputs
   are within 1e-5 of zero, at most 16, where this brings the gradients closer: float32 may take the other side there.

Exit status 0 where 1 and 3 hold.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from float64_graph import Float64Graph

EQUAL, FLOOR, SPREAD, SLOPE = 1e-5, 2e-6, 3, 1e-6
STEPS = (1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
MOST_INVERTED = 16
MODELS = {
    "basic_pitch_nmp_opset15": ["--logits", "StatefulPartitionedCall:1"],
    "bert_toy_optimized_opset12": ["--logits", "prediction_scores", "--dim", "max_seq_len_in_batch=8"],
    "byte_sb_bidi_lstm_opset9": [],
    "cifar_deep_kw_opset9": [],
    "cnn_mnist_pytorch_opset9": [],
    "keras_mnist_cnn_opset12": [],
    "mnist_burn_bn_opset16": [],
    "mnist_cntk_opset8": [],
    "mnist_softmax_tf_opset4": [],
    "sklearn_lr_mnist": [],
    "super_resolution_pytorch02": [],
    "test_training_model_opset12": [],
    "unet_sed_opset18": [],
    "version-RFB-320_opset9": ["--logits", "boxes"],
    "vespa_dummy_transformer_opset12": [],
    "zero_model_mlp_opset14": [],
}


def run(tool, *words):
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")


def make_feeds(graph, batch, integers, seed):
    """Random numbers for inputs without a default; a free extent is the batch, or 8 behind the first."""
    rng, feeds = np.random.default_rng(seed), {}
    defaults = {t.name for t in graph.initializer}
    for value in graph.input:
        if value.name in defaults:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else 8 if i else batch for i, d in enumerate(kind.shape.dim)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(1, integers, shape)
        feeds[value.name] = drawn.astype(dtype)
    return feeds


def run_onnxruntime(path, feeds, level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    return {name[:-5]: value for name, value in outputs.items() if name.endswith("_grad")}


def run_others(path, model, names, feeds, seed):
    """Gradients of the graph in onnxruntime: with fusions, without, and twice from weights one rounding away."""
    level, rng = onnxruntime.GraphOptimizationLevel, np.random.default_rng(seed)
    runs = [run_onnxruntime(path, feeds, how) for how in (level.ORT_ENABLE_ALL, level.ORT_DISABLE_ALL)]
    for _ in range(2):
        moved = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name in names}
        moved = {n: (w * (1 + rng.choice([-1, 1], w.shape) * 2.0**-23)).astype(w.dtype) for n, w in moved.items()}
        runs.append(run_onnxruntime(path, {**feeds, **moved}, level.ORT_ENABLE_ALL))
    return runs


def slope_error(graph, exact, rng):
    """Error of the gradients along a random direction, by central differences of the loss: the least of STEPS.

    Relative to the size that a sum of so many products has; the sum itself may nearly cancel.
    """
    weights = graph.weights
    direction = {name: rng.standard_normal(w.shape) * max(np.abs(w).max(), 1e-3) for name, w in weights.items()}
    products = [exact[name] * direction[name] for name in exact]
    told, size = sum(float(p.sum()) for p in products), np.sqrt(sum(float((p * p).sum()) for p in products))
    errors = {}
    for step in STEPS:
        up, down = (graph.loss({n: w + s * direction[n] for n, w in weights.items()}) for s in (step, -step))
        errors[step] = abs((up - down) / (2 * step) - told) / max(abs(told), size, 1e-12)
        if errors[step] <= SLOPE:
            break
    step = min(errors, key=errors.get)
    return errors[step], step


def errors_of(got, exact):
    return {name: float(np.linalg.norm(got[name].astype(np.float64).ravel() - exact[name].ravel())) for name in exact}


def largest(names, all_errors):
    return {name: max(errors[name] for errors in all_errors) for name in names}


def explain(graph, near, got, exact, scale):
    """Errors of `got`, and how many ReLUs the float64 graph had inverted, one after another, to come closer to it."""
    def distance(errors):
        return sum((errors[name] / scale[name]) ** 2 for name in errors)

    inverted, best = [], errors_of(got, exact)
    for unit in near:
        if max(best[name] / scale[name] for name in best) <= EQUAL:
            break
        errors = errors_of(got, graph.gradients([*inverted, unit]))
        if distance(errors) < distance(best):
            inverted, best = [*inverted, unit], errors
    return best, len(inverted)


def judge(args, flags):
    """Prints the verdict; true where 1 and 3 hold."""
    with tempfile.TemporaryDirectory() as folder:
        path, data, out = (pathlib.Path(folder, name) for name in ("g.onnx", "d.npz", "g.npz"))
        run(args.tool, "export", "--model", args.model, "--gradient-graph", path, *flags)
        model = onnx.load(path)
        feeds = make_feeds(model.graph, args.batch_size, args.integers, args.seed)
        np.savez(data, **feeds)
        run(args.tool, "grad", "--model", args.model, "--data", data, "--backend", "cpu", "--out", out, *flags)
        ours = {name[5:]: value for name, value in np.load(out).items() if name.startswith("grad:")}
        others = run_others(path, model, set(ours), feeds, args.seed)
    graph = Float64Graph(model, feeds)
    exact = graph.gradients()
    if set(exact) != set(ours):
        sys.exit(f"{args.model}: the graph and the tool have gradients of different weights")
    slope, step = slope_error(graph, exact, np.random.default_rng(args.seed + 1))
    exact = graph.gradients()
    norm = {name: float(np.linalg.norm(value)) for name, value in exact.items()}
    whole = np.sqrt(sum(n * n for n in norm.values()))
    scale = {name: max(norm[name], FLOOR * whole, 1e-30) for name in exact}
    apart = {name: min(errors_of(ours, {name: other[name]})[name] for other in others[:2]) for name in exact}
    unequal = [name for name in exact if apart[name] > EQUAL * norm[name]]
    if unequal:
        others += [graph.rounded_gradients(np.random.default_rng(args.seed + 2 + i)) for i in range(3)]

    def find_fails(mine, spread):
        return [name for name in unequal
                if mine[name] > max(SPREAD * spread[name], FLOOR * norm[name], FLOOR * whole / len(exact))]

    inverted, mine = 0, errors_of(ours, exact)
    spread = largest(exact, [errors_of(other, exact) for other in others])
    fails = find_fails(mine, spread)
    if fails:
        graph.gradients()
        near = graph.near_units()[:MOST_INVERTED]
        mine, inverted = explain(graph, near, ours, exact, scale)
        spread = largest(exact, [explain(graph, near, other, exact, scale)[0] for other in others])
        fails = find_fails(mine, spread)
    report(args, exact, dict(slope=slope, step=step, unequal=unequal, fails=fails, inverted=inverted), mine, spread,
           scale)
    return slope <= SLOPE and not fails


def report(args, exact, found, mine, spread, scale):
    worst = max((n for n in exact if np.linalg.norm(exact[n]) == scale[n]), key=lambda n: mine[n] / scale[n])
    text = ""
    if found["unequal"]:
        why = "NOT EXPLAINED: " + ", ".join(found["fails"][:5]) if found["fails"] else "conditioning"
        text = f", {len(found['unequal'])} do not ({why}; {found['inverted']} ReLUs near zero inverted)"
    print(f"{pathlib.Path(args.model).name}: {'FAIL' if found['slope'] > SLOPE or found['fails'] else 'pass'}; "
          f"float64 graph against central differences {found['slope']:.1e} (step {found['step']:g}); of {len(exact)} "
          f"tensors {len(exact) - len(found['unequal'])} equal those of onnxruntime to {EQUAL:g}{text}; the farthest "
          f"from float64, {worst}: {mine[worst] / scale[worst]:.1e}, in onnxruntime {spread[worst] / scale[worst]:.1e}",
          flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--shared", help="folder of the models of MODELS")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for each of MODELS")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--integers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args, flags = parser.parse_known_args()
    if (args.model is None) == (args.shared is None):
        parser.error("name a model, or --shared FOLDER")
    if args.model:
        return 0 if judge(args, with_defaults(flags, args.batch_size)) else 1
    passed = sum(judge_apart(args, name, [*flags, *more]) for name, more in MODELS.items())
    print(f"{passed} of {len(MODELS)} models pass")
    return 0 if passed == len(MODELS) else 1


def judge_apart(args, name, flags):
    """Judges a shared model by a process of its own; true where it passes within the limit."""
    numbers = [f"--{option}={getattr(args, option.replace('-', '_'))}" for option in ("batch-size", "integers", "seed")]
    words = [sys.executable, __file__, args.tool, pathlib.Path(args.shared, f"{name}.onnx"), *numbers, *flags]
    start = time.monotonic()
    try:
        passes = subprocess.run(words, check=False, timeout=args.limit).returncode == 0
    except subprocess.TimeoutExpired:
        passes = False
    print(f"{name}: {'passes' if passes else 'DOES NOT PASS'}, {time.monotonic() - start:.0f} s", flush=True)
    return passes


def with_defaults(flags, batch_size):
    return [*flags, "--batch-size", batch_size] + ([] if "--loss" in flags else ["--loss", "dot"])


if __name__ == "__main__":
    sys.exit(main())
