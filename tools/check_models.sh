#!/usr/bin/env bash
# Trains every model of ../shared/models for some steps and prints a table: how far the backends are apart, gradients
# against differences in float64, the first and the last loss, what the exported model loses. Fails where a model does.
# Takes a pattern of test names: tools/check_models.sh '*mnist*'
set -euo pipefail
cd "$(dirname "$0")/.."
program=build/release/bin/tests_models
[ -x "$program" ] || { echo "build it first: cmake --preset release && cmake --build --preset release --target tests_models" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
"$program" --gtest_filter="${1:-*}" >"$log" 2>&1 || code=$?
sed -n '/^model  */,/^$/p' "$log" | sed '/^\[/d'
[ "$code" = 0 ] || grep -B1 -A6 'Failure' "$log"
exit "$code"
