"""Writes ONNX files of any number of nodes, without the onnx package: a few fields of protobuf's wire format.

    GENERATORS['chain'](10_000) -> bytes of a model with about 10,000 nodes, x [N, 4] -> y [N, 4]
"""
import random
import struct

WIDTH = 4  # of every activation: the work of a node is nothing beside the work on the graph


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def block(field, content):
    if isinstance(content, str):
        content = content.encode()
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(name, value):
    """An integer, a string, or a list of integers."""
    if isinstance(value, int):
        return block(1, name) + number(3, value) + number(20, 2)
    if isinstance(value, str):
        return block(1, name) + block(4, value) + number(20, 3)
    return block(1, name) + b''.join(number(8, v) for v in value) + number(20, 7)


def node(op, inputs, outputs, attrs=None, domain=''):
    content = b''.join(block(1, name) for name in inputs) + b''.join(block(2, name) for name in outputs)
    content += block(4, op) + b''.join(block(5, attribute(n, v)) for n, v in (attrs or {}).items())
    return content + (block(7, domain) if domain else b'')


def tensor(name, dims, values, integers=False):
    data = struct.pack(f'<{len(values)}{"q" if integers else "f"}', *values)
    content = b''.join(number(1, d) for d in dims) + number(2, 7 if integers else 1)
    return content + block(8, name) + block(9, data)


def value_info(name, dims):
    """float32; a dimension is a number or a name."""
    shape = b''.join(block(1, number(1, d) if isinstance(d, int) else block(2, d)) for d in dims)
    return block(1, name) + block(2, block(1, number(1, 1) + block(2, shape)))


class Model:
    """Grows a model node by node; every value is [N, WIDTH] unless said otherwise."""

    def __init__(self, inputs=(('x', ('N', WIDTH)),), seed=0):
        self.inputs, self.nodes, self.weights, self.functions = list(inputs), [], [], []
        self.random = random.Random(seed)

    def op(self, name, *inputs, domain='', **attrs):
        output = f'v{len(self.nodes)}'
        self.nodes.append(node(name, inputs, [output], attrs, domain))
        return output

    def weight(self, *dims):
        name, count = f'w{len(self.weights)}', 1
        for d in dims:
            count *= d
        scale = dims[0] ** -0.5
        self.weights.append(tensor(name, dims, [self.random.uniform(-scale, scale) for _ in range(count)]))
        return name

    def integers(self, values):
        name = f'i{len(self.weights)}'
        self.weights.append(tensor(name, [len(values)], values, integers=True))
        return name

    def bytes(self, *outputs):
        graph = b''.join(block(1, n) for n in self.nodes) + block(2, 'g') + b''.join(block(5, w) for w in self.weights)
        graph += b''.join(block(11, value_info(*i)) for i in self.inputs)
        graph += b''.join(block(12, value_info(o, ('N', WIDTH))) for o in outputs)
        model = number(1, 8) + block(7, graph) + block(8, block(1, '') + number(2, 17))
        model += b''.join(block(8, block(1, d) + number(2, 1)) for d in (('f',) if self.functions else ()))
        return model + b''.join(block(25, f) for f in self.functions)


def chain(nodes):
    """Activations and small products in a row, each product with a weight of its own."""
    model, value = Model(), 'x'
    for i in range(nodes):
        value = model.op('MatMul', value, model.weight(WIDTH, WIDTH)) if i % 10 == 0 else \
            model.op(('Tanh', 'Sigmoid', 'Softsign')[i % 3], value)
    return model.bytes(value)


def matmuls(nodes):
    """Products in a row, all with one weight."""
    model, value = Model(), 'x'
    weight = model.weight(WIDTH, WIDTH)
    for _ in range(nodes):
        value = model.op('MatMul', value, weight)
    return model.bytes(value)


def weights(nodes):
    """As many weights as nodes."""
    model, value = Model(), 'x'
    for i in range(nodes):
        value = model.op(('Add', 'Mul')[i % 2], value, model.weight(WIDTH))
    return model.bytes(value)


def tree(nodes):
    """Leaves that read the input, added in pairs."""
    model = Model()
    level = [model.op('Mul', 'x', model.weight(WIDTH)) for _ in range(max(2, nodes // 3))]
    level = [model.op('Tanh', v) for v in level]
    while len(level) > 1:
        level = [model.op('Add', *level[i:i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return model.bytes(level[0])


def dense(nodes):
    """Every node reads eight earlier ones, near and far: long live ranges."""
    model = Model()
    values = ['x', model.op('Mul', 'x', model.weight(WIDTH))]
    while len(model.nodes) < nodes:
        reads = {values[-1]} | {values[model.random.randrange(len(values))] for _ in range(7)}
        values.append(model.op('Tanh', model.op('Mean', *sorted(reads))))
    return model.bytes(values[-1])


def all_to_all(nodes):
    """Every node reads all earlier ones: edges grow with the square of the nodes."""
    model = Model()
    values = ['x', model.op('Mul', 'x', model.weight(WIDTH))]
    while len(model.nodes) < nodes:
        values.append(model.op('Tanh', model.op('Mean', *values)))
    return model.bytes(values[-1])


def rnn(nodes):
    """An unrolled recurrent network: five nodes per time step, weights shared by all steps."""
    steps = max(1, nodes // 5)
    model = Model(inputs=[('x', ('N', steps, WIDTH))])
    w, u, b = model.weight(WIDTH, WIDTH), model.weight(WIDTH, WIDTH), model.weight(WIDTH)
    state = None
    for t in range(steps):
        at = model.integers([t])
        now = model.op('MatMul', model.op('Squeeze', model.op('Gather', 'x', at, axis=1), model.integers([1])), w)
        total = now if state is None else model.op('Add', now, model.op('MatMul', state, u))
        state = model.op('Tanh', model.op('Add', total, b))
    return model.bytes(state)


def inputs(nodes):
    """As many inputs as nodes."""
    names = [f'x{i}' for i in range(nodes)]
    model = Model(inputs=[(name, ('N', WIDTH)) for name in names])
    value = model.op('Mul', names[0], model.weight(WIDTH))
    for name in names[1:]:
        value = model.op('Add', value, name)
    return model.bytes(value)


GENERATORS = {f.__name__: f for f in (chain, matmuls, weights, tree, dense, all_to_all, rnn, inputs)}
