"""Exports small untrained models for the parity tests, with weights drawn from a seed.

    python3 models.py FOLDER        writes FOLDER/NAME-opsetN.onnx and FOLDER/NAME.weights.npz for every model and opset

The export folds no constants and does not use TrainingMode.EVAL, so BatchNorm is not folded into Conv and every weight
keeps its name. Needs torch and numpy, not the onnx package.
"""
import math
import os
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


# ONNX stores attributes and constants as float32. Constants that float32 represents exactly make float64 runs of the
# exported model and of PyTorch compute the same function.
EPSILON = float(np.float32(1e-5))
MOMENTUM = 1 - float(np.float32(0.9))


def batch_norm(channels):
    return nn.BatchNorm2d(channels, eps=EPSILON, momentum=MOMENTUM)


def layer_norm(width):
    return nn.LayerNorm(width, eps=EPSILON)


class LeNet(nn.Module):
    """Convolutions with ReLU and max pooling or, smooth like the first LeNet, with Tanh and average pooling.

    Where a value of thousands lies within rounding of a kink of ReLU or max pooling, one float32 run takes another
    branch than the next, and distances say nothing about the trainers.
    """

    def __init__(self, smooth=False):
        super().__init__()
        self.activation, self.pool = (torch.tanh, F.avg_pool2d) if smooth else (F.relu, F.max_pool2d)
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(self.activation(self.conv1(x)), 2)
        x = self.pool(self.activation(self.conv2(x)), 2)
        x = self.activation(self.fc1(x.flatten(1)))
        return self.fc3(self.activation(self.fc2(x)))


