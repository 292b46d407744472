"""Uses the Python package on a model x[batch,4] → 3 scores y. Prints nothing."""
import sys

import numpy as np
import onnxtrain


def make_samples():
    rng = np.random.default_rng(1)
    labels = np.arange(90) % 3
    return (rng.random((90, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32), labels


def expect_error(code, text, call):
    try:
        call()
    except onnxtrain.Error as error:
        assert error.code == code and text in str(error), error
        return
    raise AssertionError(f"no error: {text}")


def main(path):
    x, labels = make_samples()
    data = {"x": x, "label": labels}
    config = {"lr": 0.01, "batch_size": 30, "threads": 1}
    seen = []
    with onnxtrain.Trainer(path, **config) as trainer, onnxtrain.Trainer(path, **config) as other:
        assert [(t.name, t.shape) for t in trainer.batch_tensors] == [("x", (4,)), ("label", ())]
        before = trainer.evaluate(data)
        after = trainer.fit(data, data, epochs=20, callbacks=[lambda _, result: seen.append(result)])
        assert len(after) == 20 and len(seen) == 80 and after[-1].accuracy == 1 and after[-1].loss < before.loss
        expected = trainer.predict({"x": x})["y"].copy()

        other.set_parameters(trainer.parameters())
        assert np.array_equal(other.predict({"x": np.asfortranarray(x)})["y"], expected)
        trainer.save("state")
        results = [t.step(data) for t in (trainer, trainer)]
        other.load("state")
        assert [other.step(data).loss, other.step(data).loss] == [result.loss for result in results]
        exported = trainer.export()
        trainer.export("out.onnx")
        with open("out.onnx", "rb") as file:
            assert file.read() == exported
        with onnxtrain.Trainer(exported, **config) as again:
            assert np.array_equal(again.predict({"x": x})["y"], trainer.predict({"x": x})["y"])

        assert set(trainer.gradients(data)) == set(trainer.parameters())
        assert trainer.input_gradients(data)["x"].shape == x.shape
        trainer.accumulate(data)
        assert trainer.apply().step == other.step(data).step
        trainer.learning_rate = 0.5
        assert abs(trainer.learning_rate - 0.5) < 1e-9
        assert not trainer.parameters()["w1"].flags.writeable
        trainer.fit([(x, labels), data], epochs=1)

        expect_error(onnxtrain.Error.INVALID_ARGUMENT, "expected f32[batch,4]", lambda: trainer.step({"x": x[:, :3]}))
        expect_error(onnxtrain.Error.INVALID_ARGUMENT, "'epoch'", lambda: onnxtrain.Trainer(path, epoch=3))
        expect_error(onnxtrain.Error.NOT_FOUND, "none.onnx", lambda: onnxtrain.Trainer("none.onnx"))
        trainer.cancel()
        expect_error(onnxtrain.Error.CANCELLED, "cancelled", lambda: trainer.step(data))
    expect_error(onnxtrain.Error.INVALID_ARGUMENT, "released", lambda: trainer.step(data))


main(sys.argv[1])
