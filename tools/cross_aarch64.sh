#!/usr/bin/env bash
# Builds for 64-bit ARM on x86-64 and runs the result under qemu: training steps, whose losses are compared with those
# of the native build, and the ONNX conformance cases. Not part of the tests: half an hour on two cores. As root:
# installs g++-aarch64-linux-gnu, qemu-user-static and mmdebstrap, and unpacks Debian's libraries for arm64 (250 MB).
#
#   tools/cross_aarch64.sh [--sysroot DIR]    # build/aarch64-sysroot
#
# The build is in build/aarch64: bin/onnxtrain, lib/libonnxtrain*.so.
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=$PWD/build/aarch64-sysroot
if [ "${1:-}" = --sysroot ]; then sysroot=$(realpath -m "${2:?"--sysroot needs a folder"}"); fi
bash tools/setup.sh

install_tools() {
  local packages=(g++-aarch64-linux-gnu qemu-user-static mmdebstrap)
  dpkg-query -W "${packages[@]}" >/dev/null 2>&1 || apt-get install -y -q --no-install-recommends "${packages[@]}"
}

# Unpacks, without installing, the libraries that setup.sh installs for this machine, less those of the torch backend.
# Links within the folder are made relative.
make_sysroot() {
  local packages mirror
  packages=$(grep -oE '\b(lib[a-z0-9.+-]+|nlohmann-json3|zlib1g)-dev\b' tools/setup.sh |
    grep -vE '^lib(torch|gloo|openblas|omp)-dev$' | paste -sd,)
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -1)
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$packages" bookworm "$sysroot.new" "$mirror"
  (
    cd "$sysroot.new"
    find . -path ./dev -prune -o -type l -lname '/*' -printf '%p %h %l\n' | while read -r link folder target; do
      ln -snf "$(realpath -m --relative-to="$folder" ".$target")" "$link"
    done
  )
  mv "$sysroot.new" "$sysroot"
}

arm() { qemu-aarch64-static -L "$sysroot" "build/aarch64/bin/$1" "${@:2}"; }

install_tools
[ -d "$sysroot" ] || make_sysroot
targets=(onnxtrain_tool onnxtrain_backend_cpu onnx_conformance)
[ -f build/release/CMakeCache.txt ] || cmake --preset release
cmake --build --preset release --target "${targets[@]}"
cmake --preset aarch64 -DONNXTRAIN_SYSROOT="$sysroot"
cmake --build --preset aarch64 --target "${targets[@]}"

work=build/aarch64/check
mkdir -p "$work"
/usr/bin/python3 tools/make_digits.py "$work/train.npz" 2000 1
/usr/bin/python3 tools/make_digits.py "$work/test.npz" 200 2
/usr/bin/python3 tools/make_cnn.py "$work/cnn.onnx"
for optimizer in sgd adamw; do
  train=(--model "$work/cnn.onnx" --data "$work/train.npz" --eval-data "$work/test.npz" --normalize unit --threads 1
    --optimizer "$optimizer" --lr 0.001 --batch-size 32 --max-steps 20 --log-every 1 --overwrite)
  build/release/bin/onnxtrain "${train[@]}" --out "$work/x86_64" >/dev/null
  arm onnxtrain "${train[@]}" --out "$work/aarch64"
  /usr/bin/python3 tools/bench/compare_losses.py "$work"/{x86_64,aarch64}/metrics.jsonl
done
# Exits with 1 where a case fails, as natively.
count_cases() { "$@" --cases /usr/share/libonnx-testdata/data/node --backend cpu | tail -1 || true; }
native=$(count_cases build/release/bin/onnx_conformance)
cross=$(count_cases arm onnx_conformance)
echo "conformance: $native; under qemu: $cross"
[ "$native" = "$cross" ]
