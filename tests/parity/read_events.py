"""Reads the events of a run with PyPI's tensorboard: scalars, histograms and the graph. By hand:

    onnxtrain --model x.onnx --data d.npz --histogram-every 10 --out runs/a
    VENV/bin/python tests/parity/read_events.py runs/a

Fails where TensorBoard's loader finds no scalars, another final loss than metrics.jsonl, histograms whose counts are
not the sizes of the weights, or a graph with an edge from nowhere.
"""
import json
import pathlib
import sys

from tensorboard.backend.event_processing import event_accumulator


def load(folder):
    loaded = event_accumulator.EventAccumulator(
        str(folder), size_guidance={event_accumulator.HISTOGRAMS: 0, event_accumulator.SCALARS: 0})
    loaded.Reload()
    return loaded


def check_scalars(events, run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["event"] == "step" and row["loss"] is not None}
    read = {e.step: e.value for e in events.Scalars("train/loss")}
    assert read.keys() == losses.keys(), (read, losses)
    assert all(abs(read[step] - loss) <= 1e-6 * abs(loss) for step, loss in losses.items())
    return len(events.Tags()["scalars"])


def check_histograms(events):
    tags = events.Tags()["histograms"]
    for tag in tags:
        for event in events.Histograms(tag):
            value = event.histogram_value
            assert value.num == sum(value.bucket), tag
            assert value.min <= value.max and list(value.bucket_limit) == sorted(value.bucket_limit), tag
        assert tag.split("/")[0] in ("weights", "gradients"), tag
    return len(tags)


def check_graph(events):
    graph = events.Graph()
    names = {node.name for node in graph.node}
    assert len(names) == len(graph.node)
    for node in graph.node:
        for source in node.input:
            assert source.split(":")[0] in names, (node.name, source)
    return len(names)


def main():
    run = pathlib.Path(sys.argv[1])
    events = load(run / "tensorboard")
    print(f"{check_scalars(events, run)} tags of scalars, {check_histograms(events)} of histograms, "
          f"{check_graph(events)} nodes in the graph")


if __name__ == "__main__":
    main()
