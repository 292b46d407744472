#!/usr/bin/env python3
"""Exports small PyTorch models by both exporters, with data and what 20 steps of PyTorch give on it.

usage: make_exports.py [NAME...]    writes NAME.onnx, NAME.data.npz and NAME.expected.npz beside this script

Needs PyTorch 2.5 or later with onnx and onnxscript; the tests only read the files.
"""
import contextlib
import copy
import io
import logging
import pathlib
import sys
import warnings

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
SAMPLES, BATCH, STEPS = 12, 4, 20
LR, MOMENTUM, MAX_NORM = 0.02, 0.9, 1.0


class Scalars(nn.Module):
    """Scalar parameters, buffers that standardize the input, a BatchNorm without weights."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(6))
        self.register_buffer("std", torch.rand(6) + 0.5)
        self.a, self.b, self.f = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.p, self.n = nn.PReLU(), nn.BatchNorm1d(8, affine=False)
        self.gamma, self.temp = nn.Parameter(torch.tensor([0.5])), nn.Parameter(torch.tensor(1.3))
        self.cls = nn.Parameter(torch.zeros(1, 8))

    def forward(self, x):
        x = self.p(self.a((x - self.mean) / self.std))
        x = x + self.gamma * self.b(self.n(x)) + self.cls
        return self.f(x) / self.temp


class Shared(nn.Module):
    """Untrained norms with equal values, a layer that runs three times, and a matrix that two layers share."""

    def __init__(self):
        super().__init__()
        self.i, self.b, self.o = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 6)
        self.n = nn.ModuleList([nn.LayerNorm(8) for _ in range(3)])
        self.h = nn.Linear(6, 8, bias=False)
        self.h.weight = self.i.weight

    def forward(self, x):
        x = self.i(x)
        for norm in self.n:
            x = x + torch.tanh(self.b(norm(x)))
        return self.h(self.o(x))


class Llama(nn.Module):
    """One layer with RMSNorm, grouped queries, rotary tables and a mask as buffers, SwiGLU."""

    def __init__(self, width=16):
        super().__init__()
        self.e = nn.Embedding(20, width)
        self.n = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(3)])
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.k, self.v, self.o = linear(width, 16), linear(width, 8), linear(width, 8), linear(16, width)
        self.g, self.u, self.d, self.h = linear(width, 24), linear(width, 24), linear(24, width), linear(width, 20)
        angles = torch.outer(torch.arange(16.0), 100 ** (-torch.arange(0, 4, 2) / 4.0))
        self.register_buffer("cos", torch.cat([angles, angles], 1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat([angles, angles], 1).sin())
        self.register_buffer("mask", torch.full((16, 16), -1e9).triu(1))

    @staticmethod
    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight

    def rotate(self, x):
        length = x.shape[2]
        return x * self.cos[:length] + torch.cat([-x[..., 2:], x[..., :2]], -1) * self.sin[:length]

    def forward(self, ids):
        x = self.e(ids)
        length = x.shape[1]
        heads = lambda t, n: t.view(t.shape[0], length, n, 4).transpose(1, 2)
        y = self.norm(x, self.n[0])
        q = self.rotate(heads(self.q(y), 4))
        k = self.rotate(heads(self.k(y), 2)).repeat_interleave(2, 1)
        v = heads(self.v(y), 2).repeat_interleave(2, 1)
        scores = q @ k.transpose(2, 3) / 2 + self.mask[:length, :length]
        x = x + self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
        y = self.norm(x, self.n[1])
        x = x + self.d(F.silu(self.g(y)) * self.u(y))
        return self.h(self.norm(x, self.n[2]))


class SpeechEncoder(nn.Module):
    """Convolutions over time, a table of sines, attention by scaled_dot_product_attention, a scale of the logits."""

    def __init__(self, width=16):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(4, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        angles = torch.outer(torch.arange(8.0), 100 ** (-torch.arange(8) / 8.0))
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1))
        self.n1, self.n2, self.n3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.o, self.f1, self.f2 = nn.Linear(width, width), nn.Linear(width, 24), nn.Linear(24, width)
        self.h, self.logit_scale = nn.Linear(width, 5), nn.Parameter(torch.tensor(1.7))

    def forward(self, x):
        x = F.gelu(self.c2(F.gelu(self.c1(x)))).transpose(1, 2) + self.positions
        heads = lambda t: t.view(t.shape[0], -1, 2, 8).transpose(1, 2)
        y = self.n1(x)
        y = F.scaled_dot_product_attention(heads(self.q(y)), heads(self.k(y)), heads(self.v(y)))
        x = x + self.o(y.transpose(1, 2).flatten(2))
        x = x + self.f2(F.gelu(self.f1(self.n2(x))))
        return self.h(self.n3(x).mean(1)) * self.logit_scale


class Recurrent(nn.Module):
    """Two layers of LSTM with states as inputs, and a bidirectional GRU."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, 2, batch_first=True)
        self.gru = nn.GRU(8, 6, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x, h0, c0):
        y, _ = self.lstm(x, (h0, c0))
        y, _ = self.gru(y)
        return self.head(y[:, -1])


