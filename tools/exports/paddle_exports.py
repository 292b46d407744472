"""Exports small networks of Paddle by paddle2onnx, and records Paddle's loss and gradients."""
import numpy as np
import onnx
import paddle
from paddle import nn
from paddle.vision import models as vision

from exports import records
from exports.records import Record, targets_like

BATCH = 3


class Encoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(23, 16), nn.Linear(16, 23)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0), 2)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)))


class Recurrent(nn.Layer):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.head = kind(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


IMAGE = ((3, 64, 64), 'float32')
MODELS = {  # of a name: the network, the shape of a sample, its type
    'lenet': (vision.LeNet, (1, 28, 28), 'float32'), 'mlp': (mlp, (6,), 'float32'),
    'resnet': (lambda: vision.ResNet(vision.resnet.BasicBlock, 18, width=64, num_classes=5), *IMAGE),
    'mobilenet_v2': (lambda: vision.MobileNetV2(0.25, num_classes=5), *IMAGE),
    'shufflenet': (lambda: vision.shufflenet_v2_x0_25(num_classes=5), *IMAGE),
    'squeezenet': (lambda: vision.squeezenet1_1(num_classes=5), *IMAGE),
    'transformer': (Encoder, (7,), 'int64'),
    'lstm': (lambda: Recurrent(nn.LSTM), (5, 6), 'float32'), 'gru': (lambda: Recurrent(nn.GRU), (5, 6), 'float32'),
}


def paddle2onnx_export(architecture, folder):
    paddle.seed(0)
    make, shape, kind = MODELS[architecture.split('/')[1]]
    net = make()
    net.eval()
    generator = np.random.default_rng(5)
    for parameter in net.parameters() if records.weights_as_trained else ():
        parameter.set_value(parameter + 0.05 * generator.standard_normal(parameter.shape).astype(np.float32))
    size = (BATCH, *shape)
    x = generator.integers(0, 23, size) if kind == 'int64' else generator.standard_normal(size).astype(np.float32)
    record = Record(folder, 'model')
    paddle.onnx.export(net, str(record.model.with_suffix('')),
                       input_spec=[paddle.static.InputSpec([None, *shape], kind, 'x')])
    graph = onnx.load(str(record.model)).graph
    output = graph.output[0].name
    y = net(paddle.to_tensor(x))
    values = {output: y.numpy()}
    targets = targets_like(values)
    loss = ((y - paddle.to_tensor(targets[output])) ** 2).mean()
    loss.backward()
    named = {n: p.grad.numpy() for n, p in net.named_parameters() if p.grad is not None}
    batch_norm = [f'{n}.{p}' for n, layer in net.named_sublayers() if isinstance(layer, nn.BatchNorm2D)
                  for p in ('weight', 'bias')]
    record.set_inputs({graph.input[0].name: x})
    record.set_targets(targets, values)
    record.set_results(loss.item(), named, batch_norm=batch_norm, train=False)
    record.write()


EXPORTERS = {'paddle2onnx': paddle2onnx_export}
