"""Exports modules of PyTorch by every exporter, and records loss and gradients of the same weights and batch."""
import contextlib
import importlib
import inspect
import pathlib

import numpy as np
import onnx
import torch
import torch.nn.functional as F

from exports import torch_models
from exports.records import Record, targets_like

# Imported before the worker forks, so that no case pays for them. Each is optional, and may not fit the others.
for _package in ('transformers.modeling_utils', 'transformers.generation', 'transformers.models.auto.modeling_auto',
                 'transformers.models.llama.modeling_llama', 'transformers.models.bart.modeling_bart',
                 'optimum.exporters.onnx', 'optimum.exporters.onnx.model_configs', 'torch.onnx.utils', 'torch._dynamo',
                 'torch.onnx._internal.exporter._core', 'onnxscript', 'timm', 'torchvision', 'torch_geometric.nn'):
    with contextlib.suppress(Exception):
        importlib.import_module(_package)
torch.set_num_threads(1)
TRAIN_BATCH = 16  # of three samples with one pixel each, BatchNorm divides by a variance that is rounding


def record_torch(record, module, inputs, output_names, arguments=None, constants=(), train=False, choose=None):
    """Computes what PyTorch gives for the batch: `inputs` by name, outputs in the order of `output_names`."""
    arguments = inputs if arguments is None else arguments
    samples = next(v for k, v in inputs.items() if k not in constants).shape[0]
    values, targets, loss, gradients = compute(module, arguments, output_names, samples, choose)
    record.set_inputs({k: v.detach().numpy() for k, v in inputs.items()}, constants)
    record.set_targets(targets, values)
    record.set_results(loss, gradients, batch_norm=sorted(batch_norm_parameters(module)), train=train)
    try:
        _, _, loss, gradients = compute(module.double(), cast(arguments), output_names, samples, choose, targets)
        record.set_rounding(loss, gradients)
    except Exception as error:  # programs that make float32 tensors themselves
        print(f'in float64: {error}')
    module.float()


def compute(module, arguments, output_names, samples, choose, targets=None):
    """Returns outputs and targets by name, the loss, and gradients by parameter."""
    # The fused kernels of the processor give other gradients where a mask hides all keys from a query.
    with torch.enable_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        result = module(**arguments)
        named = dict(zip(output_names, flatten(choose(result) if choose else result)))
        chosen = {k: v for k, v in named.items() if v.requires_grad and v.dim() > 0 and v.shape[0] == samples
                  and v.is_floating_point() and not k.startswith('present')}
        values = {k: v.detach().numpy() for k, v in chosen.items()}
        targets = targets or targets_like(values, arguments.get('attention_mask'))
        loss = sum(F.mse_loss(v, torch.from_numpy(targets[k]).to(v.dtype)) for k, v in chosen.items())
        names, parameters = zip(*((n, p) for n, p in module.named_parameters() if p.requires_grad))
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return values, targets, loss.item(), {n: g.numpy() for n, g in zip(names, gradients) if g is not None}


def cast(value):
    """Returns an argument with float64 for float32."""
    if torch.is_tensor(value):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: cast(v) for k, v in value.items()}
    return type(value)(cast(v) for v in value) if isinstance(value, (list, tuple)) else value


def flatten(result):
    """The tensors of a result in the order of an exported graph's outputs."""
    if torch.is_tensor(result):
        return [result]
    if hasattr(result, 'to_legacy_cache'):
        result = result.to_legacy_cache()
    values = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    return [tensor for value in values for tensor in flatten(value)]


def batch_norm_parameters(module):
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.weight is not None:
            yield from (f'{name}.weight', f'{name}.bias')


