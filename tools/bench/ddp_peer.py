"""Runs one rank of PyTorch's DistributedDataParallel over Gloo for vs_ddp.py.

The argument is a JSON object: case, batch (of all ranks), steps, seed. Rank and meeting point are in the variables of
torchrun. Rank 0 prints one JSON line with the seconds of each step.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import models
from peer import make_optimizer


def main(spec):
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    dist.init_process_group('gloo')
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(spec['seed'])
    case = models.CASES[spec['case']]
    models.Attention.fused = hasattr(torch.nn.functional, 'scaled_dot_product_attention')
    model = DistributedDataParallel(case.make('').train(), gradient_as_bucket_view=True)
    optimizer, update = make_optimizer(model, True)
    share = slice(spec['batch'] * rank // size, spec['batch'] * (rank + 1) // size)
    x, y = [t[share] for t in case.inputs(spec['batch'])], case.labels(spec['batch'])[share]
    seconds = []
    for _ in range(spec['steps']):
        begin = time.perf_counter()
        loss = case.loss(model(*x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps({'torch': torch.__version__, 'update': update, 'seconds': seconds,
                          'parameters': sum(p.numel() for p in model.parameters())}), flush=True)
    dist.barrier()


if __name__ == '__main__':
    main(json.loads(sys.argv[1]))
