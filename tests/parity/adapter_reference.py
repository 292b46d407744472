"""Trains low-rank adapters beside the models of models.py in PyTorch, by the formulas of LoRA, rsLoRA and DoRA.

Writes for every CASE, for reference.py, NAME.VARIANT.npz in float64: losses [STEPS], the adapters' initial values
"i:…" (which float32 holds exactly) and final ones "w:…", and their scale.
"""
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

RANK, ALPHA = 4, 6
SCALES = {'lora': ALPHA / RANK, 'rslora': ALPHA / math.sqrt(RANK), 'dora': ALPHA / RANK}
CASES = {'mlp': ('lora',), 'lenet_smooth': ('lora', 'dora'), 'encoder_pre': ('lora', 'rslora', 'dora')}


class Adapted(nn.Module):
    """A Linear or Conv2d with y = x·W + scale·(x·Aᵀ)·Bᵀ + bias; DoRA: (…)·m/‖W + scale·B·A‖ before the bias."""

    def __init__(self, base, scale, magnitudes, generator):
        super().__init__()
        self.base, self.scale, self.conv = base, scale, isinstance(base, nn.Conv2d)
        weight = base.weight
        ones = [1] * (weight.dim() - 2)
        draw = lambda *shape: torch.from_numpy((0.1 * generator.standard_normal(shape)).astype(np.float32))
        self.lora_A = nn.Parameter(draw(RANK, *weight.shape[1:]).double())
        self.lora_B = nn.Parameter(draw(weight.shape[0], RANK, *ones).double())
        if magnitudes:
            lengths = weight.detach().flatten(1).norm(dim=1).float().double()
            self.lora_magnitude_vector = nn.Parameter(lengths.view(1, -1, *ones) if self.conv else lengths)
        self.magnitudes = magnitudes

    def product(self, x, weight):
        if not self.conv:
            return F.linear(x, weight)
        return F.conv2d(x, weight, None, self.base.stride, self.base.padding, self.base.dilation)

    def forward(self, x):
        down = self.product(x, self.lora_A)
        up = F.conv2d(down, self.lora_B) if self.conv else F.linear(down, self.lora_B)
        y = self.product(x, self.base.weight) + self.scale * up
        if self.magnitudes:
            whole = self.base.weight.flatten(1) + self.scale * self.lora_B.flatten(1) @ self.lora_A.flatten(1)
            y = y * (self.lora_magnitude_vector / whole.norm(dim=1).detach().view(self.lora_magnitude_vector.shape))
        bias = self.base.bias
        return y if bias is None else y + (bias.view(1, -1, 1, 1) if self.conv else bias)


def adapt(net, variant):
    """Replaces all products but the last one; returns the trained parameters by name."""
    net.requires_grad_(False)
    generator = np.random.default_rng(3)
    products = [(n, m) for n, m in net.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))][:-1]
    for name, base in products:
        parent, last = net.get_submodule(name.rpartition('.')[0]), name.rpartition('.')[2]
        setattr(parent, last, Adapted(base, SCALES[variant], variant == 'dora', generator))
    return {n + '.weight': p for n, p in net.named_parameters() if p.requires_grad}


def train(net, variant, batches, loss_of, optimizer_of, clip):
    trained = adapt(net, variant)
    initial = {'i:' + n: p.detach().numpy().copy() for n, p in trained.items()}
    optimizer, losses = optimizer_of(trained.values()), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = loss_of(net, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(trained.values(), clip)
        optimizer.step()
        losses.append(loss.item())
    return dict(losses=np.array(losses), scale=SCALES[variant], **initial,
                **{'w:' + n: p.detach().numpy() for n, p in trained.items()})
