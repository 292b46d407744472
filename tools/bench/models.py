"""Defines the benchmark models as PyTorch modules and exports them to ONNX.

    python3 models.py CASE FILE.onnx [SEED] [FOLDER] [ULPS]

exports one case (see CASES). FOLDER: a pre-trained model. ULPS: weights move by up to so many units in the last place.

The models have no dropout, so that both trainers do the same work. Cases of this file export with torch 1.13 and 2.x in
training mode: BatchNorm is not folded into convolutions. Cases of other libraries (torchvision, transformers) go
through torch 2.x's own exporter (torch.export), as users write it.
"""
import math
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    fused = False  # computes by F.scaled_dot_product_attention (torch 2.x)

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        split = lambda t: t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        if Attention.fused:  # the mask of a causal model is the causal one
            y = F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)
        else:
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


class Encoder(nn.Module):
    """Pre-trained BERT-like encoder of the transformers library: token ids and mask to hidden states."""

    def __init__(self, folder):
        super().__init__()
        import transformers
        config = transformers.AutoConfig.from_pretrained(folder, hidden_dropout_prob=0.0,
                                                         attention_probs_dropout_prob=0.0)
        self.encoder = transformers.AutoModel.from_pretrained(folder, config=config, add_pooling_layer=False)

    def forward(self, input_ids, attention_mask):
        return self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state


class Decoder(nn.Module):
    """Causal language model of the transformers library, of a real shape with random weights: token ids to logits."""

    def __init__(self, shape):
        super().__init__()
        from adapters import make_model
        self.model = make_model(shape, torch.float32)

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


class Mixture(nn.Module):
    """Mixture of experts of the transformers library (5.0 on) with random weights: token ids to logits. Its fastest
    form on a CPU groups the rows of an expert; that form has no ONNX operators, the exported one gathers matrices."""

    def __init__(self, layers, width, units, experts, chosen, vocabulary):
        super().__init__()
        import transformers
        config = transformers.MixtralConfig(
            hidden_size=width, intermediate_size=units, num_hidden_layers=layers, num_attention_heads=width // 64,
            num_key_value_heads=width // 128, num_local_experts=experts, num_experts_per_tok=chosen,
            vocab_size=vocabulary, max_position_embeddings=512)
        self.model = transformers.MixtralForCausalLM(config)

    def forward(self, input_ids):
        self.model.set_experts_implementation('batched_mm' if torch.compiler.is_exporting() else 'grouped_mm')
        return self.model(input_ids=input_ids, use_cache=False).logits


def decoder_case(shape, length, batch):
    from adapters import SHAPES
    vocabulary = SHAPES[shape][4]
    return Case(lambda _: Decoder(shape), (length,), vocabulary, batch, vocabulary=vocabulary, label=(length,),
                needs=('transformers',))


def torchvision_model(name, **options):
    import torchvision
    return getattr(torchvision.models, name)(weights=None, **options)


class Case:
    """A model and the data it is trained on.

    make(folder): module. sample: shape of one sample. batch: default size. vocabulary: token ids below it; 0: real
    numbers. label: shape of the label of one sample. classes: of the labels; 0: real numbers and the mean squared
    error. axis: of the classes in the output. masked: a second input, all ones. needs: libraries beyond torch; such a
    case is exported by torch.export. folder: make needs one.
    """

    def __init__(self, make, sample, classes, batch, vocabulary=0, label=(), axis=-1, masked=False, needs=(),
                 folder=False):
        self.make, self.sample, self.classes, self.batch = make, sample, classes, batch
        self.vocabulary, self.label, self.axis, self.masked = vocabulary, label, axis, masked
        self.needs, self.folder = needs, folder

    def inputs(self, batch, seed=1):
        generator = torch.Generator().manual_seed(seed)
        shape = (batch,) + self.sample
        if not self.vocabulary:
            return (torch.randn(shape, generator=generator),)
        tokens = torch.randint(0, self.vocabulary, shape, generator=generator)
        return (tokens, torch.ones_like(tokens)) if self.masked else (tokens,)

    def labels(self, batch, seed=2):
        generator = torch.Generator().manual_seed(seed)
        shape = (batch,) + self.label
        if not self.classes:
            return torch.randn(shape, generator=generator)
        return torch.randint(0, self.classes, shape, generator=generator)

    def loss(self, outputs, labels):
        """The peer's loss. torch expects classes in axis 1."""
        if not self.classes:
            return F.mse_loss(outputs, labels)
        if self.axis == -1 and outputs.dim() > 2:
            outputs, labels = outputs.flatten(0, -2), labels.flatten()
        return F.cross_entropy(outputs, labels)

    def loss_flag(self):
        """The same loss for onnxtrain."""
        return f'ce:axis={self.axis}' if self.classes else 'mse'

    def images(self):
        return len(self.sample) == 3


