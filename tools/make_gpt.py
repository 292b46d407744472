#!/usr/bin/env python3
"""Exports an untrained decoder for language modelling: make_gpt.py FILE.onnx [--vocab N] [--length N] …

Needs PyTorch 2.5 or later with the onnx and onnxscript packages.
"""
import argparse

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocab, length, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, input_ids):
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('file')
    for name, default in {'vocab': 65, 'length': 128, 'layers': 4, 'width': 128, 'heads': 4, 'seed': 0}.items():
        parser.add_argument('--' + name, type=int, default=default)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    net = Gpt(args.vocab, args.length, args.layers, args.width, args.heads)
    ids = torch.zeros(2, args.length, dtype=torch.int64)
    batch = torch.export.Dim('batch')
    torch.onnx.export(net, (ids,), args.file, dynamo=True, optimize=False, external_data=False,
                      input_names=['input_ids'], output_names=['logits'], dynamic_shapes=({0: batch},))


if __name__ == '__main__':
    main()
