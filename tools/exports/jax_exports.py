"""Exports small networks of JAX (flax.nnx, equinox) by jax2onnx, and records JAX's loss and gradients."""
import equinox as eqx
import jax
import jax.numpy as jnp
import jax2onnx
import numpy as np
import onnx
from flax import nnx

from exports import records
from exports.records import Record, targets_like

BATCH = 3


class Mlp(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(6, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)
        self.norm = nnx.LayerNorm(16, rngs=rngs)

    def __call__(self, x):
        return self.b(self.norm(nnx.gelu(self.a(x))))


class Cnn(nnx.Module):
    def __init__(self, rngs, batch_norm=False):
        self.a, self.b = nnx.Conv(3, 8, (3, 3), rngs=rngs), nnx.Conv(8, 8, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.GroupNorm(8, 2, rngs=rngs)
        if batch_norm:
            self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.a(x)), window_shape=(2, 2), strides=(2, 2))
        return self.head(nnx.relu(self.norm(self.b(x))).mean((1, 2)))


class Transformer(nnx.Module):
    def __init__(self, rngs, width=16):
        self.embed = nnx.Embed(23, width, rngs=rngs)
        self.positions = nnx.Param(jax.random.normal(rngs.params(), (7, width)) * 0.1)
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.norm1, self.norm2 = nnx.LayerNorm(width, rngs=rngs), nnx.RMSNorm(width, rngs=rngs)
        self.up, self.down = nnx.Linear(width, 32, rngs=rngs), nnx.Linear(32, width, rngs=rngs)
        self.head = nnx.Linear(width, 23, use_bias=False, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids) + self.positions[...]
        x = x + self.attention(self.norm1(x))
        return self.head(x + self.down(nnx.silu(self.up(self.norm2(x)))))


class Recurrent(nnx.Module):
    def __init__(self, rngs, cell):
        self.cell, self.head = cell(6, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x):
        graph, state = nnx.split(self.cell)  # nnx.RNN refuses to be traced by jax2onnx
        start = jnp.zeros((x.shape[0], 8))
        step = lambda carry, x: nnx.merge(graph, state)(carry, x)
        carry = (start, start) if isinstance(self.cell, nnx.OptimizedLSTMCell) else start
        return self.head(jax.lax.scan(step, carry, jnp.swapaxes(x, 0, 1))[1][-1])


class Mixer(nnx.Module):
    def __init__(self, rngs):
        self.patches = nnx.Conv(3, 16, (4, 4), strides=4, rngs=rngs)
        self.tokens, self.channels = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(16, 16, rngs=rngs)
        self.norm, self.head = nnx.LayerNorm(16, rngs=rngs), nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x).reshape(x.shape[0], 4, 16)
        x = x + jnp.swapaxes(nnx.gelu(self.tokens(jnp.swapaxes(x, 1, 2))), 1, 2)
        return self.head((x + nnx.gelu(self.channels(self.norm(x)))).mean(1))


class EquinoxAttention(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        self.attention, self.norm = eqx.nn.MultiheadAttention(2, 8, key=key), eqx.nn.LayerNorm(8)

    def __call__(self, x):
        return self.attention(*(jax.vmap(self.norm)(x),) * 3)


def normal(*shape):
    return np.random.default_rng(3).standard_normal((BATCH, *shape)).astype(np.float32)


def ids():
    return np.random.default_rng(3).integers(0, 23, (BATCH, 7)).astype(np.int32)


MODELS = {  # of a name: the network from a seed, and its input
    'mlp': (Mlp, normal(6)), 'cnn': (Cnn, normal(8, 8, 3)),
    'batch_norm': (lambda rngs: Cnn(rngs, True), normal(8, 8, 3)),
    'transformer': (Transformer, ids()), 'lstm': (lambda rngs: Recurrent(rngs, nnx.OptimizedLSTMCell), normal(5, 6)),
    'gru': (lambda rngs: Recurrent(rngs, nnx.GRUCell), normal(5, 6)), 'mixer': (Mixer, normal(8, 8, 3)),
    'equinox_mlp': (lambda key: eqx.nn.MLP(6, 4, 16, 2, key=key), normal(6)),
    'equinox_attention': (EquinoxAttention, normal(5, 8)),
}


def functional(name):
    """Returns the parameters and a function of them and the input."""
    make, x = MODELS[name]
    if name.startswith('equinox'):
        parameters, static = eqx.partition(make(jax.random.key(0)), eqx.is_inexact_array)
        return parameters, lambda p, x: jax.vmap(eqx.combine(p, static))(x), x
    graph, parameters, rest = nnx.split(make(nnx.Rngs(0)), nnx.Param, ...)
    return parameters, lambda p, x: nnx.merge(graph, p, rest)(x), x


def perturb(parameters):
    """Moves all weights away from zeros, ones and equal values, as training does."""
    if not records.weights_as_trained:
        return parameters
    leaves, tree = jax.tree.flatten(parameters)
    generator = np.random.default_rng(5)
    moved = [leaf + 0.05 * generator.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves]
    return jax.tree.unflatten(tree, moved)


def jax2onnx_export(architecture, folder):
    parameters, apply, x = functional(architecture.split('/')[1])
    parameters = perturb(parameters)
    record = Record(folder, 'model')
    model = jax2onnx.to_onnx(lambda x: apply(parameters, x), [jax.ShapeDtypeStruct(('B', *x.shape[1:]), x.dtype)])
    onnx.save(model, str(record.model))
    output = model.graph.output[0].name
    values = {output: np.asarray(apply(parameters, x))}
    targets = targets_like(values)
    loss = lambda p: jnp.mean((apply(p, x) - targets[output]) ** 2)
    value, gradients = jax.value_and_grad(loss)(parameters)
    named = {jax.tree_util.keystr(path): np.asarray(g) for path, g in jax.tree_util.tree_leaves_with_path(gradients)}
    record.set_inputs({model.graph.input[0].name: x})
    record.set_targets(targets, values)
    record.set_results(value, named, batch_norm=[], train=False)
    record.write()


EXPORTERS = {'jax2onnx': jax2onnx_export}
