#!/usr/bin/env bash
# Installs the packages, builds, runs every test.
set -euo pipefail
cd "$(dirname "$0")/.."
bash tools/setup.sh
cmake --preset release
cmake --build --preset release
ctest --test-dir build/release --output-on-failure
