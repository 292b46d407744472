"""Evaluates a gradient graph in float64: onnx.reference, with operators that it lacks, rounds or takes minutes for.

PyTorch convolves. The decisions of ReLUs that float32 may take otherwise are known, and can be inverted.
"""
import math

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

NEAR = 1e-5  # of the root mean square of its tensor: an input of ReLU that float32 may give another sign


class Pad(OpRun):
    """Pads by zeros, or crops where numbers are negative, which onnx.reference refuses."""

    def _run(self, data, pads, value=None, axes=None, mode="constant"):
        if mode != "constant" or axes is not None:
            raise NotImplementedError(f"Pad of mode {mode}")
        pairs = list(zip(pads[: data.ndim], pads[data.ndim:]))
        crops = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(data.shape, pairs))
        grown = [(max(a, 0), max(b, 0)) for a, b in pairs]
        return (np.pad(data[crops], grown, constant_values=0 if value is None else value.item()),)


class Rounding:
    """Adds to a convolution the error of float32 that adds its products one after another, where `rng` is set.

    Each of the n additions of an output rounds a partial sum by up to 2^-24 of it; partial sums of products of any
    sign grow like a random walk. Together that is a deviation of 2^-24 n / sqrt(6) root mean squares of a product.
    """

    def __init__(self):
        self.rng = None

    def apply(self, convolve, x, w, b, terms, *rest):
        exact = convolve(x, w, b, *rest)
        if self.rng is None:
            return exact
        squares = np.maximum(convolve(x * x, w * w, None, *rest), 0)
        return exact + self.rng.standard_normal(exact.shape) * 2.0**-24 * np.sqrt(terms * squares / 6)


def torch_convolution(transposed, rounding):
    """Conv or ConvTranspose in float64 by PyTorch: those of onnx.reference take minutes."""
    import torch
    from torch.nn import functional

    def convolve(x, w, b, strides, pads, dilations, group, output_padding):
        n = x.ndim - 2
        strides, dilations, pads = strides or [1] * n, dilations or [1] * n, list(pads or [0] * 2 * n)
        x, w = torch.tensor(x), torch.tensor(w)
        b = None if b is None else torch.tensor(b)
        begins, ends = pads[:n], pads[n:]
        if not transposed:
            sides = [side for pair in zip(reversed(begins), reversed(ends)) for side in pair]
            kind = (functional.conv1d, functional.conv2d, functional.conv3d)[n - 1]
            return kind(functional.pad(x, sides), w, b, strides, 0, dilations, group).numpy()
        kind = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[n - 1]
        grown = output_padding or [0] * n
        whole = kind(x, w, b, strides, 0, 0, group, dilations)
        sides = [side for begin, end, more in reversed(list(zip(begins, ends, grown))) for side in (-begin, more - end)]
        return functional.pad(whole, sides).numpy()

    def evaluate(self, x, w, b=None, auto_pad=None, dilations=None, group=1, kernel_shape=None, output_padding=None,
                 output_shape=None, pads=None, strides=None):
        if auto_pad not in (None, "NOTSET") or output_shape:
            raise NotImplementedError("auto_pad and output_shape")
        terms = w[0].size if not transposed else x.shape[1] // group * w[0, 0].size
        return (rounding.apply(convolve, x, w, b, terms, strides, pads, dilations, group, output_padding),)

    return type("ConvTranspose" if transposed else "Conv", (OpRun,), {"_run": evaluate})


class Erf(OpRun):
    """In float64: that of onnx.reference rounds to float32."""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class Decisions:
    """Units of ReLUs near zero, by the name of their output, and those whose gradient is to be passed on otherwise."""

    def __init__(self):
        self.near, self.inverted = {}, {}

    def operators(self):
        decisions = self

        class Relu(OpRun):
            def _run(self, x):
                sizes = np.abs(x.ravel()) / max(np.sqrt(np.mean(x * x)), 1e-300)
                decisions.near[self.onnx_node.output[0]] = [(sizes[i], i) for i in np.flatnonzero(sizes < NEAR)]
                return (np.maximum(x, 0),)

        class Greater(OpRun):
            def _run(self, a, b):
                out = np.array(a > b)
                for i in decisions.inverted.get(self.onnx_node.input[0], ()):
                    out.flat[i] ^= True
                return (out,)

        return [Relu, Greater]


def widen(graph):
    """The same graph in float64."""
    def tensor(old):
        if old.data_type == TensorProto.FLOAT:
            old.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(old).astype(np.float64), old.name))

    for initializer in graph.initializer:
        tensor(initializer)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            kind.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensor(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def loss_alone(model):
    """The part of the graph that the loss needs: onnx.reference evaluates all nodes, whatever output is asked for."""
    part = ModelProto()
    part.CopyFrom(model)
    needed, kept = {"loss"}, []
    for node in reversed(part.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    kept.reverse()
    outputs = [o for o in part.graph.output if o.name == "loss"]
    for field, values in ((part.graph.node, kept), (part.graph.output, outputs)):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)
    return part


class Float64Graph:
    """The graph in float64; weights are its initializers of which it has gradients."""

    def __init__(self, model, feeds):
        widen(model.graph)
        self.decisions, self.rounding = Decisions(), Rounding()
        operators = [Pad, Erf, torch_convolution(False, self.rounding), torch_convolution(True, self.rounding),
                     *self.decisions.operators()]
        self.session = ReferenceEvaluator(model, new_ops=operators)
        self.forward = ReferenceEvaluator(loss_alone(model), new_ops=operators)
        self.feeds = {name: v.astype(np.float64) if v.dtype == np.float32 else v for name, v in feeds.items()}
        self.weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer
                        if f"{t.name}_grad" in self.session.output_names}

    def loss(self, weights):
        return float(self.forward.run(["loss"], {**self.feeds, **weights})[0])

    def gradients(self, inverted=()):
        """Gradients by weight; `inverted` are units (margin, name, index) of near_units()."""
        self.decisions.inverted = {}
        for _, name, index in inverted:
            self.decisions.inverted.setdefault(name, []).append(index)
        outputs = dict(zip(self.session.output_names, self.session.run(None, self.feeds)))
        self.decisions.inverted = {}
        return {name: outputs[f"{name}_grad"] for name in self.weights}

    def rounded_gradients(self, rng):
        """Gradients by weight with convolutions as inexact as in float32."""
        self.rounding.rng = rng
        gradients = self.gradients()
        self.rounding.rng = None
        return gradients

    def near_units(self):
        """Of the last evaluation, the nearest to zero first: (distance, name, index)."""
        return sorted((size, name, index) for name, units in self.decisions.near.items() for size, index in units)
