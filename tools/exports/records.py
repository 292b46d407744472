"""What a framework computes for an exported file: data, loss, gradients. One folder holds the records of one export."""
import json
import pathlib

import numpy as np

weights_as_trained = True  # weights are moved from their initial values; --untrained changes it
LOSS_LABEL = 'target{}'  # the column of the float targets of an output


class Record:
    """A file FOLDER/NAME.onnx with its batch (NAME.npz) and the framework's numbers (NAME.json)."""

    def __init__(self, folder, name):
        self.folder, self.name = pathlib.Path(folder), name
        self.arrays, self.facts, self.outputs = {}, {'constants': {}, 'notes': []}, {}
        self.cache_width = 0  # of inputs that hold keys and values

    @property
    def model(self):
        return self.folder / f'{self.name}.onnx'

    def set_inputs(self, inputs, constants=()):
        """Inputs by the names of the file; those in `constants` are one array for all samples."""
        for name, value in inputs.items():
            if name in constants:
                self.facts['constants'][name] = f'{self.name}.{name}.npy'
                np.save(self.folder / self.facts['constants'][name], value)
            else:
                self.arrays[name] = value

    def set_targets(self, targets, outputs):
        """Targets and the framework's outputs by name; the loss is the sum of the outputs' mean squared errors."""
        self.outputs = outputs
        self.arrays |= {LOSS_LABEL.format(i): value for i, value in enumerate(targets.values())}
        self.facts['outputs'] = list(targets)

    def set_results(self, loss, gradients, **facts):
        """Gradients by the names of the framework's parameters, for those that the loss depends on."""
        norms = {name: float(np.linalg.norm(g.astype(np.float64))) for name, g in gradients.items()}
        self.facts |= {'loss': float(loss), 'gradient_norm': float(np.sqrt(sum(n * n for n in norms.values()))),
                       'parameters': {name: [list(g.shape), norms[name]] for name, g in gradients.items()}, **facts}

    def set_rounding(self, loss, gradients):
        """Takes what the framework computes in float64: the results above differ from it by rounding."""
        norm = float(np.sqrt(sum(np.sum(g ** 2) for g in gradients.values())))
        self.facts['rounding'] = [abs(self.facts['loss'] - loss) / max(abs(loss), 1e-12),
                                  abs(self.facts['gradient_norm'] - norm) / max(norm, 1e-12)]

    def file_error(self):
        """Returns how much onnxruntime's outputs differ from the framework's, or None where it cannot run the file, and
        notes where it does not load it."""
        try:
            import onnxruntime
            session = onnxruntime.InferenceSession(str(self.model), providers=['CPUExecutionProvider'])
        except Exception as error:
            print(f'onnxruntime: {error}')
            self.facts['not_loaded'] = str(error)
            return None
        try:
            constants = {name: np.load(self.folder / file) for name, file in self.facts['constants'].items()}
            known = self.arrays | constants
            feeds = {i.name: known[i.name] if i.name in known else self.empty(i) for i in session.get_inputs()}
            results = session.run(list(self.outputs), feeds)
        except Exception as error:
            print(f'onnxruntime: {error}')
            return None
        return max(distance(ours, theirs) for ours, theirs in zip(results, self.outputs.values()))

    def empty(self, cache):
        """Returns a cache [samples, heads, 0, width] of no positions, for which the framework has no argument."""
        samples = len(next(iter(self.arrays.values())))
        return np.zeros([samples, cache.shape[1], 0, self.cache_width], np.float32)

    def write(self):
        if not self.facts['train']:  # onnxruntime computes no statistics of batches
            self.facts['file_error'] = self.file_error()
        np.savez(self.folder / f'{self.name}.npz', **self.arrays)
        (self.folder / f'{self.name}.json').write_text(json.dumps(self.facts, indent=1))


def distance(ours, theirs):
    """The largest difference in terms of the largest value; 1 if the shapes differ."""
    if ours.shape != theirs.shape:
        return 1.0
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-12))


def targets_like(outputs, mask=None, seed=7):
    """Float targets of the outputs' shapes, by name. The loss leaves out padded positions, as training does: `mask`
    [samples, length] is 0 there. It also leaves out what a mask has moved out of the range that can be squared."""
    generator = np.random.default_rng(seed)
    targets = {name: generator.standard_normal(value.shape).astype(np.float32) for name, value in outputs.items()}
    for name, value in outputs.items():
        masked = np.abs(value) > 1e15
        if mask is not None and np.ndim(mask) == 2 and value.ndim > 1 and value.shape[:2] == tuple(mask.shape):
            masked |= (np.asarray(mask) == 0).reshape(*mask.shape, *[1] * (value.ndim - 2))
        targets[name] = np.where(masked, value, targets[name]).astype(np.float32)
    return targets
