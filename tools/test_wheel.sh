#!/usr/bin/env bash
# Builds the wheel, installs it into an empty virtual environment and uses it there, as tests/capi/python_use.py does.
#
#   tools/test_wheel.sh [BUILD]    BUILD is build/release
#
# Not part of the tests: pip fetches NumPy and onnx. The environment of the process is left out, so that no library of
# the build is found but those that the wheel carries.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 tools/make_wheel.py "$build" --out "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q install "$folder"/onnxtrain-*.whl onnx
# The model of the test: x[batch,4] → 16 → 3 scores y.
"$folder/env/bin/python" - "$folder/m.onnx" <<'MODEL'
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
MODEL
use=$PWD/tests/capi/python_use.py
cd "$folder"
env -i HOME="$folder" "$folder/env/bin/python" "$use" m.onnx
echo "works in an empty environment: $(basename "$folder"/onnxtrain-*.whl)"
