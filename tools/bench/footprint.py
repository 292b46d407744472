#!/usr/bin/env python3
"""What a small training takes of a device: from start to first step, memory, size of the programs.

    footprint.py BUILD

BUILD is a build folder. Run by hand, with PyPI's numpy and onnx. Prints
- a perceptron of 784-32-10, batch 32: wall and CPU time of a process that loads it and makes one update (median of 9),
- a MobileNetV2 of 224 × 224 whose head alone is trained: peak memory of the process at several batches,
- the libraries and the tool without symbols, and the libraries that the backend `cpu` needs beside them.
"""
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Model:
    """A graph of random weights with the input x and the output y."""

    def __init__(self):
        self.rng, self.weights, self.nodes = np.random.default_rng(0), [], []

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def random(self, name, shape, scale):
        return self.weight(name, self.rng.standard_normal(shape) * scale)

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def save(self, path, sample, result):
        self.nodes[-1].output[0] = "y"
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
                  for name, shape in (("x", sample), ("y", result))]
        graph = helper.make_graph(self.nodes, "footprint", values[:1], values[1:], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def save_perceptron(path):
    m = Model()
    h = m.node("Gemm", "x", m.random("w1", (784, 32), .05), m.weight("b1", np.zeros(32)))
    m.node("Gemm", m.node("Relu", h), m.random("w2", (32, 10), .2), m.weight("b2", np.zeros(10)))
    m.save(path, (784,), (10,))


def save_mobilenet(path):
    m = Model()
    zero, six = m.weight("zero", 0), m.weight("six", 6)

    def conv(x, inputs, outputs, size, stride, groups, activates):
        name = f"conv{len(m.nodes)}."
        fan = inputs // groups * size * size
        kernel = m.random(name + "w", (outputs, inputs // groups, size, size), (2 / fan) ** .5)
        y = m.node("Conv", x, kernel, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4, group=groups)
        norm = [m.weight(name + part, np.full(outputs, value)) for part, value in zip("sbmv", (1, 0, 0, 1))]
        y = m.node("BatchNormalization", y, *norm)
        return m.node("Clip", y, zero, six) if activates else y

    x, channels = conv("x", 3, 32, 3, 2, 1, True), 32
    for factor, width, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                         (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            y, inner, step = x, channels * factor, stride if i == 0 else 1
            y = conv(y, channels, inner, 1, 1, 1, True) if factor > 1 else y
            y = conv(conv(y, inner, inner, 3, step, inner, True), inner, width, 1, 1, 1, False)
            x = m.node("Add", x, y) if step == 1 and channels == width else y
            channels = width
    x = m.node("Flatten", m.node("GlobalAveragePool", conv(x, 320, 1280, 1, 1, 1, True)))
    m.node("Gemm", x, m.random("head.w", (1280, 10), .03), m.weight("head.b", np.zeros(10)))
    m.save(path, (3, 224, 224), (10,))


def bench(tool, model, *flags):
    words = [tool, "bench", "--model", model, "--steps-only", "--max-steps", "1", "--threads", "1", "--backend", "cpu",
             "--json", *map(str, flags)]
    return json.loads(subprocess.run(words, check=True, capture_output=True).stdout)


def time_start(tool, model):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = []
    for _ in range(9):
        wall, cpu = time.monotonic(), used()
        bench(tool, model, "--batch-size", 32)
        times.append((time.monotonic() - wall, used() - cpu))
    return [1e3 * statistics.median(column) for column in zip(*times)]


def stripped_size(path, folder):
    copy = pathlib.Path(folder, "stripped")
    shutil.copy(path, copy)
    subprocess.run(["strip", copy], check=True)
    return os.path.getsize(copy) / 1e6


def main():
    build = pathlib.Path(sys.argv[1])
    tool = build / "bin/onnxtrain"
    with tempfile.TemporaryDirectory() as folder:
        small, mobile = pathlib.Path(folder, "small.onnx"), pathlib.Path(folder, "mobile.onnx")
        save_perceptron(small)
        save_mobilenet(mobile)
        wall, cpu = time_start(tool, small)
        print(f"start to the end of the first step: {wall:.0f} ms, {cpu:.0f} ms of CPU time")
        for batch in (1, 8, 16, 32):
            peak = bench(tool, mobile, "--batch-size", batch, "--train", "head*")["process_peak_bytes"]
            print(f"MobileNetV2, head of 10 classes, batch {batch}: peak of {peak / 1e6:.0f} MB")
        peak = bench(tool, mobile, "--batch-size", 32, "--train", "head*", "--micro-batch-size", "auto",
                     "--memory-budget", "180MiB")["process_peak_bytes"]
        print(f"the same, batch 32 in micro-batches under --memory-budget 180MiB: peak of {peak / 1e6:.0f} MB")
        for name in ("bin/onnxtrain", "lib/libonnxtrain.so", "lib/libonnxtrain_backend_cpu.so",
                     "lib/libonnxtrain_c.so.1"):
            print(f"{name}: {stripped_size(build / name, folder):.1f} MB without symbols")
    needed = subprocess.check_output(["ldd", build / "lib/libonnxtrain_backend_cpu.so"], text=True)
    others = {line.split()[2] for line in needed.splitlines() if "=> /" in line and "onnxtrain" not in line}
    sizes = {path: os.path.getsize(os.path.realpath(path)) / 1e6 for path in others}
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:4]
    print(f"libraries beside them: {sum(sizes.values()):.0f} MB, of which "
          + ", ".join(f"{pathlib.Path(path).name} {size:.0f}" for path, size in largest))


if __name__ == "__main__":
    main()
