"""Runs one PyTorch training process for vs_torch.py.

Writes one JSON line that describes the process. Then, for each line "N" on stdin, trains N steps and writes a JSON line
with their seconds. Arguments: case, batch, precision (f32, bf16), device, threads, "compile" or "".
"""
import json
import sys
import time

import torch
from torch.nn import functional as F

import models


def reset_peak():
    """Resets the peak resident memory: importing torch allocates more than it keeps."""
    with open('/proc/self/clear_refs', 'w') as f:
        f.write('5')


def peak_resident():
    with open('/proc/self/status') as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith('VmHWM'))


def state_bytes(model, optimizer):
    """Returns the bytes that persist between steps: parameters, buffers, gradients, moments."""
    tensors = list(model.buffers())
    for p in model.parameters():
        tensors += [p, p.grad] + [t for t in optimizer.state[p].values() if torch.is_tensor(t)]
    return sum(t.numel() * t.element_size() for t in tensors)


def main(case_name, batch, precision, device, threads, compiled):
    case, batch = models.CASES[case_name], int(batch)
    if int(threads):
        torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    reset_peak()
    before = peak_resident()
    model = case.make().to(device).train()
    x, y = case.inputs(batch).to(device), case.labels(batch).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0, foreach=True)
    run = torch.compile(model) if compiled == 'compile' else model
    wait = torch.cuda.synchronize if device.startswith('cuda') else lambda: None

    def step():
        with torch.autocast(device.split(':')[0], dtype=torch.bfloat16, enabled=precision == 'bf16'):
            loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(3):
        step()
    wait()
    print(json.dumps({'torch': torch.__version__, 'threads': torch.get_num_threads(),
                      'parameters': sum(p.numel() for p in model.parameters()),
                      'state_bytes': state_bytes(model, optimizer)}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step()
            wait()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({'seconds': seconds, 'peak_bytes': peak_resident() - before}), flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
