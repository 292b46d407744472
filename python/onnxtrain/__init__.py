"""Trains ONNX models: loss, gradients, update rule and evaluation follow from the .onnx file.

    import onnxtrain
    trainer = onnxtrain.Trainer("lenet.onnx", lr=1e-3)
    trainer.fit({"input": images, "label": digits}, batch_size=32, epochs=2)
    trainer.export("trained.onnx")
"""
from onnxtrain._capi import Error
from onnxtrain.trainer import BatchTensor, Evaluation, StepResult, Trainer, load_plugin, version
from onnxtrain.weights import save_safetensors, separate_weights, to_arrays, to_keras, to_state_dict

__all__ = [
    "BatchTensor", "Error", "Evaluation", "StepResult", "Trainer", "load_plugin", "save_safetensors",
    "separate_weights", "to_arrays", "to_keras", "to_state_dict", "version",
]