CASES = {
    'mlp': Case(lambda _: nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), (1, 28, 28),
                10, 64),
    'lenet': Case(lambda _: lenet(), (1, 28, 28), 10, 64),
    'bert4': Case(lambda _: Bert(4, 128), (128,), 2, 8, vocabulary=30522),
    'bert_tiny': Case(lambda _: Bert(2, 32, 64, 4), (32,), 2, 32, vocabulary=30522),
    'bert6_512': Case(lambda _: Bert(6, 128, 512, 8, 8192), (128,), 2, 16, vocabulary=8192),
    'bert': Case(lambda _: Bert(12, 128), (128,), 2, 8, vocabulary=30522),
    'bert_large': Case(lambda _: Bert(24, 512, 1024, 16), (512,), 2, 8, vocabulary=30522),
    'gpt4': Case(lambda _: Gpt(4, 256), (256,), 8192, 2, vocabulary=8192, label=(256,), axis=1),
    'gpt2': Case(lambda _: Gpt(12, 1024, vocabulary=50257), (1024,), 50257, 8, vocabulary=50257, label=(1024,), axis=1),
    'resnet18': Case(lambda _: ResNet([2, 2, 2, 2], False), (3, 224, 224), 1000, 16),
    'resnet50': Case(lambda _: ResNet([3, 4, 6, 3], True), (3, 224, 224), 1000, 16),
    'lstm': Case(lambda _: Lstm(), (64, 128), 10, 32),
    'unet': Case(lambda _: UNet(), (3, 128, 128), 4, 8, label=(128, 128), axis=1),
    'minilm': Case(Encoder, (48,), 0, 32, vocabulary=30522, label=(48, 384), masked=True, needs=('transformers',),
                   folder=True),
    'minilm512': Case(Encoder, (512,), 0, 4, vocabulary=30522, label=(512, 384), masked=True,
                      needs=('transformers',), folder=True),
    'smollm2': decoder_case('smollm2', 512, 2),
    'smollm2_2048': decoder_case('smollm2', 2048, 1),
    'qwen05b': decoder_case('qwen05b', 512, 1),
    'mixture': Case(lambda _: Mixture(4, 512, 1024, 16, 2, 8192), (512,), 8192, 2, vocabulary=8192, label=(512,),
                    needs=('transformers',)),
    'tv_resnet50': Case(lambda _: torchvision_model('resnet50'), (3, 224, 224), 1000, 16, needs=('torchvision',)),
    'tv_mobilenet_v3': Case(lambda _: torchvision_model('mobilenet_v3_large', dropout=0.0), (3, 224, 224), 1000, 16,
                            needs=('torchvision',)),
}


def export_for_training(model, inputs, path):
    options = dict(opset_version=16, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                   input_names=['x'], output_names=['y'], dynamic_axes={'x': {0: 'N'}, 'y': {0: 'N'}})
    if tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 6):
        options['dynamo'] = False
        skip_onnx_package()
    torch.onnx.export(model, inputs, path, **options)


def skip_onnx_package():
    """Without the package onnx, skips the exporter's search for onnxscript functions. These models have none."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        from torch.onnx._internal.torchscript_exporter import onnx_proto_utils
        onnx_proto_utils._add_onnxscript_fn = lambda model, custom_opsets: model


def export_as_users_do(model, inputs, path):
    """torch 2.x's exporter; optimize=False keeps BatchNorm, which it would fold into the convolution before it."""
    torch.onnx.export(model.eval(), inputs, path, dynamo=True, optimize=False, external_data=True,
                      dynamic_shapes=tuple({0: torch.export.Dim('N')} for _ in inputs))


def nudge(model, ulps):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + ulps * 2**-23 * (2 * torch.rand_like(parameter) - 1))


def export(name, path, seed=0, folder='', ulps=0):
    case = CASES[name]
    torch.manual_seed(seed)
    model = case.make(folder)
    if ulps:
        nudge(model, ulps)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        (export_as_users_do if case.needs else export_for_training)(model, case.inputs(2), path)


if __name__ == '__main__':
    export(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]), *sys.argv[4:5], *map(int, sys.argv[5:6]))