class UNet(nn.Module):
    """One level, with BatchNorm going down and bilinear interpolation and GroupNorm going up."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 6, 3, 1, 1, bias=False), nn.BatchNorm2d(6), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(6, 8, 3, 1, 1), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.Conv2d(14, 6, 3, 1, 1)
        self.out = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        a = self.down(x)
        b = F.interpolate(self.deep(F.avg_pool2d(a, 2)), scale_factor=2, mode="bilinear")
        return self.out(torch.tanh(self.up(torch.cat([a, b], 1))))


class Mobile(nn.Module):
    """An inverted residual with squeeze and excitation, hard activations, BatchNorm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU())
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16), nn.SiLU())
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.narrow = nn.Sequential(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.depth(self.wide(x))
        y = y * torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return self.head((x + self.narrow(y)).mean((2, 3)))


class Translator(nn.Module):
    """An encoder and a decoder over sequences of different lengths, which share an embedding."""

    def __init__(self, width=16):
        super().__init__()
        self.e = nn.Embedding(20, width)
        self.t = nn.Transformer(width, 2, 1, 1, 24, 0.0, activation="gelu", batch_first=True)
        for p in self.t.parameters():
            nn.init.normal_(p, std=0.2)
        self.o = nn.Linear(width, 20)

    def forward(self, source, target):
        return self.o(self.t(self.e(source), self.e(target)))


class VisionTransformer(nn.Module):
    """Patches, a class token, learned positions, two cloned encoder layers."""

    def __init__(self, width=16):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 5, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class Padded(nn.Module):
    """An embedding with a row for padding, biases of zeros, powers of two as a buffer."""

    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 6, padding_idx=1)
        self.register_buffer("powers", 2.0 ** torch.arange(6))
        self.a, self.b = nn.Linear(12, 8), nn.Linear(8, 3)
        nn.init.zeros_(self.a.bias)
        nn.init.zeros_(self.b.bias)

    def forward(self, ids):
        x = self.e(ids).mean(1)
        return self.b(F.gelu(self.a(torch.cat([x, torch.sin(x * self.powers)], 1))))


def normal(*shape):
    return torch.randn(SAMPLES, *shape)


def tokens(*shape):
    return torch.randint(0, 20, (SAMPLES, *shape))


