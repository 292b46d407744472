#!/usr/bin/env bash
# Builds the wheel, installs it into an empty virtual environment and uses it there, as tests/capi/python_use.py and
# python_runs.py do; then trains with the program.
#
#   tools/test_wheel.sh [--bare] [BUILD]    BUILD is build/release
#
# Not part of the tests: pip fetches NumPy and onnx. The environment of the process is left out, so that no library of
# the build is found but those that the wheel carries. With --bare, as root and with mmdebstrap, that takes place in a
# chroot with a minimal Debian 12 and its Python, which has none of the libraries; this machine's Python, for which pip
# fetches, has the same version.
set -euo pipefail
cd "$(dirname "$0")/.."
bare=false
if [ "${1:-}" = --bare ]; then bare=true; shift; fi
build=$(realpath "${1:-build/release}")
root=$(mktemp -d)
chmod 755 "$root"  # for the user that apt downloads as
trap 'rm -rf --one-file-system "$root"' EXIT

# `home` has the wheel and the environment; `inside` runs a program that sees it by that name.
home=$root folder=$root inside=() python=python3
if $bare; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -1)
  mmdebstrap --quiet --variant=minbase --include=python3,python3-venv bookworm "$root" "$mirror"
  home=/home/wheel folder=$root/home/wheel python=/usr/bin/python3
  # With /proc, as every container has it.
  inside=(unshare --mount --pid --fork --kill-child sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
          "$root")
  mkdir "$folder"
fi
run() { "${inside[@]}" /usr/bin/env -i -C "$home" HOME="$home" "$@"; }

python3 tools/make_wheel.py "$build" --out "$folder"
python3 -m pip -q download --only-binary :all: -d "$folder/packages" onnx numpy
run "$(command -v "$python")" -m venv "$home/env"
wheel=$(basename "$folder"/onnxtrain-*.whl)
run "$home/env/bin/pip" -q install --no-index --find-links "$home/packages" "$home/$wheel" onnx
# The model of the test: x[batch,4] → 16 → 3 scores y.
cat >"$folder/model.py" <<'MODEL'
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
weights = [("w1", (4, 16), .3), ("b1", (16,), .1), ("w2", (16, 3), .3), ("b2", (3,), .1)]
nodes = [helper.make_node("MatMul", ["x", "w1"], ["h0"]), helper.make_node("Add", ["h0", "b1"], ["h1"]),
         helper.make_node("Relu", ["h1"], ["h"]), helper.make_node("MatMul", ["h", "w2"], ["o"]),
         helper.make_node("Add", ["o", "b2"], ["y"])]
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in (("x", 4), ("y", 3))]
graph = helper.make_graph(nodes, "mlp", values[:1], values[1:], [
    numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name)
    for name, shape, scale in weights])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), sys.argv[1])
labels = np.arange(96) % 3
np.savez(sys.argv[2], x=(rng.random((96, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32), label=labels)
MODEL
cp tests/capi/python_use.py tests/capi/python_runs.py "$folder"
run "$home/env/bin/python" "$home/model.py" "$home/m.onnx" "$home/d.npz"
run "$home/env/bin/python" "$home/python_use.py" "$home/m.onnx"
run "$home/env/bin/python" "$home/python_runs.py" "$home/m.onnx"
run "$home/env/bin/onnxtrain" --version
run "$home/env/bin/onnxtrain" --flagfile presets/quick.flags --model m.onnx --data d.npz --out trial --quiet
run "$home/env/bin/onnxtrain" inspect --model m.onnx >/dev/null
echo "works in an empty environment: $wheel"
