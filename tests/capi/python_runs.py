"""Uses the functions of the package that run the program, on a model x[batch,4] → 3 scores y. Prints nothing."""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxtrain


def expect_error(text, call):
    try:
        call()
    except onnxtrain.Error as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no error: {text}")


def read_long_output(folder):
    """A result that fills a pipe is read while messages come."""
    script = pathlib.Path(folder, "program")
    script.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x\necho done >&2\n")
    script.chmod(0o755)
    kept = os.environ.get("ONNXTRAIN_PROGRAM")
    os.environ["ONNXTRAIN_PROGRAM"] = str(script)
    try:
        assert len(onnxtrain.program.run("inspect", {"quiet": True})) == 1000000
    finally:
        os.environ.pop("ONNXTRAIN_PROGRAM")
        if kept is not None:
            os.environ["ONNXTRAIN_PROGRAM"] = kept


def use(model, folder):
    rng = np.random.default_rng(1)
    labels = np.arange(90) % 3
    x = (rng.random((90, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32)
    data = os.path.join(folder, "d.npz")
    np.savez(data, x=x, label=labels)
    out = pathlib.Path(folder, "run")
    run = onnxtrain.train(model, data, eval_split=0.2, epochs=4, lr=0.02, out=out, quiet=True, metrics=["f1", "top2"])
    assert run.folder == out and run.model.exists()
    losses = run.metrics["loss"]
    assert len(losses) == len(run.metrics["step"]) and np.isnan(losses).any() and np.nanmin(losses) < losses[1]
    assert run.summary["steps"] == 12 and "f1" in run.summary["eval"], run.summary
    assert run.evaluate(data)["accuracy"] > 0.9
    predictions = run.predict(data)
    assert len(predictions["prediction"]) == 90 and predictions["p_0"].dtype == np.float64
    assert (predictions["prediction"] == labels.astype(str)).mean() > 0.9
    assert "srcdoc" in run.report._repr_html_()
    assert run.resume(epochs=5, quiet=True).summary["steps"] == 15
    assert onnxtrain.Run(out).summary["steps"] == 15
    assert onnxtrain.plan(model, data, batch_size=16)["batch"] == 16
    assert onnxtrain.inspect(model)["inputs"][0]["name"] == "x"
    expect_error("there is no", lambda: onnxtrain.train(os.path.join(folder, "none.onnx"), data, quiet=True))
    expect_error("--optimizer", lambda: onnxtrain.train(model, data, optimizer="adamm", quiet=True))
    expect_error("holds a run already", lambda: onnxtrain.train(model, data, out=out, quiet=True))
    try:
        onnxtrain.train(model, x, quiet=True)
    except TypeError as error:
        assert "Trainer takes arrays" in str(error)
    else:
        raise AssertionError("took an array for a path")
    done = subprocess.run([sys.executable, "-m", "onnxtrain", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("onnxtrain "), done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        read_long_output(temporary)
        use(sys.argv[1], temporary)
