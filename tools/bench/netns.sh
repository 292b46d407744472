#!/bin/bash
# Runs a command as the ranks of a distributed training on N "machines": network namespaces, each with its share of the
# CPUs and a link of the given rate to a switch between them. Needs root and iproute2.
#
#   tools/bench/netns.sh 2 1gbit build/release/bin/onnxtrain --model x.onnx --data d.npz --out runs/a
#
# Every rank gets the variables of torchrun, and GLOO_SOCKET_IFNAME. What rank 0 prints is printed; what the others do
# goes to stderr. CUT_AFTER=S cuts the link of the last rank after S seconds. Ends with the exit code of the first rank
# that failed, by number.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: ${0##*/} N RATE COMMAND…" >&2
  exit 1
fi
ranks=$1 rate=$2
shift 2
name=ot$$ # of the namespaces and devices
cleanup() {
  set +e
  for pid in $(jobs -p); do kill "$pid"; done
  wait
  for r in $(seq 0 $((ranks - 1))); do ip netns del "$name-$r"; done
  ip netns del "$name-hub"
} 2>/dev/null
trap cleanup EXIT
trap 'exit 130' INT TERM

shape() { # namespace, device: 1 ms of data may be sent at once, as a switch would
  ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 256kb latency 50ms
}

ip netns add "$name-hub"
ip netns exec "$name-hub" ip link add hub type bridge
ip netns exec "$name-hub" ip link set hub up
for r in $(seq 0 $((ranks - 1))); do
  ip netns add "$name-$r"
  ip -n "$name-hub" link add "p$r" type veth peer name net0 netns "$name-$r"
  ip -n "$name-hub" link set "p$r" master hub up
  ip -n "$name-$r" addr add "10.77.0.$((r + 1))/24" dev net0
  ip -n "$name-$r" link set net0 up
  ip -n "$name-$r" link set lo up
  shape "$name-$r" net0
  shape "$name-hub" "p$r"
done

mapfile -t cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
width=$((${#cpus[@]} / ranks))
[ "$width" -gt 0 ] || width=1
pids=()
for r in $(seq 0 $((ranks - 1))); do
  own=$(IFS=,; echo "${cpus[*]:$((r * width % ${#cpus[@]})):$width}")
  export RANK=$r WORLD_SIZE=$ranks LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500
  export GLOO_SOCKET_IFNAME=net0
  if [ "$r" = 0 ]; then
    ip netns exec "$name-$r" taskset -c "$own" "$@" &
  else
    ip netns exec "$name-$r" taskset -c "$own" "$@" >&2 &
  fi
  pids+=($!)
done
if [ -n "${CUT_AFTER:-}" ]; then
  (sleep "$CUT_AFTER" && ip -n "$name-hub" link set "p$((ranks - 1))" down) &
fi
code=0
for pid in "${pids[@]}"; do
  wait "$pid" || { ended=$?; [ "$code" != 0 ] || code=$ended; }
done
exit "$code"
