"""Exports one case after another, each in a process of its own: python -m exports.worker FRAMEWORK

Reads {"architecture": …, "exporter": …, "folder": …, "limit": processor seconds, "untrained": false} from standard
input, one in a line. Writes a line with the versions of the packages, then for each case {"status": "exported" |
"refused" | "not applicable" | "not installed" | "crashed" | "timed out", "problem": …}. The framework is imported
once; every case runs in a fork, so that a crash, or a patch that an exporter leaves behind, ends with it.
"""
import importlib
import importlib.metadata
import json
import os
import pathlib
import resource
import signal
import sys
import time
import warnings

from exports import records

MODULES = {'torch': 'exports.torch_exports', 'genai': 'exports.torch_exports', 'jax': 'exports.jax_exports',
           'keras': 'exports.keras_exports', 'paddle': 'exports.paddle_exports'}

PACKAGES = ('torch', 'torchvision', 'transformers', 'optimum-onnx', 'onnxruntime-genai', 'timm', 'torch-geometric',
            'onnxscript', 'jax', 'flax', 'equinox', 'jax2onnx', 'keras', 'tensorflow-cpu', 'tf2onnx', 'paddlepaddle',
            'paddle2onnx')


def versions():
    """Returns the versions of those packages that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def redirect_output(folder):
    log = os.open(folder / 'log.txt', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)


def export(module, case, folder):
    """Runs in the fork. Its answer is in a file, since it may crash at any time."""
    redirect_output(folder)
    records.weights_as_trained = not case['untrained']
    resource.setrlimit(resource.RLIMIT_CPU, (case['limit'], case['limit']))
    try:
        more = module.EXPORTERS[case['exporter']](case['architecture'], folder)
        answer = {'status': 'exported', **(more or {})}
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        kind = type(error).__name__
        status = {'NotApplicable': 'not applicable', 'ModuleNotFoundError': 'not installed'}.get(kind, 'refused')
        lines = str(error).strip().splitlines() or ['']
        answer = {'status': status, 'problem': f'{kind}: {root_line(lines)}'[:300]}
    (folder / 'answer.json').write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def root_line(lines):
    """The line of a long report that names the cause: PyTorch's reports have it below "Exception summary"."""
    summary = next((i for i, line in enumerate(lines) if 'Exception summary' in line), None)
    rest = [line for line in lines[summary + 1:] if line.strip()] if summary is not None else lines
    return rest[0].strip() if rest else lines[0]


def wait(child, limit):
    deadline = time.monotonic() + 5 * limit  # the limit is of processor time; this one is for exports that hang
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def run(module, case):
    folder = pathlib.Path(case['folder'])
    child = os.fork()
    if child == 0:
        export(module, case, folder)
    status = wait(child, case['limit'])
    if status is None:
        return {'status': 'timed out', 'problem': f"longer than {5 * case['limit']} s"}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return {'status': 'timed out', 'problem': f"more than {case['limit']} s of processor time"}
    if not (folder / 'answer.json').exists():
        return {'status': 'crashed', 'problem': f'exit status {status}'}
    return json.loads((folder / 'answer.json').read_text())


def main(framework):
    warnings.filterwarnings('ignore')
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)  # what imports print is no answer
    module = importlib.import_module(MODULES[framework])
    print(json.dumps(versions()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(module, json.loads(line))), file=answers, flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
