"""Runs one PyTorch training process for vs_torch.py.

Writes one JSON line that describes the process. Then, for each line "N" on stdin, trains N steps and writes a JSON line
with their seconds. The argument is a JSON object: case, folder, batch, seed, precision (f32, bf16), device, threads (0:
torch's own choice), tuned, compile ("", "default", "max-autotune").

A tuned process uses what its torch has: channels_last for images, F.scaled_dot_product_attention, fused AdamW; on a GPU
cuDNN times its algorithms. Products and convolutions in float32 are not rounded to TF32.
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


def peak_bytes(device, before):
    """Returns the peak memory: of the GPU if there is one, else what this process has above `before`."""
    return torch.cuda.max_memory_allocated() if device.startswith('cuda') else peak_resident() - before


def state_bytes(model, optimizer):
    """Returns the bytes that persist between steps: parameters, buffers, gradients, moments."""
    tensors = list(model.buffers())
    for p in model.parameters():
        tensors += [p, p.grad] + [t for t in optimizer.state[p].values() if torch.is_tensor(t)]
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def make_optimizer(model, tuned):
    parameters, options = list(model.parameters()), dict(lr=1e-6, weight_decay=0)
    if tuned:
        try:
            return torch.optim.AdamW(parameters, fused=True, **options), 'fused'
        except (RuntimeError, TypeError):  # torch 1.13, or none for this device
            pass
    return torch.optim.AdamW(parameters, foreach=True, **options), 'foreach'


class Training:
    def __init__(self, spec):
        self.spec, self.case = spec, models.CASES[spec['case']]
        torch.manual_seed(spec['seed'])
        channels_last = spec['tuned'] and self.case.images()
        models.Attention.fused = spec['tuned'] and hasattr(F, 'scaled_dot_product_attention')
        self.model = self.case.make(spec['folder']).to(spec['device']).train()
        self.x = [x.to(spec['device']) for x in self.case.inputs(spec['batch'])]
        self.y = self.case.labels(spec['batch']).to(spec['device'])
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.x = [x.contiguous(memory_format=torch.channels_last) for x in self.x]
        self.optimizer, self.update = make_optimizer(self.model, spec['tuned'])
        self.run = torch.compile(self.model, mode=spec['compile']) if spec['compile'] else self.model
        self.uses = [self.update] + ['channels_last'] * channels_last + ['sdpa'] * models.Attention.fused

    def step(self):
        device = self.spec['device'].split(':')[0]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self.spec['precision'] == 'bf16'):
            loss = self.case.loss(self.run(*self.x), self.y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if device == 'cuda':
            torch.cuda.synchronize()


def main(spec):
    if spec['threads']:
        torch.set_num_threads(spec['threads'])
    torch.backends.cudnn.benchmark = spec['tuned']
    torch.backends.cudnn.allow_tf32 = False
    reset_peak()
    before = peak_resident()
    training = Training(spec)
    for _ in range(3):
        training.step()
    print(json.dumps({'torch': torch.__version__, 'threads': torch.get_num_threads(), 'uses': training.uses,
                      'parameters': sum(p.numel() for p in training.model.parameters()),
                      'state_bytes': state_bytes(training.model, training.optimizer)}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            training.step()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps({'seconds': seconds, 'peak_bytes': peak_bytes(spec['device'], before)}), flush=True)


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
