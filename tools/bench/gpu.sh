#!/usr/bin/env bash
# Checks and measures the torch backend on a GPU, in minutes, with the programs that pack_gpu.sh collects.
#
#   tools/bench/gpu.sh [--dry-run] [ARCHIVE] [RESULTS]
#
# Needs a python3 with PyTorch (or PYTHON names one); ARCHIVE is build/gpu_pack.tar.gz, or a build folder. Writes into
# RESULTS (gpu_results): gpu.json with the outcome of every part and the step times beside PyTorch's, and a log of each
# part. Exit code 1 if a part failed. Checks run beside each other, as many as there are CPUs, while PyTorch compiles
# its models; then the models are timed, one by one. DEVICE=cpu runs all of it without a GPU; CASES="lenet bert_large"
# names the models to time, "bert_large:32" one with its batch; CHECKS= runs no checks. --dry-run goes through every
# part on the CPU in about a minute: with LeNet alone, few updates, the operators named Relu, few generated kernels, and
# nudged runs although no loss needs them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
device=${DEVICE:-cuda:0}
cases=${CASES-lenet bert resnet50:128 gpt2 bert_large:32} checks=${CHECKS-yes}
python=${PYTHON:-python3}
loss_cases="lenet bert4 resnet18" language=bert4 operators="*" generated="*" updates=20 tolerance=1e-4 shards=8
speed=(--rounds 2 --seconds 1 --only-bf16 --compile-modes reduce-overhead)
if [ "${1:-}" = --dry-run ]; then
  shift
  device=cpu cases=lenet loss_cases=lenet language=lenet operators="*Relu*" updates=4 tolerance=-1 shards=2
  generated=FuseGraph.BiasAndGelu:FuseGraph.*Norm*
  speed=(--rounds 1 --seconds 0.1 --bf16 --compile-modes "")
fi
archive=${1:-build/gpu_pack.tar.gz}

fail() {
  echo "gpu.sh: $*" >&2
  exit 1
}

[ -e "$archive" ] || fail "there is no $archive: make it with tools/bench/pack_gpu.sh"
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null) ||
  fail "$python has no PyTorch"
reason=$("$python" -c 'import sys, torch; torch.zeros(1, device=sys.argv[1])' "$device" 2>&1) ||
  fail "PyTorch cannot use $device: ${reason##*$'\n'}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -d "$archive" ]; then
  pack=$(realpath "$archive") libraries=
