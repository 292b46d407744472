#!/usr/bin/env python3
"""Compares low-rank adapters with PEFT's: the same model, adapter, batches and AdamW.

    tools/bench/vs_peft.py --case llama,qwen2,gpt2,bert,vit,whisper,resnet --variant lora,rslora,dora
    tools/bench/vs_peft.py --case llama --float64 --steps 50
    tools/bench/vs_peft.py --case llama,qwen2 --variant lora,dora --bits 4
    tools/bench/vs_peft.py --case smollm2 --steps 3
    tools/bench/vs_peft.py --case mixtral,gpt_oss          (needs transformers 5)

PyTorch exports the model. PEFT draws an adapter with B not zero, saves it, and trains it; onnxtrain continues the saved
one (--adapter). Printed are the largest differences, relative to the largest value, of losses, gradient norms and
trained adapters, and of the logits of the merged model in ONNX Runtime from those of PEFT's. --spread trains PEFT's
once more with another order of summation (one thread): PyTorch's own spread, beside which trajectories are read.
--bits quantizes the exported products with ONNX Runtime's MatMulNBits; PEFT gets the floats that the blocks stand for.

The Python that runs this needs peft, torch, transformers, onnx, onnxscript, onnxruntime and safetensors.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import peft
import safetensors.numpy
import torch
import transformers
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS = {'lora': {}, 'rslora': {'use_rslora': True}, 'dora': {'use_dora': True}}


class Logits(torch.nn.Module):
    """The model's logits of inputs by position."""

    def __init__(self, model, names, output):
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs):
        return self.output(self.model, dict(zip(self.names, inputs)))


def of_logits(model, inputs):
    return model(**inputs).logits


def causal(config, build, length=16, output=None):
    def draw(generator, samples):
        return {'input_ids': generator.integers(0, config.vocab_size, (samples, length))}
    return build(config), draw, output or (lambda m, i: m(**i, use_cache=False).logits), (length, config.vocab_size)


def llama(hidden=48, layers=2, heads=4, kv=2, vocab=96, mlp=96, length=16):
    config = transformers.LlamaConfig(hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers,
                                      num_attention_heads=heads, num_key_value_heads=kv, vocab_size=vocab,
                                      max_position_embeddings=2 * length, tie_word_embeddings=False)
    return causal(config, transformers.LlamaForCausalLM, length)


def qwen2():
    config = transformers.Qwen2Config(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=96, max_position_embeddings=32,
                                      tie_word_embeddings=True)
    return causal(config, transformers.Qwen2ForCausalLM)


def gpt2():
    config = transformers.GPT2Config(n_embd=48, n_layer=2, n_head=4, vocab_size=96, n_positions=32)
    return causal(config, transformers.GPT2LMHeadModel)


def bert():
    config = transformers.BertConfig(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                     vocab_size=96, max_position_embeddings=32, num_labels=5)
    model, draw, _, _ = causal(config, transformers.BertForSequenceClassification)
    return model, draw, of_logits, (5,)


def pictures(model, classes, size):
    def draw(generator, samples):
        return {'pixel_values': generator.standard_normal((samples, 3, size, size))}
    return model, draw, of_logits, (classes,)


def vit():
    config = transformers.ViTConfig(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                    image_size=32, patch_size=8, num_labels=5)
    return pictures(transformers.ViTForImageClassification(config), 5, 32)


def resnet():
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 24], depths=[1, 2], layer_type='basic',
                                       num_labels=5)
    return pictures(transformers.ResNetForImageClassification(config), 5, 32)


def whisper():
    config = transformers.WhisperConfig(d_model=48, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=96,
                                        decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=48,
                                        num_mel_bins=20, max_source_positions=20, num_labels=5, vocab_size=60,
                                        classifier_proj_size=24, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)

    def draw(generator, samples):
        return {'input_features': generator.standard_normal((samples, 20, 40))}
    return transformers.WhisperForAudioClassification(config), draw, of_logits, (5,)


