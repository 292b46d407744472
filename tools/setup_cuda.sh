#!/usr/bin/env bash
# Installs a libtorch with CUDA, PyPI's wheel of PyTorch, for `cmake --preset cuda`. Needs neither a GPU nor a CUDA
# toolkit.
#
#   tools/setup_cuda.sh FOLDER [VERSION]
#
# makes a Python environment in FOLDER (about 7 GB) and prints how to build against it. Versions tried, on the CPU
# alone: 2.11.0, 2.15.0.
set -euo pipefail
if [ $# -lt 1 ] || [ "$1" = --help ]; then
  sed -n 's/^# \{0,1\}//p' "$0" | sed 1d
  exit 2
fi
folder=$1 version=${2:-2.11.0}
if ! python3 -c 'import ensurepip' 2>/dev/null; then
  echo "setup_cuda.sh: python3 lacks venv: install Debian's python3-venv" >&2
  exit 1
fi
python3 -m venv "$folder"
"$folder/bin/pip" install -q "torch==$version" numpy
torch=$("$folder/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
cat <<END
libtorch $version is in $torch. Build with

  export ONNXTRAIN_CUDA_TORCH=$torch
  cmake --preset cuda && cmake --build --preset cuda
END
