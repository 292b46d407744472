"""Measures memory and time of adapters on decoders of real shapes with random weights.

    VENV/bin/python tools/bench/adapters.py --case smollm2,qwen05b --base fp32,int4 --batch 2 --length 1024
    VENV/bin/python tools/bench/adapters.py --case llama1b --base fp16,int4 --batch 2 --length 1024 --steps 1
    VENV/bin/python tools/bench/adapters.py --case smollm2 --base fp32,int4 --length 256 --peft --rounds 3

Each row is `onnxtrain bench` with LoRA on every linear layer: the planned and the measured peak of memory beside the
size of the file's weights, and the time of a step. `fp32` and `fp16` are exports of PyTorch; `int4` is made of
the latter by ONNX Runtime's quantizer (MatMulNBits, blocks of 32). `--peft` measures PEFT's step on the same shape in
alternating rounds: AdamW on the adapters, attention of torch.nn.functional. Models stay in `--folder`.

The Python that runs this needs peft, torch, transformers, onnx, onnxscript and onnxruntime.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from program import run_json

GIB = 1 << 30
SHAPES = {  # hidden, layers, heads, kv heads, vocabulary, inner width, tied output layer
    'tiny': (64, 2, 4, 2, 512, 128, True),
    'smollm2': (576, 30, 9, 3, 49152, 1536, True),
    'qwen05b': (896, 24, 14, 2, 151936, 4864, True),
    'tinyllama': (2048, 22, 32, 4, 32000, 5632, False),
    'llama1b': (2048, 16, 32, 8, 128256, 8192, True),
    'qwen3b': (2048, 36, 16, 2, 151936, 11008, True),
    'llama3b': (3072, 28, 24, 8, 128256, 8192, True),
}


def make_model(case, dtype):
    import torch
    import transformers
    hidden, layers, heads, kv, vocab, inner, tied = SHAPES[case]
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, vocab_size=vocab, max_position_embeddings=4096, tie_word_embeddings=tied)
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    return transformers.LlamaForCausalLM(config).eval()


def export(case, base, path):
    import torch
    model = make_model(case, torch.float16 if base == 'fp16' else torch.float32)

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False).logits
    axes = {0: torch.export.Dim('batch'), 1: torch.export.Dim('sequence', max=4096)}
    torch.onnx.export(Logits().eval(), (torch.ones(2, 16, dtype=torch.int64),), path, input_names=['input_ids'],
                      output_names=['logits'], dynamo=True, dynamic_shapes=(axes,), external_data=True, verbose=False)


def quantize(source, path):
    """Quantizes every product but the output layer, whose weight may be that of the embedding."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    model = onnx.load(source)
    head = [n.name for n in model.graph.node if 'logits' in n.output]
    quantizer = MatMulNBitsQuantizer(model, bits=4, block_size=32, is_symmetric=False, nodes_to_exclude=head)
    quantizer.process()
    quantizer.model.save_model_to_file(path, use_external_data_format=True)


def model_file(case, base, folder):
    """Returns the model's path; makes it in a process of its own, whose memory ends with it."""
    path = os.path.join(folder, f'{case}-{base}', 'model.onnx')
    if not os.path.exists(path):
        source = model_file(case, 'fp16', folder) if base == 'int4' else ''
        os.makedirs(os.path.dirname(path), exist_ok=True)
        work = f'quantize({source!r}, {path!r})' if source else f'export({case!r}, {base!r}, {path!r})'
        here = os.path.dirname(os.path.abspath(__file__))
        subprocess.run([sys.executable, '-c', f'import sys; sys.path.insert(0, {here!r})\n'
                        f'from adapters import export, quantize\n{work}'], check=True, stdout=subprocess.DEVNULL)
    return path


def file_bytes(path):
    folder = os.path.dirname(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))


def run_ours(path, args):
    line = [args.program, 'bench', '--model', path, '--json', '--steps-only', '--max-steps', str(args.steps),
            '--batch-size', str(args.batch), '--dim', f'sequence={args.length}', '--lora-rank', str(args.rank),
            '--optimizer', 'adamw', '--loss', 'cross_entropy', '--mixed-precision', 'bf16' if args.bf16 else 'no']
    return run_json(line + args.flags.split())


def time_updates(model, weights, optimizer, ids, args):
    """Returns the seconds of each update but the first; without an optimizer, hooks of the weights update them."""
    import torch
    seconds = []
    for _ in range(args.steps + 1):
        start = time.perf_counter()
        with torch.autocast('cpu', torch.bfloat16, enabled=args.bf16):
            logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
        if optimizer is not None:
            optimizer.zero_grad()
        loss.backward()
        if optimizer is not None:
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def run_peft(case, args):
    """Returns the seconds of each of PEFT's steps but the first."""
    import peft
    import torch
    model = make_model(case, torch.float32)
    config = peft.LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules='all-linear')
    model = peft.get_peft_model(model, config).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, fused=True)
    ids = torch.randint(0, SHAPES[case][4], (args.batch, args.length))
    return time_updates(model, trained, optimizer, ids, args)


def show(name, base, result, path):
    stored = file_bytes(path)
    print(f"{name:9} {base:5} file {stored / GIB:6.2f} GiB  planned {result['planned_peak_bytes'] / GIB:6.2f}  "
          f"measured {result['process_peak_bytes'] / GIB:6.2f}  step {result['median_seconds']:8.3f} s", flush=True)


def measure(case, args):
    paths = {base: model_file(case, base, args.folder) for base in args.base.split(',')}
    times = {base: [] for base in paths}
    theirs = []
    for _ in range(args.rounds):
        for base, path in paths.items():
            result = run_ours(path, args)
            times[base].append(result['median_seconds'])
            show(case, base, result, path)
        if args.peft:
            command = [sys.executable, __file__, *sys.argv[1:], '--case', case, '--peft-round']
            theirs += json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if not args.peft:
        return
    for base, seconds in times.items():
        print(f'{case:9} {base:5} {statistics.median(seconds):.3f} s over PEFT {statistics.median(theirs):.3f} s: '
              f'{statistics.median(seconds) / statistics.median(theirs):.2f}', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--folder', default='/tmp/adapter-models', help='where the models are made and kept')
    parser.add_argument('--case', default='smollm2', help=f"of these: {', '.join(SHAPES)}")
    parser.add_argument('--base', default='fp32,int4', help='of these: fp32, fp16, int4')
    parser.add_argument('--batch', type=int, default=2)
    parser.add_argument('--length', type=int, default=1024)
    parser.add_argument('--rank', type=int, default=16)
    parser.add_argument('--steps', type=int, default=3)
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--flags', default='', help='more flags of onnxtrain')
    parser.add_argument('--peft', action='store_true')
    parser.add_argument('--bf16', action='store_true', help="both in mixed precision")
    parser.add_argument('--peft-round', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peft_round:
        print(json.dumps(run_peft(args.case, args)))
        return
    for case in args.case.split(','):
        measure(case, args)


if __name__ == '__main__':
    main()
