"""Trains ONNX models: loss, gradients, update rule and evaluation follow from the .onnx file.

On files, as the command `onnxtrain` does:

    import onnxtrain
    run = onnxtrain.train("lenet.onnx", "digits/", eval_split=0.2, epochs=2)
    run.metrics["loss"], run.predict("new/"), run.report

On arrays, step by step:

    trainer = onnxtrain.Trainer("lenet.onnx", lr=1e-3)
    trainer.fit({"input": images, "label": digits}, batch_size=32, epochs=2)
    trainer.export("trained.onnx")
"""
from onnxtrain._capi import Error
from onnxtrain.runs import Report, Run, compare, evaluate, inspect, plan, predict, train
from onnxtrain.trainer import BatchTensor, Evaluation, StepResult, Trainer, load_plugin, version
from onnxtrain.weights import save_safetensors, separate_weights, to_arrays, to_keras, to_state_dict

__all__ = [
    "BatchTensor", "Error", "Evaluation", "Report", "Run", "StepResult", "Trainer", "compare", "evaluate", "inspect",
    "load_plugin", "plan", "predict", "save_safetensors", "separate_weights", "to_arrays", "to_keras", "to_state_dict",
    "train", "version",
]
