#!/usr/bin/env python3
"""Compares the loss of runs with moments of 8 bits and weights of bf16 with that of float32.

    python3 tools/bench/low_memory.py --mnist DIR --shakespeare FILE --sst2 DIR --vocab FILE [--seeds 5] [--json FILE]

Every variant trains the same networks from the same weights with the same batches, once per seed: a perceptron of 256
units on digits, a decoder of characters (tools/make_gpt.py), and an encoder of two layers on the sentences of SST-2
(train.tsv and dev.tsv) in the words of BERT's vocabulary. Prints mean and standard deviation of the loss on
held-out samples, and exits with 1 where the mean is more than two standard deviations of the float32 runs above
theirs. Needs PyTorch 2.5 or later with onnx and onnxscript.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIANTS = {
    'float32': [],
    'adamw8bit': ['--optimizer', 'adamw8bit'],
    'bf16 weights': ['--weight-dtype', 'bf16'],
    'both': ['--optimizer', 'adamw8bit', '--weight-dtype', 'bf16', '--mixed-precision', 'bf16'],
    'lion': ['--optimizer', 'lion'],
    'lion8bit': ['--optimizer', 'lion8bit'],
    'schedule_free_adamw': ['--optimizer', 'schedule_free_adamw'],
}
BASELINES = {'lion8bit': 'lion'}
COMPARED = ('adamw8bit', 'bf16 weights', 'both', 'lion8bit')


def maker(case):
    """Returns the function that exports a case of models.py."""
    script = ROOT / 'tools/bench/models.py'
    return lambda path, seed: subprocess.run([sys.executable, script, case, path, str(seed)], check=True,
                                             capture_output=True)


def make_decoder(path, seed):
    script = ROOT / 'tools/make_gpt.py'
    subprocess.run([sys.executable, script, path, '--vocab', '65', '--length', '64', '--layers', '2', '--width', '128',
                    '--seed', str(seed)], check=True, capture_output=True)


def train(program, model, flags, folder):
    line = [program, '--model', model, '--out', folder, '--overwrite', '--quiet', *flags]
    subprocess.run(line, check=True, capture_output=True)
    return json.loads((pathlib.Path(folder) / 'summary.json').read_text())['eval']['loss']


def compare(name, make, flags, rates, args):
    losses = {variant: [] for variant in args.variants.split(',')}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(args.seeds):
            model = f'{scratch}/m.onnx'
            make(model, seed)
            for variant in losses:
                rate = rates['lion' if variant.startswith('lion') else 'adamw']
                schedule = 'constant' if variant.startswith('schedule_free') else 'cosine'
                line = [*flags, '--lr', rate, '--lr-scheduler', schedule, '--seed', str(seed), *VARIANTS[variant]]
                losses[variant].append(train(args.program, model, line, f'{scratch}/run'))
    passed = True
    for variant, values in losses.items():
        base = losses.get(BASELINES.get(variant), losses['float32'])
        mean, limit = statistics.mean(values), statistics.mean(base) + 2 * statistics.stdev(base)
        worse = variant in COMPARED and mean > limit
        passed = passed and not worse
        spread = statistics.stdev(values)
        print(f'{name:12} {variant:20} {mean:.4f} ± {spread:.4f}{"  WORSE" if worse else ""}', flush=True)
    return losses, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default=str(ROOT / 'build/release/bin/onnxtrain'))
    parser.add_argument('--mnist', help='folder with the four files of MNIST')
    parser.add_argument('--shakespeare', help='text file')
    parser.add_argument('--sst2', help='folder with train.tsv and dev.tsv')
    parser.add_argument('--vocab', help="BERT's vocabulary, for --sst2")
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--steps', type=int, default=600)
    parser.add_argument('--backend', default='cpu')
    parser.add_argument('--variants', default=','.join(VARIANTS), help='float32 first')
    parser.add_argument('--json')
    args = parser.parse_args()
    common = ['--max-steps', str(args.steps), '--backend', args.backend, '--warmup', '0.05']
    cases = {
        'mnist': (args.mnist, maker('mlp'), ['--batch-size', '64', '--eval-split', '0.1'],
                  {'adamw': '1e-3', 'lion': '1e-4'}),
        'shakespeare': (args.shakespeare, make_decoder, ['--batch-size', '32', '--eval-split', 'last:0.1'],
                        {'adamw': '1e-3', 'lion': '1e-4'}),
        'sst2': (args.sst2 and f'{args.sst2}/train.tsv', maker('bert_tiny'),
                 ['--batch-size', '32', '--eval-data', f'{args.sst2}/dev.tsv', '--tokenizer', str(args.vocab),
                  '--text', '0', '--label', '1'],
                 {'adamw': '5e-4', 'lion': '1e-4'}),
    }
    results, passed = {}, True
    for name, (data, make, flags, rates) in cases.items():
        if data is None:
            continue
        results[name], ok = compare(name, make, ['--data', data, *flags, *common], rates, args)
        passed = passed and ok
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))
    sys.exit(not passed)


if __name__ == '__main__':
    main()
