#!/usr/bin/env bash
# Fuzzes the readers of untrusted files with libFuzzer under the address and undefined behavior sanitizers, one after
# the other. Needs clang and libclang-rt-dev. Fails if a reader fails; the inputs that did it are in build/fuzz/found.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]    SECONDS per target (default 60); all targets of tests/fuzz/make_seeds.py
#
# Keep a minimized input as tests/fuzz/inputs/TARGET/NAME: build/fuzz/bin/fuzz -minimize_crash=1 -runs=100000 FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
if ! command -v clang++ >/dev/null; then
  echo "$0: clang++ is missing: apt-get install clang libclang-rt-14-dev" >&2
  exit 1
fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz
/usr/bin/python3 tests/fuzz/make_seeds.py build/fuzz/seeds
[ $# -gt 0 ] || set -- $(ls build/fuzz/seeds)

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
status=0
for target in "$@"; do
  echo "fuzzing $target for $seconds s"
  mkdir -p "build/fuzz/corpus/$target" "build/fuzz/found"
  ONNXTRAIN_FUZZ_TARGET=$target build/fuzz/bin/fuzz -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$target-" \
    "build/fuzz/corpus/$target" "build/fuzz/seeds/$target" >"build/fuzz/$target.log" 2>&1 ||
    { status=1; tail -60 "build/fuzz/$target.log"; }
  grep -E '^stat::number_of_executed_units' "build/fuzz/$target.log" || true
done
exit $status
