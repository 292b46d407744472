#!/usr/bin/env python3
"""Measures every rung of the memory ladder beside PyTorch: the peak of memory and the time of an update.

    VENV/bin/python tools/bench/ladder.py --case smollm2 --batch 2 --length 512
    VENV/bin/python tools/bench/ladder.py --case qwen05b,llama1b --batch 1 --length 512 --bf16

The models are decoders of real shapes with random weights, all trained with AdamW and clipping to norm 1
(tools/bench/adapters.py exports them to `--folder`). onnxtrain's rows are those of `bench --ladder`. PyTorch's are the
same model in transformers, with what its users can set up: fused AdamW, gradient checkpointing, an update of each
weight as soon as its gradient is known (which cannot clip), weights and moments in bf16. Peaks are above the process's
memory before the model, so they contain the weights. Prints a table in Markdown.

The Python that runs this needs torch, transformers, onnx and onnxscript.
"""
import argparse
import json
import resource
import statistics
import subprocess
import sys

from adapters import GIB, SHAPES, make_model, model_file, time_updates
from program import stream_json

PEERS = {  # gradient checkpointing, updates in the backward pass, weights in bf16
    'adamw': (False, False, False),
    'adamw, checkpointing': (True, False, False),
    'adamw, checkpointing, in backward': (True, True, False),
    'adamw, checkpointing, in backward, bf16 weights': (True, True, True),
}


def run_ours(case, args):
    line = [args.program, 'bench', '--ladder', '--json', '--model', model_file(case, 'fp32', args.folder),
            '--max-steps', str(args.steps), '--batch-size', str(args.batch), '--dim', f'sequence={args.length}',
            '--optimizer', 'adamw', '--loss', 'cross_entropy', '--mixed-precision', 'bf16' if args.bf16 else 'no']
    for rung in stream_json(line):
        for label in ('kept', 'recomputed', 'offloaded'):
            result = rung.get(label)
            if result is None:
                continue  # no part of this rung, or failed: the program says so
            show('onnxtrain', f"{rung['rung']}, {label}", result['planned_peak_bytes'], result['process_peak_bytes'],
                 result['median_seconds'])


def update_in_backward(model, torch):
    """Gives each weight an optimizer of its own, which runs and frees the gradient as soon as it is complete."""
    for weight in model.parameters():
        optimizer = torch.optim.AdamW([weight], lr=1e-4, fused=True)

        def update(of, optimizer=optimizer):
            optimizer.step()
            of.grad = None
        weight.register_post_accumulate_grad_hook(update)


def run_peer(case, name, args):
    """Returns the peak of memory and the seconds of an update."""
    import torch
    import transformers  # noqa: F401, before the memory at the start is read
    checkpointing, in_backward, bf16_weights = PEERS[name]
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = make_model(case, torch.bfloat16 if bf16_weights else torch.float32).train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
    if in_backward:
        update_in_backward(model, torch)
    optimizer = None if in_backward else torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, SHAPES[case][4], (args.batch, args.length))
    seconds = time_updates(model, list(model.parameters()), optimizer, ids, args)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    return {'peak': peak * 1024, 'seconds': statistics.median(seconds)}


def show(program, options, planned, measured, seconds):
    planned = f'{planned / GIB:.2f}' if planned else ''
    print(f'| {program} | {options} | {planned} | {measured / GIB:.2f} | {seconds:.2f} |', flush=True)


def measure(case, args):
    precision = 'bf16' if args.bf16 else 'float32'
    print(f'\n{case}, {args.batch} × {args.length} tokens, {precision}\n\n'
          '| | | planned GiB | measured GiB | update, s |\n|---|---|---|---|---|', flush=True)
    run_ours(case, args)
    for name in PEERS:
        command = [sys.executable, __file__, *sys.argv[1:], '--case', case, '--peer', name]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            print(f'| PyTorch | {name} | | ended with {result.returncode} | |', flush=True)
            continue
        peer = json.loads(result.stdout)
        show('PyTorch', name, 0, peer['peak'], peer['seconds'])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='build/release/bin/onnxtrain')
    parser.add_argument('--folder', default='/tmp/adapter-models', help='where the models are made and kept')
    parser.add_argument('--case', default='smollm2', help=f"of these: {', '.join(SHAPES)}")
    parser.add_argument('--batch', type=int, default=2)
    parser.add_argument('--length', type=int, default=512)
    parser.add_argument('--steps', type=int, default=3)
    parser.add_argument('--bf16', action='store_true', help='both in mixed precision')
    parser.add_argument('--peer', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        print(json.dumps(run_peer(args.case, args.peer, args)))
        return
    for case in args.case.split(','):
        measure(case, args)


if __name__ == '__main__':
    main()
