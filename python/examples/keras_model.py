#!/usr/bin/env python3
"""Exports a Keras model, trains it without TensorFlow, sets its weights. Needs keras ≥ 3 with a backend, and onnx."""
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
    model.export("model.onnx", format="onnx", verbose=False)
    rng = np.random.default_rng(1)
    labels = np.arange(640) % 10
    images = rng.standard_normal((640, 8, 8, 1), np.float32)
    images[np.arange(640), labels // 5 * 4, labels % 5, 0] += 4
    with onnxtrain.Trainer("model.onnx", lr=1e-2, batch_size=64) as trainer:
        name = trainer.batch_tensors[0].name
        data = {name: images, "label": labels}
        print("accuracy before", trainer.evaluate(data).accuracy)
        print("accuracy after ", trainer.fit(data, data, epochs=5)[-1].accuracy)
        model.set_weights(onnxtrain.to_keras(trainer, model))
        expected = next(iter(trainer.predict({name: images}).values()))
    print("largest difference of a score", float(np.abs(model.predict(images, verbose=0) - expected).max()))


if __name__ == "__main__":
    main()