def experts(config, build):
    """A mixture whose exported program multiplies by the matrices of the chosen experts, gathered from one stack."""
    model, draw, output, classes = causal(config, build)
    if not hasattr(model, 'set_experts_implementation'):
        sys.exit('mixtures need transformers 5: older ones export indices of varying length')
    model.set_experts_implementation('batched_mm')
    return model, draw, output, classes


def mixture(config, **more):
    return config(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=96,
                  max_position_embeddings=32, intermediate_size=40, num_experts_per_tok=2, num_local_experts=4, **more)


def mixtral():
    return experts(mixture(transformers.MixtralConfig), transformers.MixtralForCausalLM)


def gpt_oss():
    return experts(mixture(transformers.GptOssConfig, head_dim=12, pad_token_id=0), transformers.GptOssForCausalLM)


def smollm2():
    return llama(576, 30, 9, 3, 49152, 1536, 256)


# The builder, the modules that get adapters, and the parameters of modules that do.
CASES = {'llama': (llama, 'all-linear'), 'qwen2': (qwen2, ['q_proj', 'v_proj', 'down_proj']),
         'gpt2': (gpt2, ['c_attn', 'c_proj', 'c_fc']), 'bert': (bert, ['query', 'value', 'dense']),
         'vit': (vit, ['query', 'key', 'value', 'dense']), 'whisper': (whisper, ['q_proj', 'v_proj', 'fc1']),
         'resnet': (resnet, ['convolution']), 'smollm2': (smollm2, 'all-linear'),
         'mixtral': (mixtral, ['q_proj', 'v_proj'], ['experts.gate_up_proj', 'experts.down_proj', 'gate.weight']),
         'gpt_oss': (gpt_oss, ['o_proj'], ['experts.gate_up_proj', 'experts.down_proj'])}
SEPARATE = ('smollm2', 'mixtral', 'gpt_oss')  # large, or not of all versions of transformers


