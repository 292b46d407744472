"""Makes modules of PyTorch from the tables, with a batch of inputs: `build(name)`."""
import inspect
import sys
import zlib

import torch
from torch import nn

from exports import architectures as tables
from exports import records

LENGTH, IMAGE = 7, 32
batch = 3  # samples; the exports of model.train() take more


def tokens(config, length=LENGTH):
    return torch.randint(3, min(getattr(config, 'vocab_size', 67), 67), (batch, length))


def padding(length=LENGTH):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1, -2:] = 0
    return mask


def transformers_model(name, row, default):
    import transformers
    fields = dict(row)
    kind, model_type = fields.pop('class', default), fields.pop('model', name)
    config = transformers.AutoConfig.for_model(model_type, **{**tables.TINY, **fields})
    return instantiate(getattr(transformers, kind), config)


def instantiate(kind, config):
    return kind.from_config(config) if hasattr(kind, 'from_config') else kind._from_config(config)


def encoder(name):
    model = transformers_model(name, tables.ENCODERS[name], 'AutoModelForMaskedLM')
    inputs = {'input_ids': tokens(model.config), 'attention_mask': padding()}
    if name in ('roc_bert',):
        inputs |= {'input_shape_ids': inputs['input_ids'] % 9, 'input_pronunciation_ids': inputs['input_ids'] % 7}
    if name in ('longformer', 'nystromformer'):  # whole windows, landmarks of equal segments
        inputs = {'input_ids': tokens(model.config, 8), 'attention_mask': padding(8)}
    if name == 'fnet':
        del inputs['attention_mask']
    return model, inputs


def decoder(name):
    model = transformers_model(name, tables.DECODERS[name], 'AutoModelForCausalLM')
    inputs = {'input_ids': tokens(model.config), 'attention_mask': padding()}
    return model, inputs


def seq2seq(name):
    model = transformers_model(name, tables.SEQ2SEQ[name], 'AutoModelForSeq2SeqLM')
    inputs = {'input_ids': tokens(model.config), 'attention_mask': padding(),
              'decoder_input_ids': tokens(model.config, 5)}
    return model, inputs


def vision(name):
    row = {'image_size': IMAGE, 'patch_size': 8, **tables.VISION[name]}
    model = transformers_model(name, row, 'AutoModelForImageClassification')
    size = row['image_size'] if isinstance(row['image_size'], int) else row['image_size'][0]
    return model, {'pixel_values': torch.randn(batch, 3, size, size)}


def speech(name):
    model = transformers_model(name, tables.SPEECH[name], 'AutoModelForCTC')
    config, main = model.config, model.main_input_name
    if main == 'input_features':
        frames = 2 * config.max_source_positions if name == 'whisper' else 24
        shape = (config.num_mel_bins, frames) if name == 'whisper' else (frames, config.input_feat_per_channel)
    elif hasattr(config, 'num_mel_bins'):
        shape = (config.max_length, config.num_mel_bins)
    else:
        shape = (4000,)
    inputs = {main: torch.randn(batch, *shape)}
    if 'decoder_input_ids' in inspect.signature(model.forward).parameters:
        inputs['decoder_input_ids'] = tokens(config, 5)
    return model, inputs


def pair(name):
    model = transformers_model(name, tables.PAIRS[name], 'AutoModel')
    ids = tokens(model.config)
    ids[:, -1] = 2  # the end of the text, whose state CLIP pools
    inputs = {'input_ids': ids, 'pixel_values': torch.randn(batch, 3, IMAGE, IMAGE),
              'attention_mask': torch.ones_like(ids)}
    return model, inputs


def series(name):
    model = transformers_model(name, tables.SERIES[name], None)
    config = model.config
    return model, {'past_values': torch.randn(batch, config.context_length, config.num_input_channels)}


def image_batch(row):
    size = row.get('size', IMAGE)
    return {'x': torch.randn(batch, 3, size, size)}


def look_up(package, path):
    for part in path.split('.'):
        package = getattr(package, part)
    return package


