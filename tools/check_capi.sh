#!/usr/bin/env bash
# Runs the tests of the C interface under checkers of memory and threads:
#
#   tools/check_capi.sh [memcheck] [asan] [tsan]     # memcheck unless others are named
#
# memcheck is Debian's valgrind on build/release. asan (with undefined behaviour) and tsan build the library, cpu and
# the tests with these sanitizers, half an hour each on two cores. tsan runs loops in one thread: the barriers of the
# library of OpenMP are not instrumented. Left out are tests whose program the checker does not run: Python, and the
# one in C.
set -euo pipefail
cd "$(dirname "$0")/.."
export ASAN_OPTIONS=halt_on_error=1:detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tools/sanitizers/tsan.supp

run_memcheck() {
  cmake --build --preset release --target tests_capi
  OMP_THREAD_LIMIT=1 valgrind --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    --error-exitcode=1 build/release/bin/tests_capi --gtest_brief=1 --gtest_filter=-CApi.TrainsFrom*
}

# With a preset, and a limit of threads or none.
run_sanitized() {
  cmake --preset "$1" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >/dev/null
  cmake --build --preset "$1" --target tests_capi
  env "${@:2}" "build/$1/bin/tests_capi" --gtest_brief=1 --gtest_filter=-CApi.TrainsFromPython:*TrainAndLoadBack*
}

[ $# -gt 0 ] || set -- memcheck
for checker in "$@"; do
  case $checker in
    memcheck) run_memcheck ;;
    asan) run_sanitized asan ;;
    tsan) run_sanitized tsan OMP_THREAD_LIMIT=1 ;;
    *) echo "$checker: expected memcheck, asan or tsan" >&2; exit 1 ;;
  esac
done
