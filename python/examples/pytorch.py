#!/usr/bin/env python3
"""Exports a PyTorch module, trains it without PyTorch, and loads the weights back. Needs torch ≥ 1.13."""
import inspect

import numpy as np
import onnxtrain
import torch


def make_module():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(8 * 4 * 4, 10),
    )


def export(module, path):
    exporter = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(
        module, (torch.zeros(2, 1, 8, 8),), path, input_names=["x"], output_names=["y"],
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, **exporter,
    )


def main():
    torch.manual_seed(1)
    module = make_module()
    export(module, "module.onnx")
    rng = np.random.default_rng(1)
    labels = np.arange(640) % 10
    images = rng.standard_normal((640, 1, 8, 8), np.float32)
    images[np.arange(640), 0, labels // 5 * 4, labels % 5] += 4
    data = {"x": images, "label": labels}
    with onnxtrain.Trainer("module.onnx", lr=1e-2, batch_size=64) as trainer:
        print("accuracy before", trainer.evaluate(data).accuracy)
        accuracy = trainer.fit(data, data, epochs=5)[-1].accuracy
        print("accuracy after ", accuracy)
        module.load_state_dict(onnxtrain.to_state_dict(trainer, module))
        expected = trainer.predict({"x": images})["y"]
    with torch.no_grad():
        scores = module.eval()(torch.from_numpy(images)).numpy()
    difference = np.abs(scores - expected).max()
    print("largest difference of a score", difference)
    assert accuracy > 0.9 and difference < 1e-4


if __name__ == "__main__":
    main()
