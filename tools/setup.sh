#!/usr/bin/env bash
# Installs the Debian packages for building and testing, as root or with sudo. Does nothing if all are installed.
set -euo pipefail
packages=(
  g++ cmake ninja-build ccache mold git clang-format clang-tidy libomp-dev
  libabsl-dev libgflags-dev libgoogle-glog-dev libgtest-dev libgmock-dev libbenchmark-dev
  libonnx-dev libonnx-testdata libprotobuf-dev protobuf-compiler
  libdnnl-dev libtorch-dev libgloo-dev libopenblas-dev libhwy-dev libeigen3-dev
  zlib1g-dev libzip-dev libzstd-dev libarchive-dev libsndfile1-dev libsamplerate0-dev
  libisal-dev libssl-dev libjemalloc-dev nlohmann-json3-dev
  libjpeg-dev libpng-dev libwebp-dev libgif-dev libtiff-dev
  libyaml-cpp-dev
  libicu-dev libsentencepiece-dev
  python3 python3-numpy python3-torch
)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
$sudo apt-get install -y -q --no-install-recommends "${missing[@]}"