# Module, inputs (samples first), shape of the class labels, number of classes.
CASES = {
    "scalars": (Scalars, lambda: {"x": normal(6)}, (), 3),
    "shared": (Shared, lambda: {"x": normal(6)}, (), 8),
    "llama": (Llama, lambda: {"ids": tokens(8)}, (8,), 20),
    "speech": (SpeechEncoder, lambda: {"x": normal(4, 16)}, (), 5),
    "recurrent": (Recurrent, lambda: {"x": normal(5, 6), "h0": normal(2, 8), "c0": normal(2, 8)}, (), 3),
    "unet": (UNet, lambda: {"x": normal(3, 8, 8)}, (8, 8), 2),
    "mobile": (Mobile, lambda: {"x": normal(3, 8, 8)}, (), 5),
    "translator": (Translator, lambda: {"source": tokens(6), "target": tokens(4)}, (4,), 20),
    "padded": (Padded, lambda: {"ids": tokens(5)}, (), 3),
    "vision": (VisionTransformer, lambda: {"x": normal(3, 8, 8)}, (), 5),
}
# Exporter (`ts`: TorchScript, `dy`: dynamo) and mode: for inference, with a `t` for training.
VARIANTS = {
    "scalars": ["ts", "dy"], "shared": ["ts", "dy"], "llama": ["ts", "dy"], "speech": ["ts", "dy"],
    "recurrent": ["ts"], "unet": ["tst", "dyt"], "mobile": ["tst", "dyt"], "translator": ["ts"], "vision": ["ts"],
    "padded": ["ts", "dy"],
}
STATES = {"h0", "c0"}  # their batch is axis 1 of the model's input


def to_model(name, value):
    return value.transpose(0, 1).contiguous() if name in STATES else value


def export(model, inputs, variant, path):
    names, args = list(inputs), tuple(to_model(k, v[:2]) for k, v in inputs.items())
    axis = {k: 1 if k in STATES else 0 for k in names}
    original, model = model, copy.deepcopy(model).train(variant.endswith("t"))
    common = {"input_names": names, "output_names": ["y"]}
    if variant.startswith("ts"):
        training = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
        torch.onnx.export(model, args, path, dynamo=False, opset_version=17,
                          dynamic_axes={k: {axis[k]: "batch"} for k in names + ["y"] if k in axis},
                          **common, **(training if variant == "tst" else {}))
        restore_statistics(original, path)
        return
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(model, args, dynamo=True, verbose=False, optimize=variant == "dy",
                                dynamic_shapes=tuple({axis[k]: batch} for k in names), **common)
    program.save(path, external_data=False)
    strip(path)


def restore_statistics(original, path):
    """Tracing in training mode has updated the running statistics."""
    model, state = onnx.load(path), original.state_dict()
    for tensor in model.graph.initializer:
        if "running_" in tensor.name:
            tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))
    onnx.save(model, path)


def strip(path):
    """Removes stack traces, which are most of the file."""
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if "stack_trace" not in p.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def train(model, inputs, labels, batch_statistics):
    """The losses of 20 steps over consecutive batches, then the outputs for all samples."""
    model.train(batch_statistics)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, LR, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        begin = step * BATCH % SAMPLES
        rows = slice(begin, begin + BATCH)
        scores = model(*(to_model(k, v[rows]) for k, v in inputs.items()))
        loss = F.cross_entropy(classes_last(scores, labels), labels[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        outputs = model.eval()(*(to_model(k, v) for k, v in inputs.items()))
    return np.array(losses), outputs.numpy()


def classes_last(scores, labels):
    if scores.dim() == 4:
        scores = scores.movedim(1, -1)
    return scores.flatten(0, -2)


def make(name):
    torch.manual_seed(sum(map(ord, name)))
    module, make_inputs, label_shape, classes = CASES[name]
    model, inputs = module(), make_inputs()
    labels = torch.randint(0, classes, (SAMPLES, *label_shape))
    has_norm = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    np.savez_compressed(HERE / f"{name}.data.npz", label=labels.numpy(), **{k: v.numpy() for k, v in inputs.items()})
    for variant in VARIANTS[name]:
        with contextlib.redirect_stdout(io.StringIO()):
            export(model, inputs, variant, str(HERE / f"{name}.{variant}.onnx"))
        print(name, variant, (HERE / f"{name}.{variant}.onnx").stat().st_size, flush=True)
    trained = sum(p.numel() for p in model.parameters())
    losses, outputs = train(model, inputs, labels, has_norm)
    np.savez_compressed(HERE / f"{name}.expected.npz", losses=losses, y=outputs, trained=np.array([trained]))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for case in sys.argv[1:] or CASES:
        make(case)
