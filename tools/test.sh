#!/usr/bin/env bash
# Installs the packages, checks style, builds, runs every test, then repeats quick tests under sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."

# Builds test programs with a sanitizer preset and runs them.
run_sanitized() {
  local preset=$1
  shift
  cmake --preset "$preset" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
  cmake --build --preset "$preset" --target "$@"
  for test in "$@"; do "build/$preset/bin/$test" --gtest_brief=1; done
}

bash tools/setup.sh
tools/lint.sh --product
cmake --preset release -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
cmake --build --preset release
results=$PWD/build/release/test-results
rm -rf "$results"
failed=0
GTEST_OUTPUT=xml:$results/ ctest --test-dir build/release --output-on-failure || failed=1
/usr/bin/python3 tools/test_summary.py "$results"
[ $failed = 0 ]

# Code that reads untrusted files.
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  run_sanitized asan tests_frontend_base tests_frontend_graph tests_frontend_data tests_frontend_data_image \
    tests_fuzz_data
# The loader is the code with threads of its own; OpenMP's runtime is not instrumented.
TSAN_OPTIONS=halt_on_error=1 run_sanitized tsan tests_frontend_base tests_frontend_data tests_frontend_data_image