def direct(architecture, folder, dynamo, optimize=False, train=False):
    """Exports a module by torch.onnx.export, as users write it."""
    if train:
        torch_models.batch = TRAIN_BATCH
    module, inputs = torch_models.build(architecture)
    if train and not any(batch_norm_parameters(module)):
        raise NotApplicable('no BatchNorm')
    set_mode(module, train)
    constants = {'edge_index'} & set(inputs)
    record = Record(folder, 'model')
    state = {k: v.clone() for k, v in module.state_dict().items()}
    with torch.no_grad():
        outputs = [f'y{i}' for i, _ in enumerate(flatten(module(**inputs)))]
    # The batch of the export is not that of the data: constants that hold it would show.
    examples = {k: v if k in constants else v[:2] if len(v) == torch_models.batch else v for k, v in inputs.items()}
    free = [k for k in inputs if k not in constants]
    common = {'input_names': list(inputs), 'output_names': outputs}
    if dynamo:
        try:
            export_dynamo(module, examples, free, record.model, optimize, common)
        except Exception as error:
            print(f'with a free batch: {error}')
            export_dynamo(module, examples, (), record.model, optimize, common)
            inputs = examples
            record.facts['notes'].append('fixed batch')
    else:
        training = {'training': torch.onnx.TrainingMode.TRAINING, 'do_constant_folding': False} if train else {}
        with signature_of(module, examples):
            torch.onnx.export(module, (examples,), str(record.model), dynamo=False,
                              dynamic_axes={k: {0: 'batch'} for k in free}, **training, **common)
    module.load_state_dict(state)  # tracing in training mode moves the statistics of BatchNorm
    set_mode(module, train)  # the exporter has set the mode of all parts
    record_torch(record, module, inputs, outputs, constants=constants, train=train)
    record.write()


@contextlib.contextmanager
def signature_of(module, names):
    """Gives `forward` these arguments alone: the default values of others would become inputs of the graph."""
    forward = module.forward
    call = lambda *values: forward(**dict(zip(names, values)))
    call.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    module.forward = call
    try:
        yield
    finally:
        del module.forward


def export_dynamo(module, examples, free, path, optimize, names):
    """Exports with a free batch of the inputs in `free`."""
    batch = torch.export.Dim('batch', min=2)
    shapes = {k: {0: batch} if k in free else None for k in examples}
    program = torch.onnx.export(module, (), kwargs=examples, dynamo=True, optimize=optimize, verbose=False,
                                dynamic_shapes=shapes if free else None, **names)
    program.save(str(path), external_data=False)


def set_mode(module, train):
    """Sets the mode of the module; what is random stays off."""
    module.train(train)
    for name, off in (('apply_spec_augment', False), ('layerdrop', 0.0)):
        if hasattr(getattr(module, 'config', None), name):
            setattr(module.config, name, off)
    for part in module.modules() if train else ():
        for name in ('p', 'drop_rate', 'drop_prob'):  # the exporter switches on what is switched off, but not this
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)


class NotApplicable(Exception):
    """The exporter has nothing to do with this architecture."""


@contextlib.contextmanager
def recorded_exports(folder, records):
    """Records the module and the arguments of each call of torch.onnx.export, with the patches of the caller."""
    original = torch.onnx.export

    def export(model, args, f, input_names, output_names, **options):
        (arguments,) = args
        grown = {k: grow(v) for k, v in arguments.items()}
        original(model, args, f=f, input_names=input_names, output_names=output_names, **options)
        record = Record(folder, pathlib.Path(f).stem)
        record_torch(record, model, named_inputs(model, grown, input_names), output_names, arguments=grown)
        records.append(record)

    torch.onnx.export = export
    try:
        yield
    finally:
        torch.onnx.export = original


def grow(value):
    """Appends a sample to every tensor of an argument: the first one again."""
    if torch.is_tensor(value):
        return torch.cat([value, value[:1]]) if value.dim() else value
    return type(value)(grow(v) for v in value) if isinstance(value, (list, tuple)) else value


def named_inputs(model, arguments, names):
    """Returns the tensors of the arguments by the names of the graph's inputs, which follow the model's signature."""
    ordered = [arguments[k] for k in inspect.signature(model.forward).parameters if k in arguments]
    tensors = flatten(ordered)
    if len(tensors) != len(names):
        raise ValueError(f'{len(tensors)} tensors for the inputs {", ".join(names)}')
    return dict(zip(names, tensors))


