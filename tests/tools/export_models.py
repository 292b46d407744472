"""Exports the models of precision_training_test.cc and repeat_test.cc.

    python3 export_models.py FOLDER     writes lenet.onnx, resnet.onnx, lstm.onnx, encoder.onnx, encoder.npz

The models are those of tests/parity. A tenth of the encoder's labels is random, so that its loss stays away from zero.
"""
import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'parity'))
import models

folder = sys.argv[1]
for case, name in (('lenet', 'lenet'), ('resnet', 'resnet'), ('lstm', 'lstm'), ('encoder_post', 'encoder')):
    example = torch.from_numpy(models.CASES[case].batch(np.random.default_rng(0), 3)[0])
    models.export(models.model(case), example, os.path.join(folder, name + '.onnx'), 16)

for name, count, seed in (('train', 16000, 1), ('test', 8000, 2)):
    rng = np.random.default_rng(seed)
    tokens, labels = models.sequences(rng, count)
    labels = np.where(rng.random(count) < 0.1, rng.integers(0, 5, count), labels)
    np.savez(os.path.join(folder, name + '.npz'), input=tokens, label=labels)
