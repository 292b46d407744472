#!/usr/bin/env python3
"""Exports a Keras model, trains it without Keras, and sets its weights.

Needs keras ≥ 3.12 with TensorFlow and tf2onnx, or, with KERAS_BACKEND=jax, which keeps BatchNorm and LSTMs as they are
in Keras, with JAX and jax2onnx.
"""
import keras
import numpy as np
import onnxtrain


def main():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input((8, 8, 1)), keras.layers.Conv2D(8, 3, activation="relu", padding="same"),
        keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(10),
    ])
    model(np.zeros((1, 8, 8, 1), np.float32))
    onnxtrain.separate_weights(model)
    model.export("model.onnx", format="onnx", verbose=False)
    rng = np.random.default_rng(1)
    labels = np.arange(640) % 10
    images = rng.standard_normal((640, 8, 8, 1), np.float32)
    images[np.arange(640), labels // 5 * 4, labels % 5, 0] += 4
    with onnxtrain.Trainer("model.onnx", lr=1e-2, batch_size=64) as trainer:
        name = trainer.batch_tensors[0].name
        data = {name: images, "label": labels}
        print("accuracy before", trainer.evaluate(data).accuracy)
        accuracy = trainer.fit(data, data, epochs=5)[-1].accuracy
        print("accuracy after ", accuracy)
        model.set_weights(onnxtrain.to_keras(trainer, model))
        expected = next(iter(trainer.predict({name: images}).values()))
    difference = np.abs(model.predict(images, verbose=0) - expected).max()
    print("largest difference of a score", difference)
    assert accuracy > 0.9 and difference < 1e-4


if __name__ == "__main__":
    main()
