"""make_cases.py DIR: one conformance case for each of the opsets 1, 5 and 6, of operators in their forms of then.

Expected values are computed here, by numpy, from the text of ONNX's changelog. A case has one input x, one output for
all results, flattened in the order below, and the further operands as initializers.
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

random = np.random.RandomState(1)


def normal(*shape):
    return random.randn(*shape).astype(np.float32)


x = normal(2, 3, 2, 2)
positive = (np.abs(x) + 0.5).astype(np.float32)


class Case:
    def __init__(self, opset):
        self.opset, self.nodes, self.constants, self.expected, self.sources = opset, [], [], [], []
        self.node("Abs", ["x"], ["abs"], **self.hint(1))
        self.half = self.constant(np.full_like(x, 0.5))
        self.node("Add", ["abs", self.half], ["positive"], **self.hint(2))

    def hint(self, inputs):
        return {"consumed_inputs": [0] * inputs} if self.opset < 6 else {}

    def node(self, op, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, f"{op}_{len(self.nodes)}", **attributes))

    def constant(self, value):
        value = np.asarray(value)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def check(self, op, operands, want, **attributes):
        """`operands`: names of values, or arrays. `want`: the results."""
        names = [o if isinstance(o, str) else self.constant(o) for o in operands]
        want = want if isinstance(want, list) else [want]
        at = len(self.nodes)
        results = [f"y{at}_{i}" for i in range(len(want))]
        self.node(op, names, results, **attributes)
        for result, value in zip(results, want):
            flat, size = result + "_flat", int(np.size(value))
            to = "FLOAT" if self.opset < 6 else TensorProto.FLOAT
            self.node("Cast", [result], [result + "_float"], to=to)
            if self.opset < 5:
                self.node("Reshape", [result + "_float"], [flat], shape=[size], **self.hint(1))
            else:
                self.node("Reshape", [result + "_float", self.constant(np.array([-1]))], [flat])
            self.sources.append(flat)
            self.expected.append(np.asarray(value, np.float32).reshape(-1))

    def save(self, folder):
        self.node("Concat", self.sources, ["y"], axis=0)
        y = np.concatenate(self.expected)
        inputs = [("x", x)] + [(c.name, numpy_helper.to_array(c)) for c in self.constants]
        graph = helper.make_graph(
            self.nodes, f"opset_{self.opset}",
            [helper.make_tensor_value_info(n, numpy_helper.from_array(v).data_type, v.shape) for n, v in inputs],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, y.shape)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], producer_name="")
        model.ir_version = 3
        path = os.path.join(folder, f"opset_{self.opset}")
        os.makedirs(os.path.join(path, "test_data_set_0"), exist_ok=True)
        onnx.save(model, os.path.join(path, "model.onnx"))
        for name, value in (("input_0", x), ("output_0", y)):
            with open(os.path.join(path, "test_data_set_0", name + ".pb"), "wb") as file:
                file.write(numpy_helper.from_array(value).SerializeToString())


def along(a, b, axis):
    return np.reshape(b, (1,) * axis + np.shape(b) + (1,) * (a.ndim - axis - np.ndim(b)))


def softmax(a, axis):
    rows = a.reshape(int(np.prod(a.shape[:axis])), -1)
    e = np.exp(rows - rows.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).reshape(a.shape)


def channel(v):
    return np.reshape(v, (-1, 1, 1))


def broadcasts(c):
    """A flag enables broadcasting, and `axis` says where the second operand begins."""
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    for op, f in functions.items():
        hint = c.hint(2)
        for shape, axis in [((2,), None), ((3,), 1), ((3, 2), 1), ((3, 2), -3), ((2, 2), None), ((1,), None)]:
            b = np.abs(normal(*shape)) + np.float32(0.5)
            begin = x.ndim - len(shape) if axis is None else axis % x.ndim
            where = {} if axis is None else {"axis": axis}
            c.check(op, ["x", b], f(x, along(x, b, begin)), broadcast=1, **where, **hint)
        c.check(op, ["x", positive], f(x, positive), **hint)
    b = np.abs(normal(3))
    c.check("Pow", ["positive", b], positive ** along(x, b, 1), broadcast=1, axis=1)
    c.check("Greater", ["x", b], x > along(x, b, 1), broadcast=1, axis=1)
    c.check("Less", ["x", b], x < along(x, b, 1), broadcast=1, axis=1)
    a, m, v = normal(3, 4), normal(4, 2), normal(2)
    c.check("Gemm", [a, m, v], 0.5 * a @ m + 2 * v, broadcast=1, alpha=0.5, beta=2.0)
    c.check("Gemm", [a.T.copy(), m.T.copy(), normal(3, 2) * 0], a @ m, transA=1, transB=1)


def functions_of_one(c):
    sigmoid = lambda t: 1 / (1 + np.exp(-t))
    elu = lambda t: np.where(t > 0, t, np.exp(t) - 1)
    functions = {"Relu": lambda t: np.maximum(t, 0), "Sigmoid": sigmoid, "Tanh": np.tanh, "Exp": np.exp, "Elu": elu,
                 "Neg": np.negative, "Floor": np.floor, "Ceil": np.ceil, "Reciprocal": lambda t: 1 / t,
                 "LeakyRelu": lambda t: np.where(t > 0, t, 0.01 * t),
                 "HardSigmoid": lambda t: np.clip(0.2 * t + 0.5, 0, 1)}
    for op, f in functions.items():
        c.check(op, ["x"], f(x), **c.hint(1))
    alpha, gamma = (1.6732, 1.0507) if c.opset < 6 else (1.67326319217681884765625, 1.05070102214813232421875)
    c.check("Selu", ["x"], gamma * np.where(x > 0, x, alpha * (np.exp(x) - 1)), **c.hint(1))
    for op, f in {"Sqrt": np.sqrt, "Log": np.log}.items():
        c.check(op, ["positive"], f(positive), **c.hint(1))
    c.check("Clip", ["x"], np.clip(x, -0.5, 0.25), min=-0.5, max=0.25, **c.hint(1))
    c.check("Clip", ["x"], np.maximum(x, np.float32(-0.5)), min=-0.5, **c.hint(1))
    c.check("Clip", ["x"], x, **c.hint(1))
    slope = np.abs(normal(3))
    c.check("PRelu", ["x", slope], np.where(x > 0, x, channel(slope) * x), **c.hint(1))
    for op, f in {"Sum": np.add, "Max": np.maximum, "Min": np.minimum}.items():
        c.check(op, ["x", "positive"], f(x, positive), **c.hint(2))
    c.check("Mean", ["x", "positive"], (x + positive) / 2, **c.hint(2))


def normalizations(c):
    scale, bias, mean, var = np.abs(normal(3)), normal(3), normal(3), np.abs(normal(3)) + np.float32(0.5)
    at_channels = (x - channel(mean)) / np.sqrt(channel(var) + 0.1) * channel(scale) + channel(bias)
    hint = {"consumed_inputs": [0, 0, 0, 1, 1]} if c.opset < 6 else {}
    c.check("BatchNormalization", ["x", scale, bias, mean, var], at_channels, is_test=1, epsilon=0.1, **hint)
    place = [np.abs(normal(3, 2, 2)), normal(3, 2, 2), normal(3, 2, 2), np.abs(normal(3, 2, 2)) + np.float32(0.5)]
    at_places = (x - place[2]) / np.sqrt(place[3] + 1e-5) * place[0] + place[1]
    c.check("BatchNormalization", ["x"] + place, at_places, is_test=1, spatial=0, **hint)
    moments = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    instance = (x - moments[0]) / np.sqrt(moments[1] + 1e-3) * channel(scale) + channel(bias)
    c.check("InstanceNormalization", ["x", scale, bias], instance, epsilon=1e-3, **c.hint(3))
    c.check("Dropout", ["x"], x, is_test=1, ratio=0.3, **c.hint(1))
    c.check("LpNormalization", ["x"], x / np.abs(x).sum(1, keepdims=True), axis=1, p=1)
    for axis in (1, 2):
        c.check("Softmax", ["x"], softmax(x, axis), axis=axis)
        c.check("LogSoftmax", ["x"], np.log(softmax(x, axis)), axis=axis)
    c.check("Softmax", ["x"], softmax(x, 1))
    mean = x.mean((0, 2, 3), keepdims=True)
    if c.opset == 1:
        c.check("MeanVarianceNormalization", ["x"], x - mean, normalize_variance=0)
        c.check("MeanVarianceNormalization", ["x"], (x - x.mean()) / (x.std() + 1e-9), across_channels=1)


def shapes(c):
    pads = {"paddings" if c.opset < 2 else "pads": [0, 1, 0, 1, 0, 0, 1, 0]}
    width = ((0, 0), (1, 0), (0, 1), (1, 0))
    c.check("Pad", ["x"], np.pad(x, width, constant_values=1.5), value=1.5, **pads)
    c.check("Pad", ["x"], np.pad(x, width, "edge"), mode="edge", **pads)
    c.check("Pad", ["x"], np.pad(x, width, "reflect"), mode="reflect", **pads)
    if c.opset == 1:
        c.check("Reshape", ["x"], x.reshape(2, -1, 2), shape=[0, -1, 2])
        c.check("Split", ["x", np.array([1, 2], np.float32)], [x[:, :1], x[:, 1:]], axis=1)
        c.check("Tile", ["x", np.float32(2), np.float32(3)], np.tile(x, (1, 1, 1, 2)))
        c.check("Concat", ["x", "x"], np.concatenate([x, x], 1))
        c.check("Upsample", ["x"], x.repeat(2, 2).repeat(3, 3), height_scale=2.0, width_scale=3.0)
        c.check("Crop", ["x"], x[:, :, 1:, :1], border=[0, 1, 1, 0])
        c.check("Cast", ["x"], x.astype(np.int32), to="INT32")
        c.check("Cast", ["x"], x.astype(np.float64), to="DOUBLE")
    c.check("Split", ["x"], [x[:, :1], x[:, 1:]], axis=1, split=[1, 2])
    c.check("Slice", ["x"], x[:, 1:3, :, -2:-1], axes=[1, 3], starts=[1, -2], ends=[3, -1])
    c.check("Slice", ["x"], x[1:, 1:], starts=[1, 1], ends=[2, 1000])
    c.check("Squeeze", [normal(1, 2) * 0 + x[:1, 0, 0]], x[0, 0, 0], axes=[0])
    c.check("Unsqueeze", [x[0, 0]], x[:1, :1, :, :, None], axes=[0, 1, 4])
    c.check("Flatten", ["x"], x.reshape(6, 4), axis=2)
    order = np.argsort(-x, 3, kind="stable")[..., :1]
    c.check("TopK", ["x"], [np.take_along_axis(x, order, 3), order], k=1)
    order = np.argsort(-x, 1, kind="stable")[:, :2]
    c.check("TopK", ["x"], [np.take_along_axis(x, order, 1), order], k=2, axis=1)


def reductions(c):
    functions = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min,
                 "ReduceL2": lambda t, a, keepdims: np.sqrt((t ** 2).sum(a, keepdims=keepdims))}
    for op, f in functions.items():
        c.check(op, ["x"], f(x, (1, 3), keepdims=False), axes=[1, 3], keepdims=0)
        c.check(op, ["x"], f(x, (2,), keepdims=True), axes=[2])
        c.check(op, ["x"], f(x, (0, 1, 2, 3), keepdims=True))
    c.check("ArgMax", ["x"], np.argmax(x, 2), axis=2, keepdims=0)
    cubes = (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    c.check("GlobalLpPool", ["x"], cubes, p=3.0 if c.opset < 2 else 3)
    c.check("LpPool", ["x"], np.sqrt((x ** 2).sum(3, keepdims=True)), kernel_shape=[1, 2], p=2.0 if c.opset < 2 else 2)
    c.check("MaxPool", ["x"], x.max((2, 3), keepdims=True), kernel_shape=[2, 2])
    c.check("AveragePool", ["x"], x, kernel_shape=[1, 1])


for opset in (1, 5, 6):
    case = Case(opset)
    for part in (broadcasts, functions_of_one, normalizations, shapes, reductions):
        part(case)
    case.save(sys.argv[1])