def optimum(architecture, folder):
    """Exports every task that optimum offers for the architecture."""
    from optimum.exporters.onnx import onnx_export_from_model
    from optimum.exporters.tasks import TasksManager
    config = torch_models.build(architecture)[0].config
    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(config.model_type, 'onnx', library_name='transformers')
    except KeyError:
        raise NotApplicable('optimum does not know the architecture')
    problems = {}
    for task in tasks:
        records, target = [], folder / task
        try:
            kind = TasksManager.get_model_class_for_task(task.replace('-with-past', ''), framework='pt',
                                                         model_type=config.model_type)
            torch_models.seed(architecture)
            config.num_labels = 2 if task == 'question-answering' else 5
            model = torch_models.instantiate(kind, type(config).from_dict(config.to_dict()))
            torch_models.perturb(model).eval()
            with recorded_exports(target, records):
                onnx_export_from_model(model, target, task=task, do_validation=False, device='cpu')
            for record in records:
                if record.model.exists():
                    record.write()
        except Exception as error:
            problems[task] = f'{type(error).__name__}: {error}'.splitlines()[0][:300]
    if problems:
        return {'tasks': problems}


def dequantized(model):
    """Yields the matrices [N, K] of MatMulNBits with 4 bits."""
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nibbles = lambda packed, rows: np.stack([packed & 15, packed >> 4], -1).reshape(rows, -1).astype(np.float32)
    for node in model.graph.node:
        if node.op_type != 'MatMulNBits':
            continue
        sizes = {attribute.name: attribute.i for attribute in node.attribute}
        rows, columns, block = sizes['N'], sizes['K'], sizes['block_size']
        scales = values[node.input[2]].reshape(rows, -1).repeat(block, 1)
        zeros = 8.0
        if len(node.input) > 3 and node.input[3]:
            zeros = nibbles(values[node.input[3]], rows)[:, :scales.shape[1] // block].repeat(block, 1)
        yield ((nibbles(values[node.input[1]], rows) - zeros) * scales)[:, :columns]


@torch.no_grad()
def load_quantized(module, model):
    """Gives the module the weights that the quantized file holds; a matrix may be several of its parameters."""
    left = {name: p for name, p in module.named_parameters() if p.dim() == 2}
    for matrix in dequantized(model):
        matrix, row = torch.from_numpy(matrix), 0
        while row < len(matrix):
            fits = {n: (p - matrix[row:row + len(p)]).abs().mean() for n, p in left.items()
                    if p.shape[1] == matrix.shape[1] and row + len(p) <= len(matrix)}
            name = min(fits, key=fits.get)
            parameter = left.pop(name)
            parameter.copy_(matrix[row:row + len(parameter)])
            row += len(parameter)


def widen_heads(width):
    """Makes the heads of the tables' models so wide: onnxruntime rotates multiples of 16."""
    tables = torch_models.tables
    tables.TINY['hidden_size'] = width * tables.TINY['num_attention_heads']
    for row in tables.DECODERS.values():
        if 'head_dim' in row:
            row['head_dim'] = width


def genai(architecture, folder, precision):
    """Writes the model by the builder of onnxruntime-genai, from a folder as the Hugging Face hub holds it."""
    import tokenizers
    import transformers
    from onnxruntime_genai.models import builder
    widen_heads(16)
    model, inputs = torch_models.build(architecture)
    source = folder / 'source'
    model.save_pretrained(source)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f'w{i}': i for i in range(67)}, unk_token='w3'))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token='w3', eos_token='w2', bos_token='w1',
                                         pad_token='w0').save_pretrained(source)
    places = (None, str(source), str(folder), precision, 'cpu', str(folder / 'cache'))
    builder.create_model(*places, **builder.parse_extra_options(*places, []))
    record = Record(folder, 'model')
    record.cache_width = 16
    exported = onnx.load(str(record.model))
    load_quantized(model, exported)
    inputs['attention_mask'] = torch.ones_like(inputs['attention_mask'])  # the file's attention knows lengths alone
    outputs = [output.name for output in exported.graph.output]
    record_torch(record, model, inputs, outputs, choose=lambda result: [result.logits])
    record.write()


EXPORTERS = {
    'dynamo': lambda name, folder: direct(name, folder, dynamo=True),
    'dynamo-optimize': lambda name, folder: direct(name, folder, dynamo=True, optimize=True),
    'torchscript': lambda name, folder: direct(name, folder, dynamo=False),
    'dynamo-train': lambda name, folder: direct(name, folder, dynamo=True, train=True),
    'torchscript-train': lambda name, folder: direct(name, folder, dynamo=False, train=True),
    'optimum': optimum,
    'genai-fp32': lambda name, folder: genai(name, folder, 'fp32'),
    'genai-int4': lambda name, folder: genai(name, folder, 'int4'),
}