class Comparison:
    def __init__(self, case, variant, args, folder):
        self.args, self.folder, self.dtype = args, folder, torch.float64 if args.float64 else torch.float32
        torch.manual_seed(args.seed)
        generator = np.random.default_rng(args.seed)
        model, draw, output, classes = CASES[case][0]()
        samples = args.batch * args.steps
        inputs = draw(generator, samples)
        self.inputs = {k: torch.from_numpy(v).to(self.dtype if v.dtype.kind == 'f' else torch.int64)
                       for k, v in inputs.items()}
        self.labels = torch.from_numpy(generator.integers(0, classes[-1], (samples,) + tuple(classes[:-1])))
        # Unoptimized exports keep BatchNorm apart from the convolutions.
        self.flags = ['--batch-norm', 'frozen'] if case == 'resnet' else []
        self.model = Logits(model.to(self.dtype).eval(), list(self.inputs), output)
        self.export()
        if args.bits:
            self.quantize(args.bits)
        targets, parameters = (*CASES[case][1:], None)[:2]
        config = peft.LoraConfig(r=args.rank, lora_alpha=2 * args.rank + 3, target_modules=targets,
                                 target_parameters=parameters, **VARIANTS[variant])
        self.adapted = peft.get_peft_model(self.model.model, config).to(self.dtype)
        self.adapted.eval()  # BatchNorm and Dropout as in the exported graph
        for name, parameter in self.adapted.named_parameters():
            if 'lora_B' in name:
                torch.nn.init.normal_(parameter, std=0.05)
        self.adapted.save_pretrained(self.path('first'))
        self.first = {k: v.clone() for k, v in self.adapted.state_dict().items() if 'lora_' in k}

    def path(self, name):
        return os.path.join(self.folder, name)

    def export(self):
        example = tuple(v[:2] for v in self.inputs.values())
        dynamic = {name: {0: torch.export.Dim('batch')} for name in self.inputs}
        torch.onnx.export(self.model, example, self.path('model.onnx'), input_names=list(self.inputs),
                          output_names=['logits'], dynamo=True, dynamic_shapes=(tuple(dynamic.values()),),
                          external_data=False, verbose=False, optimize=not self.flags)

    def quantize(self, bits):
        """Replaces the exported products by quantized ones, named by their modules, and the weights by their floats."""
        model = onnx.load(self.path('model.onnx'))
        head = [n.name for n in model.graph.node if 'logits' in n.output]  # may share its weight with the embedding
        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=16, is_symmetric=False, nodes_to_exclude=head)
        quantizer.process()
        quantizer.model.save_model_to_file(self.path('model.onnx'))
        model = onnx.load(self.path('model.onnx'))
        graph = model.graph
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        linear = {m: name for name, m in self.model.model.named_modules() if isinstance(m, torch.nn.Linear)}
        names = {}
        for node in graph.node:
            if node.op_type != 'MatMulNBits':
                continue
            floats = torch.from_numpy(dequantize(node, tensors))
            near = [m for m in linear if m.weight.shape == floats.shape and
                    (m.weight - floats).abs().max() < 0.5 * m.weight.abs().max()]
            if len(near) != 1:
                sys.exit(f'{node.name}: {len(near)} modules have its weight')
            near[0].weight.data.copy_(floats)
            names[node.input[1]] = f'{linear.pop(near[0])}.weight_Q{bits}'
            node.input[1] = names[node.input[1]]
        for tensor in graph.initializer:
            tensor.name = names.get(tensor.name, tensor.name)
        onnx.save(model, self.path('model.onnx'))

    def batches(self):
        for begin in range(0, len(self.labels), self.args.batch):
            part = slice(begin, begin + self.args.batch)
            yield [v[part] for v in self.inputs.values()], self.labels[part]

    def train_peft(self):
        """Returns losses, gradient norms, and the trained adapter by the names of its file."""
        self.adapted.load_state_dict(self.first, strict=False)
        trained = [p for p in self.adapted.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=self.args.lr, weight_decay=0)
        losses, norms = [], []
        for inputs, labels in self.batches():
            logits = self.model(*inputs)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            norms.append(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in trained])).item())
            losses.append(loss.item())
            optimizer.step()
        self.adapted.save_pretrained(self.path('theirs'))
        arrays = safetensors.numpy.load_file(self.path('theirs/adapter_model.safetensors'))
        return np.array(losses), np.array(norms), arrays

    def train_ours(self):
        data = {k: v.numpy() for k, v in self.inputs.items()}
        np.savez(self.path('data.npz'), label=self.labels.numpy(), **data)
        command = [self.args.onnxtrain, '--model', self.path('model.onnx'), '--data', self.path('data.npz'),
                   '--adapter', self.path('first'), '--batch-size', str(self.args.batch), '--epochs', '1',
                   '--no-shuffle', '--optimizer', 'adamw', '--lr', str(self.args.lr), '--max-grad-norm', '0',
                   '--lr-scheduler', 'constant', '--log-every', '1', '--label', 'label', '--overwrite',
                   '--quiet', '--out', self.path('ours')]
        command += self.flags + self.args.flags.split()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        with open(self.path('ours/metrics.jsonl')) as f:
            steps = [row for row in map(json.loads, f) if 'grad_norm' in row]
        arrays = safetensors.numpy.load_file(self.path('ours/adapter/adapter_model.safetensors'))
        return np.array([s['loss'] for s in steps]), np.array([s['grad_norm'] for s in steps]), arrays

    def merged_difference(self):
        inputs = [v[:4] for v in self.inputs.values()]
        session = onnxruntime.InferenceSession(self.path('ours/model.onnx'), providers=['CPUExecutionProvider'])
        ours = session.run(['logits'], dict(zip(self.inputs, (v.numpy() for v in inputs))))[0]
        with torch.no_grad():
            return relative(ours, self.model(*inputs).numpy())