def construct(package, path, options):
    """Calls a class or function of a package; texts among the options that are names beside it are looked up."""
    make = look_up(package, path)
    names = vars(sys.modules[make.__module__])
    resolve = lambda value: names.get(value, value) if isinstance(value, str) else value
    options = {k: [resolve(v) for v in value] if isinstance(value, list) else resolve(value)
               for k, value in options.items() if k not in ('class', 'size')}
    return make(num_classes=5, **options)


def timm_model(name):
    import timm
    row = tables.TIMM[name]
    if 'class' in row:
        return construct(timm.models, row['class'], row), image_batch(row)
    return timm.create_model(name, num_classes=5, **{k: v for k, v in row.items() if k != 'size'}), image_batch(row)


def torchvision_model(name):
    from torchvision import models
    row = tables.TORCHVISION[name]
    options = row | ({'weights_backbone': None} if 'segmentation' in row.get('class', '') else {})
    return construct(models, row.get('class', name), options), image_batch(row)


class GraphNetwork(nn.Module):
    """Two layers over the nodes of one graph. The nodes are the samples; the edges are the same for all batches."""

    def __init__(self, layer, width=8):
        super().__init__()
        self.first, self.second = (self.make(layer, *sizes) for sizes in ((6, width), (width, 4)))

    @staticmethod
    def make(layer, wide_in, wide_out):
        from torch_geometric import nn as pyg
        kind = getattr(pyg, layer)
        if layer == 'GINConv':
            layers = nn.Sequential(nn.Linear(wide_in, wide_out), nn.ReLU(), nn.Linear(wide_out, wide_out))
            return kind(layers, train_eps=True)
        if layer == 'EdgeConv':
            return kind(nn.Sequential(nn.Linear(2 * wide_in, wide_out)))
        if layer == 'APPNP':
            return Sequence(nn.Linear(wide_in, wide_out), kind(3, 0.1))
        if layer == 'GatedGraphConv':
            grows = wide_in <= wide_out
            return kind(wide_out, 2) if grows else Sequence(kind(wide_in, 2), nn.Linear(wide_in, wide_out))
        return kind(wide_in, wide_out, **({'K': 3} if layer == 'ChebConv' else {}))

    def forward(self, x, edge_index):
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


class Sequence(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x) if isinstance(layer, nn.Linear) else layer(x, edge_index)
        return x


def graph(name):
    nodes, edges = 9, 24
    edge_index = torch.stack([torch.randint(0, nodes, (edges,)), torch.arange(edges) % nodes])
    return GraphNetwork(name), {'x': torch.randn(nodes, 6), 'edge_index': edge_index}


FAMILIES = {
    'transformers': {name: make for make, table in (
        (encoder, tables.ENCODERS), (decoder, tables.DECODERS), (seq2seq, tables.SEQ2SEQ), (vision, tables.VISION),
        (speech, tables.SPEECH), (pair, tables.PAIRS), (series, tables.SERIES)) for name in table},
    'timm': dict.fromkeys(tables.TIMM, timm_model),
    'torchvision': dict.fromkeys(tables.TORCHVISION, torchvision_model),
    'pyg': dict.fromkeys(tables.PYG, graph),
}


def build(name):
    """Returns the module FAMILY/NAME in inference mode, with weights that follow from the name, and its inputs."""
    family, _, short = name.partition('/')
    seed(name)
    module, inputs = FAMILIES[family][short](short)
    order = [name for name in inspect.signature(module.forward).parameters if name in inputs]
    inputs = {name: inputs[name] for name in order}  # TorchScript's exporter takes them in this order
    return perturb(module).eval(), inputs


def seed(name):
    torch.manual_seed(zlib.crc32(name.encode()))


@torch.no_grad()
def perturb(module):
    """Moves what training moves away from zeros, ones and equal values: weights but padding rows, and statistics."""
    if not records.weights_as_trained:
        return module
    for parameter in (p for p in module.parameters() if p.requires_grad):
        parameter.add_(torch.randn_like(parameter) * 0.05)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx] = 0
    return module
