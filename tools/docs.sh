#!/usr/bin/env bash
# Builds the site of the documentation, or does what belongs to it.
#
#   tools/docs.sh            build/site: mkdocs-material from PyPI, in a virtual environment of build/; checks all links
#   tools/docs.sh serve      the same at http://localhost:8000, following changes
#   tools/docs.sh pages      writes the generated pages and tables of docs/reference from build/release
#   tools/docs.sh run        runs the commands of all pages: tools/docs/run_commands.py has options
#   tools/docs.sh notebook   runs python/examples/notebook.ipynb with a wheel of build/release and Jupyter from PyPI
#   tools/docs.sh pictures   makes docs/images with Chromium (Debian: chromium) from runs of build/release
set -euo pipefail
cd "$(dirname "$0")/.."

mkdocs() {
  local environment=build/docs-venv
  if [ ! -x $environment/bin/mkdocs ]; then
    python3 -m venv $environment
    $environment/bin/pip -q install 'mkdocs-material>=9.5,<10' 'mkdocs>=1.6,<2'
  fi
  $environment/bin/mkdocs "$@" -f tools/docs/mkdocs.yml
}

run_notebook() {
  local environment=build/notebook-venv folder=build/notebook
  python3 -m venv $environment
  rm -rf $folder && mkdir $folder
  python3 tools/make_wheel.py build/release --out $folder
  $environment/bin/pip -q install --force-reinstall --no-deps $folder/onnxtrain-*.whl
  $environment/bin/pip -q install numpy tqdm ipywidgets nbconvert ipykernel
  /usr/bin/python3 tools/make_examples.py $folder/ex
  cp python/examples/notebook.ipynb $folder
  $environment/bin/jupyter nbconvert --to notebook --execute --inplace $folder/notebook.ipynb
  echo "ran: $folder/notebook.ipynb"
}

case "${1:-build}" in
  build) mkdocs build --strict && echo "written: build/site/index.html" ;;
  serve) mkdocs serve ;;
  pages)
    build/release/bin/onnxtrain reference flags >docs/reference/flags.md
    build/release/bin/onnxtrain reference python >python/onnxtrain/_flags.py
    build/release/bin/op_table >docs/reference/operators.md ;;
  run) shift; tools/docs/run_commands.py "$@" ;;
  notebook) run_notebook ;;
  pictures) tools/docs/pictures.py ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 1 ;;
esac
