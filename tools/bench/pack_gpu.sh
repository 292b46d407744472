#!/usr/bin/env bash
# Collects what gpu.sh needs on a machine that has a GPU and PyTorch, and none of Debian's packages.
#
#   tools/bench/pack_gpu.sh [BUILD] [ARCHIVE]
#
# BUILD (build/cuda) is built with the preset `cuda`. ARCHIVE (build/gpu_pack.tar.gz, about 40 MiB) gets stripped
# programs and their libraries other than libtorch's and the C library's.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/cuda} archive=${2:-build/gpu_pack.tar.gz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack=$work/gpu_pack
programs=(onnxtrain tests_ops tests_optim tests_backends_torch_fuse)
mkdir -p "$pack/bin" "$pack/lib"
for program in "${programs[@]}"; do
  cp "$build/bin/$program" "$pack/bin/"
done
cp "$build"/lib/libonnxtrain.so "$build"/lib/libonnxtrain_cli.so "$build"/lib/libonnxtrain_backend_cpu.so \
  "$build"/lib/libonnxtrain_backend_torch_cuda.so "$pack/lib/" 2>/dev/null || true
[ -e "$pack/lib/libonnxtrain_backend_torch_cuda.so" ] || { echo "$build has no torch backend with CUDA" >&2; exit 1; }
# The C library, its compiler's and libtorch's own are the GPU machine's.
ldd "$pack"/bin/* "$pack"/lib/*.so | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so' |
  grep -E '^/(usr/)?lib/x86_64-linux-gnu/' | grep -vE '/lib(torch|c10)[^/]*$' | xargs -r cp -Lt "$pack/lib"
# A backend runs on the PyTorch that it was built against.
library=$(ldd "$pack/lib/libonnxtrain_backend_torch_cuda.so" | awk '$1 == "libc10.so" {print $3}')
sed -nE 's/^__version__ = .([0-9.]+).*/\1/p' "$(dirname "$library")/../version.py" >"$pack/torch_version"
strip "$pack"/bin/* "$pack"/lib/*.so* 2>/dev/null || true
tar -C "$work" -czf "$archive" gpu_pack
du -h "$archive"
