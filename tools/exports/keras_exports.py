"""Exports small networks of Keras 3 on TensorFlow by tf2onnx, and records TensorFlow's loss and gradients."""
import os

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import keras  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402

from exports import records  # noqa: E402
from exports.records import Record, targets_like  # noqa: E402

BATCH, VOCABULARY = 3, 23


def sequential(shape, *body, dtype='float32'):
    return keras.Sequential([keras.Input(shape, dtype=dtype), *body])


def transformer():
    x = ids = keras.Input((7,), dtype='int32')
    x = layers.Embedding(VOCABULARY, 16)(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, 'gelu')(x)))
    return keras.Model(ids, layers.Dense(VOCABULARY)(x))


def unet():
    x = image = keras.Input((8, 8, 3))
    down = layers.Conv2D(8, 3, padding='same', activation='relu')(x)
    deep = layers.Conv2D(8, 3, padding='same', activation='relu')(layers.MaxPooling2D()(down))
    up = layers.Conv2DTranspose(8, 2, strides=2)(deep)
    return keras.Model(image, layers.Conv2D(2, 1)(layers.Concatenate()([down, up])))


def convolutional(*middle):
    return lambda: sequential((8, 8, 3), layers.Conv2D(8, 3, padding='same'), *middle, layers.ReLU(),
                              layers.Conv2D(8, 3, strides=2), layers.GlobalAveragePooling2D(), layers.Dense(5))


MODELS = {
    'dense': lambda: sequential((6,), layers.Dense(16, 'gelu'), layers.LayerNormalization(), layers.Dense(4)),
    'cnn': convolutional(), 'batch_norm': convolutional(layers.BatchNormalization()),
    'separable': convolutional(layers.SeparableConv2D(8, 3), layers.DepthwiseConv2D(3)),
    'lstm': lambda: sequential((5, 6), layers.LSTM(8), layers.Dense(4)),
    'gru': lambda: sequential((5, 6), layers.GRU(8), layers.Dense(4)),
    'bidirectional': lambda: sequential((5, 6), layers.Bidirectional(layers.LSTM(8)), layers.Dense(4)),
    'transformer': transformer, 'unet': unet,
    'embedding': lambda: sequential((7,), layers.Embedding(VOCABULARY, 8), layers.GlobalAveragePooling1D(),
                                    layers.Dense(4), dtype='int32'),
}


def tf2onnx_export(architecture, folder):
    keras.utils.set_random_seed(0)
    model = MODELS[architecture.split('/')[1]]()
    generator = np.random.default_rng(5)
    for variable in model.trainable_variables if records.weights_as_trained else ():
        variable.assign_add(0.05 * generator.standard_normal(variable.shape).astype(np.float32))
    shape = (BATCH, *model.inputs[0].shape[1:])
    whole = model.inputs[0].dtype == 'int32'
    x = generator.integers(0, VOCABULARY, shape) if whole else generator.standard_normal(shape)
    x = x.astype(np.int32 if whole else np.float32)
    record = Record(folder, 'model')
    model(x)  # Keras exports no model that was never called
    model.export(str(record.model), format='onnx', verbose=False)
    graph = onnx.load(str(record.model)).graph
    output = graph.output[0].name
    values = {output: model(x).numpy()}
    targets = targets_like(values)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=False) - targets[output]) ** 2)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    named = {v.path: tf.convert_to_tensor(g).numpy() for v, g in zip(model.trainable_variables, gradients)}
    batch_norm = [v.path for layer in model.layers if isinstance(layer, layers.BatchNormalization)
                  for v in layer.trainable_variables]
    record.set_inputs({graph.input[0].name: x})
    record.set_targets(targets, values)
    record.set_results(loss.numpy(), named, batch_norm=batch_norm, train=False)
    record.write()


EXPORTERS = {'tf2onnx': tf2onnx_export}
