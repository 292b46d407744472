#!/usr/bin/env python3
"""Makes a wheel of the Python package that carries the libraries of a build, and the system's that they need.

    tools/make_wheel.py BUILD [--out FOLDER]

BUILD is a configured and built folder (build/release). The wheel needs no compiler, no Debian packages and no torch:
Linux of this machine's architecture, its C library or a newer one, and NumPy. It installs the package and the program
`onnxtrain` with its presets, manual page and completion. What needs libtorch is not in it: the torch backend, and runs
of several ranks.
"""
import argparse
import base64
import hashlib
import pathlib
import platform
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOTS = ["libonnxtrain_c.so.1", "libonnxtrain.so"]
# Loaded by path when they are needed.
BY_PATH = ["libonnxtrain_sentencepiece.so", "libonnxtrain_backend_cpu.so"]
PROGRAM = "bin/onnxtrain"
# Part of every Linux: another copy beside that of the process would be a fault.
SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|libutil)\.so.*")
DATE = (2020, 1, 1, 0, 0, 0)  # the same files make the same wheel


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def needed(library):
    """Names of the libraries that one needs itself."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", str(library)))


def resolve(library):
    """Paths of all libraries that one needs, by name."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", str(library)), re.MULTILINE)
    return {name: pathlib.Path(path).resolve() for name, path in found}


def collect(prefix):
    """The libraries to carry as (name, path): each behind those that it needs. Those of the program alone come last."""
    stage, paths = prefix / "lib", resolve(prefix / PROGRAM)
    for root in ROOTS + BY_PATH:
        paths.update(resolve(stage / root))
        paths[root] = (stage / root).resolve()
    ordered = {}

    def add(name):
        if name in ordered or SYSTEM.fullmatch(name):
            return
        if name not in paths:
            sys.exit(f"make_wheel.py: {name} is not found")
        for other in needed(paths[name]):
            add(other)
        ordered[name] = paths[name]

    for root in ROOTS:
        add(root)
    for root in BY_PATH:
        for other in needed(paths[root]):
            add(other)
        ordered[root] = paths[root]
    package = list(ordered.items())
    for name in needed(prefix / PROGRAM):
        add(name)
    return package, [item for item in ordered.items() if item not in package]


def version():
    return re.search(r"project\(onnxtrain VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def tag():
    glibc = platform.libc_ver()[1].replace(".", "_")
    return f"py3-none-manylinux_{glibc}_{platform.machine()}"


def metadata():
    classifiers = ["Development Status :: 4 - Beta", "Environment :: Console", "Intended Audience :: Developers",
                   "Intended Audience :: Science/Research", "License :: OSI Approved :: Apache Software License",
                   "Operating System :: POSIX :: Linux", "Programming Language :: C++",
                   "Programming Language :: Python :: 3", "Topic :: Scientific/Engineering :: Artificial Intelligence"]
    fields = {"Metadata-Version": "2.1", "Name": "onnxtrain", "Version": version(),
              "Summary": "Trains and fine-tunes any ONNX model", "License": "Apache-2.0",
              "Keywords": "onnx, training, fine-tuning, deep learning", "Requires-Python": ">=3.10",
              "Requires-Dist": "numpy", "Description-Content-Type": "text/markdown"}
    lines = [f"{name}: {value}" for name, value in fields.items()] + [f"Classifier: {name}" for name in classifiers]
    lines += ["Provides-Extra: progress", "Requires-Dist: tqdm; extra == 'progress'"]
    return "\n".join(lines) + "\n\n" + (ROOT / "python/DESCRIPTION.md").read_text()


# Becomes a program of the environment; pip writes the path of its Python into the first line.
COMMAND = """#!python
# Starts the program that the package carries, without importing the package.
import importlib.util
import os
import sys

program = os.path.join(importlib.util.find_spec("onnxtrain").submodule_search_locations[0], "bin", "onnxtrain")
os.execv(program, ["onnxtrain", *sys.argv[1:]])
"""


class Wheel:
    def __init__(self, path):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.records = []

    def add(self, name, content, mode=0o644):
        info = zipfile.ZipInfo(name, DATE)
        info.external_attr = (stat.S_IFREG | mode) << 16  # pip keeps x of regular files alone
        info.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(info, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}")

    def close(self, folder):
        name = f"{folder}/RECORD"
        self.archive.writestr(zipfile.ZipInfo(name, DATE), "\n".join([*self.records, f"{name},,", ""]))
        self.archive.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    path = pathlib.Path(args.out, f"onnxtrain-{version()}-{tag()}.whl")
    path.parent.mkdir(parents=True, exist_ok=True)
    info = f"onnxtrain-{version()}.dist-info"
    with tempfile.TemporaryDirectory() as prefix:
        run("cmake", "--install", args.build, "--prefix", prefix, "--strip")
        wheel = Wheel(path)
        for source in sorted((ROOT / "python/onnxtrain").glob("*.py*")):
            if source.is_file():
                wheel.add(f"onnxtrain/{source.name}", source.read_bytes())
        stage = pathlib.Path(prefix)
        libraries, of_program = collect(stage)
        for name, library in libraries + of_program:
            wheel.add(f"onnxtrain/lib/{name}", library.read_bytes())
        wheel.add(f"onnxtrain/{PROGRAM}", (stage / PROGRAM).read_bytes(), 0o755)
        data = f"onnxtrain-{version()}.data"
        wheel.add(f"{data}/scripts/onnxtrain", COMMAND.encode(), 0o755)
        for shared in sorted(p for p in (stage / "share").rglob("*") if p.is_file()):
            name = shared.relative_to(stage)
            if "presets" in name.parts:
                wheel.add(f"onnxtrain/{name}", shared.read_bytes())
            elif name.parts[1] in ("man", "bash-completion", "zsh", "fish"):
                wheel.add(f"{data}/data/{name}", shared.read_bytes())
        order = [name for name, _ in libraries if name not in BY_PATH]
        wheel.add("onnxtrain/lib/order.txt", "\n".join([*order, ""]).encode())
        wheel.add(f"{info}/METADATA", metadata().encode())
        wheel.add(f"{info}/WHEEL",
                  f"Wheel-Version: 1.0\nGenerator: make_wheel.py\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode())
        wheel.add(f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes())
        wheel.close(info)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB, {len(libraries + of_program)} libraries")


if __name__ == "__main__":
    main()