else
  tar -C "$work" -xzf "$archive" || exit 1
  pack=$work/gpu_pack
  built=$(cat "$pack/torch_version") found=$("$python" -c 'import torch; print(torch.__version__)')
  [ "${built%.*}" = "$(echo "$found" | cut -d. -f1,2)" ] ||
    fail "$archive is built for PyTorch $built, and $python has $found"
  libraries=$pack/lib:$torch/lib:$(echo "$torch"/../nvidia/*/lib | tr ' ' ':')
fi
mkdir -p "${2:-gpu_results}"
results=$(realpath "${2:-gpu_results}")
: >"$results/parts.tsv"

# Our programs alone see these libraries: PyTorch brings its own.
ours() {
  LD_LIBRARY_PATH=$libraries timeout 120 "$pack/bin/$1" "${@:2}"
}

# part NAME COMMAND…: runs a part and notes how it ended.
part() {
  local name=$1 begin=$SECONDS code=0
  shift
  "$@" >"$results/$name.log" 2>&1 || code=$?
  printf '%s\t%s\t%s\n' "$name" "$code" $((SECONDS - begin)) | tee -a "$results/parts.tsv"
  [ "$code" = 0 ] || grep -vA1 ': Skipped$' "$results/$name.log" | tail -n 15
}

# check NAME COMMAND…: runs a part beside others.
check() {
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  OMP_NUM_THREADS=2 part "$@" &
}

train() {
  ours onnxtrain --model "$work/$1.onnx" --batch-size 8 --seed 1 --log-every 1 "${@:2}"
}

# Loss, outputs, gradients and all values in between of one step, within 1e-3 or what rounding does to them.
check_gradients() {
  ours onnxtrain compare --model "$work/$1.onnx" --batch-size 4 --seed 1 --backend torch --device "$device"
}

# The losses of a run on the GPU and of one of the cpu backend. Where they differ, two runs from nudged weights tell
# how far rounding moves them: ReLU and BatchNorm turn it into 5e-3 of ResNet-18's gradients, in PyTorch too. There,
# the losses tell less than check_gradients: that the bias of the last layer is not trained remains below it.
check_losses() {
  local cpu=$work/$1-cpu gpu=$work/$1-gpu
  train "$1" --backend cpu --max-steps "$updates" --out "$cpu" &&
    train "$1" --backend torch --device "$device" --max-steps "$updates" --out "$gpu" || return 1
  "$python" tools/bench/compare_losses.py "$cpu/metrics.jsonl" "$gpu/metrics.jsonl" "$tolerance" && return
  for ulps in 16 -16; do
    "$python" tools/bench/models.py "$1" "$work/$1$ulps.onnx" 0 '' $ulps &&
      train "$1$ulps" --backend cpu --max-steps "$updates" --out "$work/$1$ulps" || return 1
  done
  "$python" tools/bench/compare_losses.py {"$cpu","$gpu"}/metrics.jsonl 1e-4 "$work/$1"{16,-16}/metrics.jsonl
}

# A run that ends early and is resumed has the losses of one that does not; each process times cuDNN's plans anew, so
# that bits may differ.
check_resume() {
  local flags=(lenet --backend torch --device "$device" --data "$work/digits.npz")
  "$python" -c 'import numpy as n, sys; r = n.random.default_rng(0)
n.savez(sys.argv[1], x=r.random((320, 1, 28, 28), n.float32), y=r.integers(0, 10, 320))' "$work/digits.npz" || return 1
  train "${flags[@]}" --max-steps 40 --out "$work/whole" &&
    train "${flags[@]}" --max-steps 15 --save-every 15 --out "$work/parts" &&
    train "${flags[@]}" --max-steps 40 --resume auto --out "$work/parts" &&
    "$python" tools/bench/compare_losses.py "$work"/whole/metrics.jsonl "$work"/parts/metrics.jsonl
}

# TF32 rounds factors to 10 bits.
check_tf32() {
  local flags=("$language" --backend torch --device "$device" --max-steps 10)
  [ "$device" = cpu ] && return
  train "${flags[@]}" --out "$work/f32" && train "${flags[@]}" --mixed-precision tf32 --out "$work/tf32" &&
    "$python" tools/bench/compare_losses.py "$work/f32/metrics.jsonl" "$work/tf32/metrics.jsonl" 1e-2
}

# Accumulation and recomputation change no loss beyond rounding.
check_memory_flags() {
  local flags=("$language" --backend torch --device "$device" --max-steps 10)
  train "${flags[@]}" --out "$work/plain" || return 1
  for flag in "--micro-batch-size 2" "--gradient-checkpointing all"; do
    # shellcheck disable=SC2086 # a flag and its value
    train "${flags[@]}" $flag --out "$work/saving" --overwrite &&
      "$python" tools/bench/compare_losses.py "$work/plain/metrics.jsonl" "$work/saving/metrics.jsonl" || return 1
  done
}

# Part I of $shards of the operator table.
check_operators() {
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$1 ours tests_ops --gtest_brief=1 --gtest_filter="$operators"
}

check_generated() {
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$1 ours tests_backends_torch_fuse --gtest_brief=1 \
    --gtest_filter="$generated"
}

# compare_speed CASE[:BATCH] FLAGS…
compare_speed() {
  local case=${1%:*} batch=
  [ "$case" = "$1" ] || batch="--batch ${1#*:}"
  # shellcheck disable=SC2086 # a flag and its value
  LD_LIBRARY_PATH= timeout 150 "$python" tools/bench/vs_torch.py --case "$case" $batch --device "$device" \
    --backend torch --no-stock --onnxtrain "$work/onnxtrain" "${speed[@]}" --folder "$work" "${@:2}"
}

run_checks() {
  for case in $loss_cases; do "$python" tools/bench/models.py $case "$work/$case.onnx" & done
  for ((i = 0; i < shards; ++i)); do check "operators_$i" check_operators $i; done
  for ((i = 0; i < shards; ++i)); do check "generated_$i" check_generated $i; done
  check rules ours tests_optim --gtest_brief=1 \
    --gtest_filter='Rules*:*Replay*:*Schedule*:*Loss*:Average*-TorchLosses.*:TorchSchedules.*'
  wait
  for case in $loss_cases; do check "gradients_$case" check_gradients $case; done
  for case in $loss_cases; do check "losses_$case" check_losses $case; done
  check resume check_resume
  check memory_flags check_memory_flags
  check tf32 check_tf32
}

printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/bin/onnxtrain "$@"\n' "$libraries" "$pack" >"$work/onnxtrain"
chmod +x "$work/onnxtrain"
export ONNXTRAIN_TEST_DEVICE=$device
for case in $cases; do check "prepare_${case%:*}" compare_speed "$case" --prepare; done
[ -z "$checks" ] || run_checks
wait
for case in $cases; do part "speed_${case%:*}" compare_speed "$case" --json "$results/speed_${case%:*}.json"; done
"$python" tools/bench/gpu_summary.py "$results"
