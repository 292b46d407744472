#!/usr/bin/env python3
"""Fine-tunes a scikit-learn classifier that skl2onnx exported. Needs scikit-learn and skl2onnx."""
import numpy as np
import onnxtrain
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier


def main():
    samples, labels = load_iris(return_X_y=True)
    samples = samples.astype(np.float32)
    classifier = MLPClassifier((16,), max_iter=50, random_state=1).fit(samples, labels)
    model = to_onnx(classifier, samples[:1], options={"zipmap": False}).SerializeToString()
    with onnxtrain.Trainer(model, lr=1e-2, batch_size=15) as trainer:
        data = {trainer.batch_tensors[0].name: samples, "label": labels}
        print("accuracy before", trainer.evaluate(data).accuracy)
        accuracy = trainer.fit(data, data, epochs=30)[-1].accuracy
        print("accuracy after ", accuracy)
        arrays = {f"coefs_{i}": value for i, value in enumerate(classifier.coefs_)}
        arrays |= {f"intercepts_{i}": value for i, value in enumerate(classifier.intercepts_)}
        back = onnxtrain.to_arrays(trainer, {name: value.astype(np.float32) for name, value in arrays.items()})
    classifier.coefs_ = [back[f"coefs_{i}"] for i in range(2)]
    classifier.intercepts_ = [back[f"intercepts_{i}"].reshape(-1) for i in range(2)]
    print("accuracy of the classifier", classifier.score(samples, labels))
    assert accuracy > 0.9 and classifier.score(samples, labels) == accuracy


if __name__ == "__main__":
    main()
