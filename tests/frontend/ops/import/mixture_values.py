"""Prints the expected values of mixture_test.cc: results of ONNX Runtime's CPU kernels (made with 1.32).

Needs numpy, onnx and onnxruntime. Inputs are the formulas of mixture_test.cc.
"""
import os

os.environ["ORT_QMOE_CPU_QNBIT_GEMM"] = "fp32"  # no rounding of activations to 8 bits

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

EXPERTS, TOKENS = 4, 3


def noise(shape, seed):
    i = np.arange(np.prod(shape), dtype=np.float64)
    return np.sin(i * 37 + seed * 101).astype(np.float32).reshape(shape)


def numbers(shape, seed):
    i = np.arange(np.prod(shape), dtype=np.int64)
    return ((i * 89 + seed * 57 + i // 7 * 31) % 256).astype(np.uint8).reshape(shape)


def scales(shape, seed):
    return (0.002 * (2 + noise(shape, seed))).astype(np.float32)


def run(op, inputs, attrs):
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain="com.microsoft", **attrs)],
        "mixture",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, inputs[0].shape)],
        [numpy_helper.from_array(value, name) for name, value in zip(names, inputs) if name],
    )
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {})[0]


def show(name, y):
    print(f"{name}:", ", ".join(f"{value:.7g}" for value in y[:, :3].ravel()))


def floats(activation, width=4, units=5, **attrs):
    outputs = units * (2 if activation == "swiglu" else 1)
    return run(
        "MoE",
        [
            noise((TOKENS, width), 1),
            noise((TOKENS, EXPERTS), 2),
            noise((EXPERTS, outputs, width), 3),
            noise((EXPERTS, outputs), 4),
            noise((EXPERTS, width, units), 5),
            noise((EXPERTS, width), 6),
        ],
        {"k": 2, "activation_type": activation, "swiglu_fusion": int(activation == "swiglu"), **attrs},
    )


def quantized(bits, block, zeros, router, **attrs):
    width, units = 32, 16
    blocks = [width // block, units // block] if block else [1, 1]
    stacks = [(2 * units, width, blocks[0]), (width, units, blocks[1])]
    weights, encodings, points = [], [], []
    for seed, (outputs, inputs, count) in enumerate(stacks):
        weights.append(numbers((EXPERTS, outputs, inputs * bits // 8), seed + 3))
        shape = (EXPERTS, outputs, count) if block else (EXPERTS, outputs)
        encodings.append(scales(shape, seed + 5) * 2 ** (8 - bits))
        packed = (EXPERTS, outputs, (count * bits + 7) // 8) if block else (EXPERTS, (outputs * bits + 7) // 8)
        points.append(numbers(packed, seed + 7) if zeros else None)
    if block:
        attrs["block_size"] = block
    return run(
        "QMoE",
        [noise((TOKENS, width), 1), noise((TOKENS, EXPERTS), 2), weights[0], encodings[0]]
        + [noise((EXPERTS, 2 * units), 8), weights[1], encodings[1], noise((EXPERTS, width), 9), None, None, None]
        + points + [None, np.abs(noise((TOKENS, EXPERTS), 10)) if router else None],
        {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits, **attrs},
    )


if __name__ == "__main__":
    for activation in ("relu", "gelu", "silu", "identity", "swiglu"):
        show(activation, floats(activation))
    show("normalized", floats("silu", normalize_routing_weights=1))
    limits = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5}
    show("limited", floats("swiglu", normalize_routing_weights=1, **limits))
    for case in ((4, 16, 0, 0), (4, 16, 1, 0), (4, 0, 1, 0), (8, 16, 1, 0), (8, 0, 1, 1), (2, 16, 1, 0)):
        show(f"quantized {case}", quantized(*case))
    show("router_weights normalized", quantized(4, 0, 0, 1, normalize_routing_weights=1))
