#!/usr/bin/env bash
# Checks formatting (.clang-format), lines of at most 120 columns, and clang-tidy (.clang-tidy).
#
#   tools/lint.sh [BASE]    runs clang-tidy on the sources that differ from the git revision BASE, but those of tests
#   tools/lint.sh --all     runs clang-tidy on all sources; where all pass, names this commit in tools/lint.base
#   tools/lint.sh --fast    skips clang-tidy
#
# BASE defaults to the commit in tools/lint.base, the last one whose sources all passed.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
status=0

# Lists existing files that match the patterns, untracked ones included.
list() {
  git ls-files --cached --others --exclude-standard --deduplicate -- "$@" |
    while read -r file; do [ ! -f "$file" ] || echo "$file"; done
}

# Lists sources that differ from revision $1; for a header, its source or the first one that includes it.
changed_sources() {
  {
    git diff --name-only --diff-filter=d "$1" -- '*.cc' '*.h'
    git ls-files --others --exclude-standard -- '*.cc' '*.h'
  } | while read -r file; do
    case $file in
      *.cc) echo "$file" ;;
      *) [ -f "${file%.h}.cc" ] && echo "${file%.h}.cc" || git grep -lF "#include \"$file\"" -- '*.cc' | head -1 ;;
    esac
  done | sort -u
}

check_format() { list '*.cc' '*.h' | xargs -n 40 -P "$(nproc)" clang-format --dry-run -Werror; }

# Rows of Markdown tables and lines with a URL cannot be wrapped.
check_line_lengths() {
  ! list '*.cc' '*.h' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' '*.md' | LC_ALL=C.UTF-8 xargs grep -HnE '.{121,}' |
    grep -vE '^[^:]*\.md:[0-9]+:(\||.*https?://)' | sed -E 's/^([^:]*:[0-9]+):.*/\1: longer than 120 columns/'
}

# A clone without the history of BASE checks everything.
chosen_sources() {
  local base=${mode:-$(cat tools/lint.base)}
  if [ "$mode" = --all ] || ! git cat-file -e "$base^{commit}" 2>/dev/null; then
    list '*.cc'
  else
    changed_sources "$base" | grep -v '^tests/'
  fi
}

# Clang 14 cannot parse the headers of libtorch 1.13 as C++20, nor the vector kernels, which GCC's vector extensions and
# Highway's targets make another language to it: sources that include either are left out, and so are those that include
# Apache Arrow, which is optional.
parsable() {
  xargs -r grep -LE '"hwy/foreach_target.h"|<(ATen|arrow|c10|parquet|torch)/' |
    grep -vE '^(backends/torch|tests/ops_autograd|tests/backends/torch_fuse)/'
}

# Checks few sources one by one, and many in the groups of a unity build, whose headers are parsed once per group.
check_tidy() {
  local sources unity=ON
  sources=$(chosen_sources | parsable || true)
  [ -n "$sources" ] || return 0
  [ "$(echo "$sources" | wc -l)" -gt 100 ] || unity=OFF
  cmake --preset release -B build/tidy -DONNXTRAIN_UNITY=$unity -DONNXTRAIN_UNITY_FILES=80 \
    -DONNXTRAIN_PRECOMPILED_HEADERS=OFF >/dev/null
  echo "$sources" | tools/lint_units.py build/tidy/compile_commands.json |
    xargs -rn 1 -P "$(nproc)" clang-tidy -p build/tidy --quiet \
      --header-filter='/(frontend|backends|optim|capi|tools|tests)/[^.]*\.(h|cc)$' 2>/dev/null
}

echo "Formatting"; check_format || status=1
echo "Line lengths"; check_line_lengths || status=1
[ "$mode" = --fast ] || { echo "clang-tidy"; check_tidy || status=1; }
[ "$mode" != --all ] || [ $status != 0 ] || [ -n "$(git status --porcelain)" ] || git rev-parse HEAD >tools/lint.base
exit $status
