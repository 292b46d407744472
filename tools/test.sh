#!/usr/bin/env bash
# Installs the packages, builds and checks.
#
#   tools/test.sh              everything that must hold before a change lands: style, all tests, and the tests of
#                              readers and of the loader under sanitizers
#   tools/test.sh --quick      style and the tests labelled `quick`: for a change, after a build
#   tools/test.sh --nightly    what takes hours: the above, clang-tidy of all sources, fuzzing, all mutations and
#                              kills, the examples with other frameworks, the documentation, the sweep over
#                              exporters
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
case $mode in
  '' | --quick | --nightly) ;;
  *) echo "$0: $mode: expected --quick, --nightly or nothing" >&2 && exit 1 ;;
esac
results=$PWD/build/release/test-results

step() { printf '== %s (%d s)\n' "$1" $SECONDS; }

# A fresh folder compiles groups of sources at once.
build() {
  local fresh=()
  [ -f build/release/CMakeCache.txt ] || fresh=(-DONNXTRAIN_UNITY=ON)
  cmake --preset release "${fresh[@]}" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
  cmake --build --preset release
}

# Runs tests in parallel, and names those that failed and the reasons for skips. Takes arguments of ctest.
run_tests() {
  local failed=0
  rm -rf "$results"
  ctest --test-dir build/release -j "$(nproc)" --output-on-failure "$@" || failed=1
  /usr/bin/python3 tools/test_summary.py "$results"
  return $failed
}

# Builds test programs with a sanitizer preset and runs them.
run_sanitized() {
  local preset=$1
  shift
  cmake --preset "$preset" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
  cmake --build --preset "$preset" --target "$@"
  for test in "$@"; do "build/$preset/bin/$test" --gtest_brief=1; done
}

# Code that reads untrusted files, and the loader, which is the code with threads of its own; OpenMP's runtime is not
# instrumented.
check_with_sanitizers() {
  step "Address and undefined behavior sanitizers"
  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    run_sanitized asan tests_frontend_base tests_frontend_graph tests_frontend_data tests_frontend_data_image \
      tests_fuzz_data
  step "Thread sanitizer"
  TSAN_OPTIONS=halt_on_error=1 run_sanitized tsan tests_frontend_base tests_frontend_data tests_frontend_data_image
}

# The examples of the Python package need frameworks that Debian does not have, or has in other versions.
check_examples() {
  python3 -m venv build/examples
  build/examples/bin/pip install -q torch keras tensorflow-cpu onnx scikit-learn skl2onnx
  ONNXTRAIN_PYTHON=$PWD/build/examples/bin/python build/release/bin/tests_capi --gtest_filter='*Examples*'
}

# The commands of all pages, the links of the site, and the notebook. make_gpt.py needs a newer PyTorch than Debian's.
check_documentation() {
  python3 -m venv build/pages
  build/pages/bin/pip install -q torch numpy onnx onnxscript pillow
  tools/docs/run_commands.py --gpt-python "$PWD/build/pages/bin/python"
  tools/docs.sh
  tools/docs.sh notebook
}

# Everything of PyTorch; docs/internals/exports.md has the environments of the other frameworks.
sweep_exports() {
  python3 -m venv build/exports
  build/exports/bin/pip install -q torch torchvision transformers==4.57.6 optimum-onnx accelerate timm torch_geometric \
    onnx onnxscript
  /usr/bin/python3 tools/exports_sweep.py build/sweep --python torch=build/exports/bin/python
}

if [ "$mode" = --quick ]; then
  tools/lint.sh --fast
  step "Build"
  build
  step "Tests"
  run_tests -L quick
  exit
fi
bash tools/setup.sh
step "Style"
if [ "$mode" = --nightly ]; then tools/lint.sh --all; else tools/lint.sh; fi
step "Build"
build
step "Tests"
[ "$mode" != --nightly ] || export ONNXTRAIN_LONG_TESTS=1
run_tests
step "Commands of the README"
tools/docs/run_commands.py README.md docs/getting-started.md
check_with_sanitizers
if [ "$mode" = --nightly ]; then
  step "Examples"
  check_examples
  step "Documentation"
  check_documentation
  step "Fuzzing"
  tools/fuzz.sh 300
  step "Exports"
  sweep_exports
fi
step "Done"
