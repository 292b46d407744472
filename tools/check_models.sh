#!/usr/bin/env bash
# Trains every model of ../shared/models for some steps and prints a table: differences between the backends, gradients
# against float64 finite differences, first and last loss, loss of the exported model. Fails if a model fails.
# Takes a pattern of test names: tools/check_models.sh '*mnist*'
set -euo pipefail
cd "$(dirname "$0")/.."
program=build/release/bin/tests_models
if [ ! -x "$program" ]; then
  echo "$program: not found; build it: cmake --build --preset release --target tests_models" >&2
  exit 1
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
"$program" --gtest_filter="${1:-*}" >"$log" 2>&1 || code=$?
sed -n '/^model  */,/^$/p' "$log" | sed '/^\[/d'
[ "$code" = 0 ] || grep -B1 -A6 'Failure' "$log"
exit "$code"
