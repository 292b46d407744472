#!/usr/bin/env bash
# Trains a digit classifier from a clean clone: installs the Debian packages, builds, generates digits, exports an
# untrained .onnx and trains it to 95 % test accuracy. Passes its options to onnxtrain: tools/demo.sh --backend torch
set -euo pipefail
cd "$(dirname "$0")/.."
bash tools/setup.sh
# A fresh build folder compiles groups of sources at once, which is faster.
fresh=()
[ -f build/release/CMakeCache.txt ] || fresh=(-DONNXTRAIN_UNITY=ON)
cmake --preset release "${fresh[@]}"
backends=(onnxtrain_backend_cpu)
case " $* " in *--backend*torch*) backends+=(onnxtrain_backend_torch) ;; esac
cmake --build --preset release --target onnxtrain_tool "${backends[@]}"

demo=build/demo
mkdir -p "$demo"
/usr/bin/python3 tools/make_digits.py "$demo/train.npz" 6000 1
/usr/bin/python3 tools/make_digits.py "$demo/test.npz" 1000 2
/usr/bin/python3 tools/make_cnn.py "$demo/cnn.onnx"

set -x
build/release/bin/onnxtrain --model "$demo/cnn.onnx" --data "$demo/train.npz" --eval-data "$demo/test.npz" \
  --normalize unit --epochs 3 --require 'accuracy>=0.95' --out "$demo/run" --overwrite "$@"
build/release/bin/onnxtrain eval --model "$demo/run/model.onnx" --data "$demo/test.npz"
