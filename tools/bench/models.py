"""Defines the benchmark models as PyTorch modules and exports them to ONNX.

    python3 models.py CASE FILE.onnx        exports one case (see CASES)

The models are untrained and have no dropout, so that both trainers do the same work. The export keeps training mode:
BatchNorm is not folded into convolutions. Runs with torch 1.13 and 2.x.
"""
import math
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        split = lambda t: t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(width // self.heads)
        if mask is not None:
            scores = scores + mask
        y = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, pre_norm):
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = Attention(width, heads, pre_norm)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None):
        if self.pre_norm:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """Sequence classifier with the widths of BERT-base."""

    def __init__(self, layers, length, width=768, heads=12, vocabulary=30522):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, False) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
        self.register_buffer('index', torch.arange(length))

    def forward(self, tokens):
        x = self.norm(self.tokens(tokens) + self.positions(self.index))
        for layer in self.layers:
            x = layer(x)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class Gpt(nn.Module):
    """Causal language model; returns logits with the classes in axis 1, as the loss expects."""

    def __init__(self, layers, length, width=768, heads=12, vocabulary=8192):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer('index', torch.arange(length))
        self.register_buffer('mask', torch.triu(torch.full((length, length), -1e4), 1))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(self.index)
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(self.norm(x)).transpose(1, 2)


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Residual block: basic (two 3x3) or, with `bottleneck`, 1x1, 3x3 and 1x1 to four times the width."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            parts = [convolution(inputs, width, 1), nn.ReLU(), convolution(width, width, 3, stride), nn.ReLU(),
                     convolution(width, outputs, 1)]
        else:
            parts = [convolution(inputs, width, 3, stride), nn.ReLU(), convolution(width, width, 3)]
        self.body = nn.Sequential(*parts)
        self.down = convolution(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.down(x))


class ResNet(nn.Module):
    def __init__(self, counts, bottleneck):
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], 64
        for stage, count in enumerate(counts):
            for i in range(count):
                width = 64 << stage
                blocks.append(Block(inputs, width, 2 if i == 0 and stage > 0 else 1, bottleneck))
                inputs = 4 * width if bottleneck else width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x):
        return self.fc(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


class Lstm(nn.Module):
    def __init__(self, inputs=128, width=256, layers=2):
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, layers, batch_first=False)
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        return self.fc(self.lstm(x.transpose(0, 1))[0][-1])


class UNet(nn.Module):
    """U-Net with four levels; logits per pixel."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        double = lambda a, b: nn.Sequential(convolution(a, b, 3), nn.ReLU(), convolution(b, b, 3), nn.ReLU())
        widths = [width << i for i in range(4)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3] + widths, widths))
        self.up = nn.ModuleList(double(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for i, level in enumerate(self.down):
            x = level(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for level, skip in zip(self.up, skips[-2::-1]):
            x = level(torch.cat([F.interpolate(x, scale_factor=2.0, mode='nearest'), skip], 1))
        return self.head(x)


class Case:
    """make() → module; shape of one sample; vocabulary (0: real numbers); label shape of one sample; classes; batch."""

    def __init__(self, make, sample, classes, batch, vocabulary=0, label=()):
        self.make, self.sample, self.classes, self.batch = make, sample, classes, batch
        self.vocabulary, self.label = vocabulary, label

    def inputs(self, batch):
        generator = torch.Generator().manual_seed(1)
        shape = (batch,) + self.sample
        if self.vocabulary:
            return torch.randint(0, self.vocabulary, shape, generator=generator)
        return torch.randn(shape, generator=generator)

    def labels(self, batch):
        return torch.randint(0, self.classes, (batch,) + self.label, generator=torch.Generator().manual_seed(2))


CASES = {
    'mlp': Case(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 28, 28),
                10, 64),
    'lenet': Case(lenet, (1, 28, 28), 10, 64),
    'bert4': Case(lambda: Bert(4, 128), (128,), 2, 8, vocabulary=30522),
    'bert': Case(lambda: Bert(12, 128), (128,), 2, 8, vocabulary=30522),
    'gpt4': Case(lambda: Gpt(4, 256), (256,), 8192, 2, vocabulary=8192, label=(256,)),
    'resnet18': Case(lambda: ResNet([2, 2, 2, 2], False), (3, 224, 224), 1000, 16),
    'resnet50': Case(lambda: ResNet([3, 4, 6, 3], True), (3, 224, 224), 1000, 16),
    'lstm': Case(Lstm, (64, 128), 10, 32),
    'unet': Case(UNet, (3, 128, 128), 4, 8, label=(128, 128)),
}


def export(name, path):
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make()
    options = dict(opset_version=16, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                   input_names=['x'], output_names=['y'], dynamic_axes={'x': {0: 'N'}, 'y': {0: 'N'}})
    if torch.__version__ >= '2.6':
        options['dynamo'] = False
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.onnx.export(model, case.inputs(2), path, **options)


if __name__ == '__main__':
    export(*sys.argv[1:])
