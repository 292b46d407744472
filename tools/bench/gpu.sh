#!/usr/bin/env bash
# Checks and measures the torch backend on a GPU, in less than 8 minutes, with the programs that pack_gpu.sh collects.
#
#   tools/bench/gpu.sh [PACK] [RESULTS]
#
# Needs a python3 with PyTorch. Writes into RESULTS (gpu_results): gpu.json with the outcome of every part and the step
# times beside PyTorch's, and a log of each part. Exit code 1 if a check failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
pack=$(realpath "${1:-build/gpu_pack}")
mkdir -p "${2:-gpu_results}"
results=$(realpath "${2:-gpu_results}")
torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))') || exit 1
export LD_LIBRARY_PATH=$pack/lib:$torch/lib:$(echo "$torch"/../nvidia/*/lib | tr ' ' ':')
export PATH=$pack/bin:$PATH
onnxtrain=$pack/bin/onnxtrain
failed=0
: >"$results/parts.tsv"

# part NAME SECONDS COMMAND…: runs a part within a time and notes how it ended.
part() {
  local name=$1 limit=$2 begin=$SECONDS code=0
  shift 2
  timeout "$limit" "$@" >"$results/$name.log" 2>&1 || code=$?
  [ "$code" = 0 ] || failed=1
  printf '%s\t%s\t%s\n' "$name" "$code" $((SECONDS - begin)) | tee -a "$results/parts.tsv"
  [ "$code" = 0 ] || tail -n 15 "$results/$name.log"
}

# A run that is killed after some updates and resumed ends as one that was not.
check_resume() {
  local flags=(--model "$work/lenet.onnx" --device cuda:0 --max-steps 60 --batch-size 64 --seed 3)
  "$onnxtrain" "${flags[@]}" --out "$work/whole" || return 1
  "$onnxtrain" "${flags[@]}" --out "$work/parts" --max-steps 60 --save-every 20 --max-time 1s
  "$onnxtrain" "${flags[@]}" --out "$work/parts" --resume auto || return 1
  cmp "$work/whole/model.onnx" "$work/parts/model.onnx"
}

# The losses of a run on the GPU and of one on the CPU.
check_against_cpu() {
  local device
  for device in cpu cuda:0; do
    "$onnxtrain" --model "$work/$1.onnx" --device $device --max-steps 20 --batch-size 8 --seed 1 --log-every 1 \
      --out "$work/$1-$device" || return 1
  done
  python3 tools/bench/compare_losses.py "$work/$1-cpu/metrics.jsonl" "$work/$1-cuda:0/metrics.jsonl"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for case in lenet bert4 resnet18; do python3 tools/bench/models.py $case "$work/$case.onnx"; done

export ONNXTRAIN_TEST_DEVICE=cuda:0
part operators 120 tests_ops --gtest_filter='*torch*' --gtest_brief=1
part rules 60 tests_optim --gtest_filter='*torch*' --gtest_brief=1
for case in lenet bert4 resnet18; do part "losses_$case" 60 check_against_cpu $case; done
part resume 60 check_resume
for case in lenet bert resnet50 gpt2 bert_large; do
  part "speed_$case" 120 python3 tools/bench/vs_torch.py --case $case --bf16 --device cuda:0 --backend torch \
    --onnxtrain "$onnxtrain" --no-stock --compile-modes reduce-overhead --rounds 3 --seconds 2 --folder "$work" \
    --json "$results/speed_$case.json"
done
python3 tools/bench/gpu_summary.py "$results"
exit $failed
