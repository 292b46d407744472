"""The PyTorch processes that vs_torch.py compares with: which there are, how each is set up, how it is run."""
import glob
import json
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = '/usr/lib/x86_64-linux-gnu/'
STOCK = 'stock'


def has_avx512():
    with open('/proc/cpuinfo') as f:
        return ' avx512f ' in f.read()


# OpenBLAS takes processors that are newer than itself for old ones; on one without AVX-512 it chooses well.
BLAS = {'OPENBLAS_CORETYPE': 'SkylakeX'} if has_avx512() else {}
THREADS = dict(BLAS, OMP_WAIT_POLICY='PASSIVE')
# Allocators that keep freed memory, as training reuses it in each step. A library counts where it is installed.
ALLOCATORS = {
    'glibc': {},
    'glibc tuned': {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': str(10**11), 'MALLOC_TOP_PAD_': str(2**29)},
    'jemalloc': {'LD_PRELOAD': 'libjemalloc.so.2',
                 'MALLOC_CONF': 'oversize_threshold:1,background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1'},
    'tcmalloc': {'LD_PRELOAD': 'libtcmalloc_minimal.so.4'},
}


def cpus():
    return len(os.sched_getaffinity(0))


def installed_allocators():
    """Returns the environment of each allocator on this machine, by name."""
    found = {}
    for name, environment in ALLOCATORS.items():
        library = environment.get('LD_PRELOAD')
        if library:
            paths = glob.glob(LIBRARIES + library)
            if not paths:
                continue
            environment = dict(environment, LD_PRELOAD=paths[0])
        found[name] = environment
    return found


def has_compile(python):
    """Does the interpreter's torch have torch.compile?"""
    test = "import torch, sys; sys.exit(not hasattr(torch, 'compile'))"
    return subprocess.run([python, '-c', test], stderr=subprocess.DEVNULL).returncode == 0


def lacks(python, modules):
    """Returns the first module that the interpreter cannot import; '' if it has all."""
    for module in modules:
        if subprocess.run([python, '-c', f'import {module}'], capture_output=True).returncode != 0:
            return module
    return ''


class Peer:
    """A running process. Raises PeerFailed where it ends without a result (out of memory, no compiler, …)."""

    def __init__(self, label, python, spec, environment):
        self.label, self.seconds, self.peak, self.precision = label, [], 0, spec['precision']
        self.process = subprocess.Popen([python, os.path.join(HERE, 'peer.py'), json.dumps(spec)], text=True,
                                        env=dict(os.environ, **environment), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.facts = self.read()
        self.name = f'torch {self.facts["torch"]} {label}'

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise PeerFailed(f'{self.label}: ended without a result, exit code {self.process.wait()}')
        return json.loads(line)

    def round(self, steps):
        self.process.stdin.write(f'{steps}\n')
        self.process.stdin.flush()
        result = self.read()
        self.seconds += result['seconds']
        self.peak = result['peak_bytes']
        return statistics.median(result['seconds'])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class PeerFailed(Exception):
    pass


def specification(case, folder, batch, seed, device, **options):
    return dict(dict(case=case, folder=folder, batch=batch, seed=seed, device=device, precision='f32', threads=cpus(),
                     tuned=True, compile=''), **options)


def fastest_allocator(python, spec, allocators):
    """Returns (name, environment) of the allocator with which a few eager steps are fastest. GPUs have their own."""
    if spec['device'] != 'cpu':
        return spec['device'], {}
    times = {}
    for name, environment in allocators.items():
        peer = Peer(name, python, spec, dict(THREADS, **environment))
        times[name] = min(peer.round(3), peer.round(3))
        peer.close()
    best = min(times, key=times.get)
    return best, allocators[best]


def variants(python, precisions, compile_modes):
    """Yields (label, options) of the tuned processes of one interpreter."""
    modes = [''] + (list(compile_modes) if has_compile(python) else [])
    for precision in precisions:
        for mode in modes:
            label = f'compiled ({mode})' if mode else 'eager'
            yield label + (' bf16' if precision == 'bf16' else ''), dict(precision=precision, compile=mode)


def start_peers(python, spec, precisions, compile_modes, stock, log):
    """Starts every process of one interpreter; those that fail are told to `log` and left out."""
    peers = []
    if stock:
        peers.append(Peer(STOCK, python, dict(spec, threads=0, tuned=False), {}))
    allocator, environment = fastest_allocator(python, spec, installed_allocators())
    for label, options in variants(python, precisions, compile_modes):
        try:
            peers.append(Peer(f'{label}, {allocator}', python, dict(spec, **options), dict(THREADS, **environment)))
        except PeerFailed as failure:
            log(f'  left out: {python}: {failure}')
    return peers