class Mlp(nn.Module):
    """MLP with large matrices, which are updated in the program that computes their gradients."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.Tanh(), nn.Linear(512, 10))

    def forward(self, x):
        return self.layers(x)


class Block(nn.Module):
    """Residual network whose convolution biases precede BatchNorm: their exact gradient is zero.

    Its activation is smooth: see LeNet.
    """

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = batch_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = batch_norm(outputs)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), batch_norm(outputs))

    def forward(self, x):
        y = F.silu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.silu(y + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = batch_norm(8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2))
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.blocks(F.silu(self.bn(self.stem(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Self-attention. The bias of the keys shifts all scores of a query alike: its exact gradient is zero."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = lambda t: t.view(-1, length, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(width // self.heads)
        y = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(y.transpose(1, 2).reshape(-1, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, pre_norm):
        super().__init__()
        self.pre_norm = pre_norm
        self.norm1 = layer_norm(width)
        self.norm2 = layer_norm(width)
        self.attention = Attention(width, heads)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        mlp = lambda t: self.down(F.gelu(self.up(t)))
        if self.pre_norm:
            x = x + self.attention(self.norm1(x))
            return x + mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + mlp(x))


class Encoder(nn.Module):
    """Classifier of sequences or, with `per_token`, of tokens."""

    WIDTH, HEADS, LENGTH, VOCABULARY = 64, 4, 12, 50  # the scale 1/sqrt(WIDTH/HEADS) is exact

    def __init__(self, pre_norm, per_token=False):
        super().__init__()
        self.per_token = per_token
        self.tokens = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(self.LENGTH, self.WIDTH))
        self.layers = nn.Sequential(*[Layer(self.WIDTH, self.HEADS, pre_norm) for _ in range(2)])
        self.norm = layer_norm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, 5)

    def forward(self, tokens):
        x = self.norm(self.layers(self.tokens(tokens) + self.positions))
        return self.head(x if self.per_token else x.mean(dim=1))


class Recurrent(nn.Module):
    """Sequence classifier: two recurrent layers, read at their final states and the average over all steps."""

    def __init__(self, kind, bidirectional, **options):
        super().__init__()
        units, directions = 10, 2 if bidirectional else 1
        self.tokens = nn.Embedding(Encoder.VOCABULARY, 12)
        self.layers = kind(12, units, num_layers=2, bidirectional=bidirectional, batch_first=True, **options)
        self.head = nn.Linear(2 * directions * units, 5)

    def forward(self, tokens):
        y, state = self.layers(self.tokens(tokens))
        final = sum(state) if isinstance(state, tuple) else state  # h, and c where there is one
        top = final[2:] if self.layers.bidirectional else final[1:]
        return self.head(torch.cat([y.mean(dim=1), top.transpose(0, 1).flatten(1)], 1))


def images(*shape):
    """Noisy templates, one per class."""
    templates = np.random.default_rng(99).standard_normal((10,) + shape)

    def batch(rng, n):
        labels = rng.integers(0, 10, n)
        return (templates[labels] + 0.5 * rng.standard_normal((n,) + shape)).astype(np.float32), labels
    return batch


def sequences(rng, n):
    """The class of a sequence is the class of most of its tokens."""
    tokens = rng.integers(0, Encoder.VOCABULARY, (n, Encoder.LENGTH))
    counts = np.stack([(tokens % 5 == c).sum(1) for c in range(5)], 1)
    return tokens, counts.argmax(1)


def tagged(rng, n):
    """Tokens after an even token have class 0; labels after the ragged end of each sequence are -100."""
    tokens = rng.integers(0, Encoder.VOCABULARY, (n, Encoder.LENGTH))
    labels = np.where(np.roll(tokens, 1, 1) % 2 == 0, 0, tokens % 5)
    lengths = rng.integers(1, Encoder.LENGTH + 1, (n, 1))
    return tokens, np.where(np.arange(Encoder.LENGTH) < lengths, labels, -100)


class Case:
    def __init__(self, make, batch, zero=()):
        self.make, self.batch = make, batch
        self.zero = zero  # name suffixes of parameters whose exact gradient is zero

    def is_zero(self, name):
        return name.endswith(tuple(self.zero))


CASES = {
    'mlp': Case(Mlp, images(1, 28, 28)),
    'lenet': Case(LeNet, images(1, 28, 28)),
    'lenet_smooth': Case(lambda: LeNet(smooth=True), images(1, 28, 28)),
    'resnet': Case(ResNet, images(3, 16, 16), zero=('conv1.bias', 'conv2.bias')),
    'encoder_pre': Case(lambda: Encoder(True), sequences, zero=('key.bias',)),
    'encoder_post': Case(lambda: Encoder(False), sequences, zero=('key.bias',)),
    'lstm': Case(lambda: Recurrent(nn.LSTM, True), sequences),
    'gru': Case(lambda: Recurrent(nn.GRU, True), sequences),
    'rnn': Case(lambda: Recurrent(nn.RNN, False, nonlinearity='relu'), sequences),
    'tagger': Case(lambda: Encoder(True, per_token=True), tagged, zero=('key.bias',)),
}
# Exporters write BatchNorm in training form with the newer operator set, in inference form with the older one.
FORMS = {16: torch.onnx.TrainingMode.TRAINING, 13: torch.onnx.TrainingMode.PRESERVE}


def model(name):
    """Returns the model with distinct parameters: in inference form the exporter merges equal initializers."""
    torch.manual_seed(1234)
    net = CASES[name].make()
    with torch.no_grad():
        for tensor in net.state_dict().values():
            if tensor.dim() == 1:
                tensor += 0.1 * torch.rand_like(tensor)
    return net


def export(net, example, path, opset):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.onnx.export(net.eval(), (example,), path, training=FORMS[opset], do_constant_folding=False,
                          opset_version=opset, input_names=['input'], output_names=['logits'],
                          dynamic_axes={'input': {0: 'batch'}, 'logits': {0: 'batch'}})


def export_all(folder):
    for name, case in CASES.items():
        example = torch.from_numpy(case.batch(np.random.default_rng(0), 3)[0])
        net = model(name)
        for opset in FORMS:  # the first one runs the model in training form, which moves the running statistics
            export(net, example, os.path.join(folder, f'{name}-opset{opset}.onnx'), opset)
        weights = {k: v.numpy() for k, v in net.state_dict().items() if v.is_floating_point()}
        np.savez(os.path.join(folder, f'{name}.weights.npz'), **weights)


if __name__ == '__main__':
    export_all(sys.argv[1])
