#!/usr/bin/env bash
# Installs Apache Arrow, PyPI's wheel of pyarrow, for the optional component that reads Parquet and Arrow files. Debian
# does not package it; with Apache's packages (libarrow-dev, libparquet-dev) this script is not needed.
#
#   tools/setup_arrow.sh FOLDER [VERSION]
#
# makes a Python environment in FOLDER (about 200 MB) and prints how to build libonnxtrain_arrow.so. Versions tried:
# 26.0.1.
set -euo pipefail
if [ $# -lt 1 ] || [ "$1" = --help ]; then
  sed -n 's/^# \{0,1\}//p' "$0" | sed 1d
  exit 2
fi
folder=$1 version=${2:-26.0.1}
if ! python3 -c 'import ensurepip' 2>/dev/null; then
  echo "setup_arrow.sh: python3 lacks venv: install Debian's python3-venv" >&2
  exit 1
fi
python3 -m venv "$folder"
"$folder/bin/pip" install -q "pyarrow==$version"
arrow=$("$folder/bin/python" -c 'import os, pyarrow; print(os.path.dirname(pyarrow.__file__))')
cat <<END
Apache Arrow $version is in $arrow. Build with

  cmake --preset release -DONNXTRAIN_ARROW_ROOT=$arrow
  cmake --build --preset release --target onnxtrain_arrow
END
