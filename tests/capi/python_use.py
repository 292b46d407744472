"""Uses the Python package on a model x[batch,4] → 3 scores y. Prints nothing."""
import copy
import importlib
import json
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


def expect_value_error(text, call):
    try:
        call()
    except ValueError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no error: {text}")


def expect_type_error(text, call):
    try:
        call()
    except TypeError as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no error: {text}")


def find_module(name):
    """The module, or None in an environment that lacks it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def use_arrays_of_others(trainer, x, labels):
    """Arrays of any layout, byte order and library give the loss of plain ones; what cannot is refused by name."""
    def loss(array):
        return trainer.evaluate({"x": array, "label": labels}).loss

    want = loss(x)
    for same in (x[::-1][::-1], np.asfortranarray(x), x.astype(">f4"), x.astype(np.float64)):
        assert loss(same) == want
    for wrong, text in ((np.ma.masked_array(x, x > 0), "'x': a masked array"), (x + 1j, "'x': arrays of complex64"),
                        (np.full(len(x), None), "'x': arrays of object")):
        expect_type_error(text, lambda: loss(wrong))
    torch, ml_dtypes = find_module("torch"), find_module("ml_dtypes")
    if torch is not None:
        tensor = torch.tensor(x)
        for same in (tensor, tensor.T.contiguous().T, torch.tensor(x, requires_grad=True), torch._neg_view(-tensor)):
            assert loss(same) == want
        rounded = loss(tensor.bfloat16())
        assert abs(rounded - want) < 1e-2 and rounded == loss(tensor.bfloat16().float())
        assert ml_dtypes is None or loss(x.astype(ml_dtypes.bfloat16)) == rounded
        expect_type_error("'x': ", lambda: loss(tensor.to("meta")))
    expect_type_error("got tuple", lambda: trainer.step((x, labels)))
    expect_type_error("'x\\x00y': expected the name", lambda: trainer.step({"x\0y": x, "label": labels}))
    expect_type_error("neither copied nor pickled", lambda: copy.deepcopy(trainer))
    expect_type_error("got str", lambda: trainer.fit("train.npz"))
    expect_value_error("has 1 tensors, expected 2: x, label", lambda: trainer.fit([(x,)]))
    expect_value_error("'label' is one number", lambda: trainer.evaluate({"x": x, "label": 1}))


class KerasLike:
    """A model with a trainable weight, as separate_weights asks for it."""

    def __init__(self, value):
        self.value, self.trainable_weights = value, [self]

    def numpy(self):
        return self.value

    def assign(self, value):
        self.value = value


def use_other_forms(trainer, arrays, before, trained):
    """Weights come back in another shape or negated; weights of one value are not guessed."""
    heads = onnxtrain.to_arrays(trainer, arrays | {"fc.weight": before["w2"].reshape(2, 8, 3)})
    assert np.array_equal(heads["fc.weight"], trained["w2"].reshape(2, 8, 3))
    negated = onnxtrain.to_arrays(trainer, arrays | {"fc.bias": -before["b2"]})
    assert np.array_equal(negated["fc.bias"], -trained["b2"])
    tied = onnxtrain.to_arrays(trainer, arrays | {"again": before["w2"]})
    assert np.array_equal(tied["again"], trained["w2"])

    parameters = trainer.parameters()
    with onnxtrain.Trainer(trainer.export(), threads=1) as constant:
        constant.set_parameters({"b1": np.zeros(16, np.float32), "b2": np.ones(3, np.float32)})
        with onnxtrain.Trainer(constant.export(), threads=1) as fresh:
            fresh.step({"x": np.eye(4, dtype=np.float32), "label": np.arange(4) % 3})
            now, start = fresh.parameters(), fresh.initial_parameters()
            # A buffer of zeros beside a bias of zeros: by name they differ.
            back = onnxtrain.to_arrays(fresh, start | {"mean": np.zeros(16, np.float32)})
            assert np.array_equal(back["b1"], now["b1"]) and not back["mean"].any()
            named = {name: start[name] for name in ("w1", "w2", "b1")}
            assert np.array_equal(onnxtrain.to_arrays(fresh, named | {"gamma": start["b2"]})["gamma"], now["b2"])
            for wrong in (named | {"gamma": start["b2"], "variance": np.ones(3, np.float32)},
                          {name: start[name] for name in ("w1", "w2", "b2")} | {"bias": start["b1"]}):
                expect_value_error("separate_weights", lambda: onnxtrain.to_arrays(fresh, wrong))
    assert all(np.array_equal(parameters[name], value) for name, value in trainer.parameters().items())
    for value in (np.ones(3, np.float32), np.arange(3, dtype=np.float32)):
        layer = KerasLike(value)
        onnxtrain.separate_weights(layer)
        assert (len(set(layer.value)) == 3) and np.abs(layer.value - value).max() < 1e-3


def use_weights_of_others(trainer):
    """Trained weights come back under the names, and in the forms, that another framework has them in."""
    before, trained = trainer.initial_parameters(), trainer.parameters()
    # As another framework has them: other names, a transposed matrix, a tensor that the model does not have.
    arrays = {"w1": before["w1"], "fc.weight": before["w2"].T, "b1": before["b1"], "fc.bias": before["b2"],
              "seen": np.arange(3)}
    back = onnxtrain.to_arrays(trainer, arrays)
    assert np.array_equal(back["w1"], trained["w1"]) and np.array_equal(back["fc.weight"], trained["w2"].T)
    assert np.array_equal(back["fc.bias"], trained["b2"]) and np.array_equal(back["seen"], np.arange(3))
    for wrong, text in (({"w1": before["w1"]}, "trained weights 'b1', 'b2', 'w2'"),
                        (arrays | {"w1": np.zeros((5, 3), np.float32)}, "'w1' is [5, 3]")):
        expect_value_error(text, lambda: onnxtrain.to_arrays(trainer, wrong))
    use_other_forms(trainer, arrays, before, trained)


def use_run_folder(path, data, config):
    """A run that was cut off goes on at its newest checkpoint: the same calls make the same weights."""
    config = config | {"save_every": 2, "log_every": 2}

    def train(out, stop_at=0):
        stop = [lambda _, result: getattr(result, "step", None) != stop_at]
        with onnxtrain.Trainer(path, out=out, resume="auto", **config) as trainer:
            evaluations = trainer.fit(data, data, epochs=3, callbacks=stop)
            return trainer.steps, evaluations, trainer.parameters(), trainer.finish() if stop_at == 0 else None

    steps, whole, expected, summary = train("whole")
    assert steps == 9 and len(whole) == 3 and summary["steps"] == 9
    assert abs(summary["eval"]["loss"] - whole[-1].loss) < 1e-6
    assert train("cut", stop_at=5)[0] == 5
    steps, rest, parameters, summary = train("cut")
    assert steps == 9 and summary["resumed_from"] == 4 and rest == whole[1:]
    assert all(np.array_equal(parameters[name], value) for name, value in expected.items())
    with open("whole/metrics.jsonl") as file:
        assert [line["step"] for line in map(json.loads, file)] == [2, 3, 4, 6, 6, 8, 9, 9]


def main(path):
    x, labels = make_samples()
    data = {"x": x, "label": labels}
    config = {"lr": 0.01, "batch_size": 30, "threads": 1}
    seen = []
    use_run_folder(path, data, config)
    with onnxtrain.Trainer(path, **config) as trainer, onnxtrain.Trainer(path, **config) as other:
        assert [(t.name, t.shape) for t in trainer.batch_tensors] == [("x", (4,)), ("label", ())]
        before = trainer.evaluate(data)
        after = trainer.fit(data, data, epochs=20, callbacks=[lambda _, result: seen.append(result)])
        assert len(after) == 20 and len(seen) == 80 and after[-1].accuracy == 1 and after[-1].loss < before.loss
        assert trainer.evaluate({"x": x, "label": (labels + 1) % 3}).accuracy == 0
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
        for halves in (iter([(x[:45], labels[:45]), (x[45:], labels[45:])]), lambda: iter([data])):
            assert len(trainer.fit(halves, lambda: data)) == 1
        assert len(trainer.fit(lambda: iter([data]), data, epochs=2)) == 2
        expect_type_error("can be read once only", lambda: trainer.fit(iter([data]), epochs=2))
        expect_type_error("can be read once only", lambda: trainer.fit(data, iter([data]), epochs=2))

        trainer.fit({"x": x.tolist(), "label": labels.tolist()})
        for wrong, size, text in (({}, None, "no samples"), ({"x": x[:0], "label": labels[:0]}, None, "no samples"),
                                  ([], None, "no samples"), (data, 0, "batch_size 0"), (data, -1, "batch_size -1")):
            expect_value_error(text, lambda: trainer.fit(wrong, batch_size=size))
        with onnxtrain.Trainer(path, lr=np.float64(0.5), batch_size=np.int64(3)) as plain:
            assert abs(plain.learning_rate - 0.5) < 1e-9

        use_arrays_of_others(trainer, x, labels)
        expect_value_error("finite numbers", lambda: onnxtrain.Trainer(path, lr=float("nan")))
        expect_value_error("no axis 3", lambda: onnxtrain.Trainer(path, samples={"x": x[0]}, varying={"x": [3]}))

        shown = trainer.view("w1")
        assert np.array_equal(shown, trainer.parameters()["w1"]) and not shown.flags.writeable
        old = shown.copy()
        trainer.step(data)
        assert not np.array_equal(shown, old) and np.array_equal(shown, trainer.parameters()["w1"])

        with onnxtrain.Trainer(trainer.export(), **config) as again:
            again.step(data)
            use_weights_of_others(again)
        trained = trainer.parameters()
        onnxtrain.save_safetensors("w.safetensors", trained)
        with open("w.safetensors", "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
            begin, end = header["w2"]["data_offsets"]
            file.seek(8 + size + begin)
            assert file.read(end - begin) == trained["w2"].tobytes() and header["w2"]["shape"] == [16, 3]

        expect_error(onnxtrain.Error.INVALID_ARGUMENT, "expected f32[batch,4]", lambda: trainer.step({"x": x[:, :3]}))
        expect_error(onnxtrain.Error.INVALID_ARGUMENT, "'epoch'", lambda: onnxtrain.Trainer(path, epoch=3))
        expect_error(onnxtrain.Error.NOT_FOUND, "none.onnx", lambda: onnxtrain.Trainer("none.onnx"))
        expect_error(onnxtrain.Error.NOT_FOUND, "libX.so: no such file", lambda: onnxtrain.load_plugin("./libX.so"))
        expect_error(onnxtrain.Error.NOT_FOUND, "libX.so: no such file",
                     lambda: onnxtrain.Trainer(path, backend="./libX.so"))
        # A share of correct predictions, also where none is right; None where the loss counts none.
        all_wrong = {"x": x, "label": (trainer.predict({"x": x})["y"].argmin(axis=1)).astype(np.int64)}
        assert trainer.evaluate(all_wrong).accuracy == 0.0
        with onnxtrain.Trainer(path, loss="mse") as regression:
            target = {"x": x, "label": np.zeros((len(x), 3), np.float32)}
            assert regression.evaluate(target).accuracy is None
        trainer.cancel()
        expect_error(onnxtrain.Error.CANCELLED, "cancelled", lambda: trainer.step(data))
    expect_error(onnxtrain.Error.INVALID_ARGUMENT, "released", lambda: trainer.step(data))


main(sys.argv[1])