def dequantize(node, tensors):
    """Returns the floats [N, K] of a MatMulNBits."""
    attrs = {a.name: a.i for a in node.attribute}
    bits, rows = attrs['bits'], attrs['N']
    packed, scale, zero = (tensors[name] for name in node.input[1:4])

    def unpack(values):
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        return (values.reshape(rows, -1, 1) >> shifts & (1 << bits) - 1).reshape(rows, -1).astype(np.float32)
    numbers = unpack(packed).reshape(rows, -1, attrs['block_size'])
    blocks = numbers.shape[1]
    zeros = unpack(zero)[:, :blocks, None]
    return ((numbers - zeros) * scale.reshape(rows, blocks, 1)).reshape(rows, -1)[:, :attrs['K']]


def relative(a, b):
    return float(np.abs(np.asarray(a, np.float64) - b).max() / np.abs(b).max())


def adapter_difference(ours, theirs, prefix='base_model.model.'):
    """The largest over the tensors; names of one are ends of the other's."""
    worst, used = 0.0, set()
    for name, value in theirs.items():
        end = name.removeprefix(prefix)
        found = [k for k in ours if k.removeprefix(prefix).endswith(end)]
        if len(found) != 1:
            sys.exit(f'{name}: {len(found)} tensors of that name; there are {", ".join(list(ours)[:6])}')
        used.add(found[0])
        worst = max(worst, relative(ours[found[0]], value))
    if len(used) != len(ours):
        sys.exit(f'tensors that PEFT does not have: {sorted(set(ours) - used)[:6]}')
    return worst


def compare(case, variant, args, folder):
    run = Comparison(case, variant, args, folder)
    losses, norms, adapter = run.train_ours()
    their_losses, their_norms, their_adapter = run.train_peft()
    result = {'case': case, 'variant': variant, 'steps': len(losses), 'loss': their_losses[0],
              'first_loss': relative(losses[0], their_losses[:1]), 'first_norm': relative(norms[0], their_norms[:1]),
              'losses': relative(losses, their_losses), 'norms': relative(norms, their_norms),
              'adapter': adapter_difference(adapter, their_adapter)}
    if not args.float64:  # ONNX Runtime lacks kernels for it
        result['merged'] = run.merged_difference()
    if args.spread:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        again = run.train_peft()
        torch.set_num_threads(threads)
        result['spread_losses'] = relative(again[0], their_losses)
        result['spread_adapter'] = adapter_difference(again[2], their_adapter)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--case', default=','.join(c for c in CASES if c not in SEPARATE))
    parser.add_argument('--variant', default='lora')
    parser.add_argument('--rank', type=int, default=4)
    parser.add_argument('--steps', type=int, default=24)
    parser.add_argument('--batch', type=int, default=4)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--float64', action='store_true')
    parser.add_argument('--bits', type=int, choices=[4, 8], help='quantizes the base')
    parser.add_argument('--spread', action='store_true')
    parser.add_argument('--onnxtrain', default=os.path.join(HERE, '../../build/release/bin/onnxtrain'))
    parser.add_argument('--flags', default='', help='more flags of onnxtrain')
    parser.add_argument('--json', help='file for the results')
    parser.add_argument('--keep', help='folder for the models and runs')
    args = parser.parse_args()
    results = []
    for case in args.case.split(','):
        for variant in args.variant.split(','):
            folder = os.path.join(args.keep, f'{case}-{variant}') if args.keep else tempfile.mkdtemp()
            os.makedirs(folder, exist_ok=True)
            results.append(compare(case, variant, args, folder))
            print('  '.join(f'{k} {v:.2g}' if isinstance(v, float) else f'{k} {v}' for k, v in results[-1].items()),
                  flush=True)
            if not args.keep:
                shutil.rmtree(folder)
    if args.json:
        with open(args.json, 'w') as f:
            json.dump(results, f, indent=1)


if __name__ == '__main__':
    main()
