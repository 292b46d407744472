#!/usr/bin/python3
"""Exports a small untrained digit classifier: make_cnn.py FILE.onnx [SEED]

Needs python3-torch, not the onnx package.
"""
import sys
import warnings

import torch
from torch import nn


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


def main(path, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):  # the exporter would merge scales and variances that are all ones
            nn.init.normal_(layer.weight, 1, 0.02)
            nn.init.normal_(layer.bias, 0, 0.02)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        # Exported with TrainingMode.EVAL, BatchNorm would be folded into the convolutions.
        torch.onnx.export(net.eval(), torch.zeros(2, 1, 28, 28), path, training=torch.onnx.TrainingMode.PRESERVE,
                          do_constant_folding=False, opset_version=16, input_names=['image'], output_names=['logits'],
                          dynamic_axes={'image': {0: 'batch'}, 'logits': {0: 'batch'}})


if __name__ == '__main__':
    main(sys.argv[1], *map(int, sys.argv[2:]))
