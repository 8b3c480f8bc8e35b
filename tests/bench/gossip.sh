#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast networks are simulated: node-steps/s of D-PSGD by nodes, degree, model and threads, with
# D-PSGD in NumPy beside it where that is installed (python3-numpy). Quote ratios within one run.
# usage: gossip.sh [DIRECTORY-OF-PROGRAMS]           (some five minutes on 2 cores; the largest takes 13 GiB)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
program=$(programs_in "${1:-$root/build/release/bin}" starling-gossip)/starling-gossip

# "node-steps/s, accuracy of the mean model, peak memory"; nothing but the end is evaluated.
run() {
  local steps=$1 log
  shift
  log=$(mktemp)
  /usr/bin/env time -f '%M' "$program" simulate --steps "$steps" --evaluate.every "$steps" \
    --evaluate.nodes 1 --format json "$@" >"$log" 2>"$log.err"
  awk -v kib="$(tail -n 1 "$log.err")" '{
    match($0, /"node_steps_per_second":[0-9.E+-]*/)
    speed = substr($0, RSTART + 24, RLENGTH - 24)
    n = split($0, parts, "\"eval_accuracy_mean_model\":")
    split(parts[n], accuracy, /[,}]/)
    printf "%8.0f node-steps/s  accuracy %.4f  %6.0f MiB\n", speed, accuracy[1], kib / 1024
  }' "$log"
  rm -f "$log" "$log.err"
}

peer() {
  /usr/bin/python3 -c 'import numpy' 2>/dev/null || { echo 'not installed'; return; }
  OMP_NUM_THREADS=$(nproc) OPENBLAS_NUM_THREADS=$(nproc) \
    /usr/bin/python3 "$root/tests/bench/peer_numpy.py" "$@"
}

echo '== softmax regression, batch 32, exponential graph, beside NumPy in turn'
for _ in 1 2 3; do
  printf '%-28s %s\n' '1,024 nodes' "$(run 400 --nodes 1024)"
  printf '%-28s %s\n' '1,024 nodes, NumPy' "$(peer 1024 exponential 60)"
done
printf '%-28s %s\n' '10,000 nodes' "$(run 100 --nodes 10000)"
printf '%-28s %s\n' '10,000 nodes, NumPy' "$(peer 10000 exponential 5)"
echo '== the same accuracy after 300 steps'
printf '%-28s %s\n' '1,024 nodes' "$(run 300 --nodes 1024)"
printf '%-28s %s\n' '1,024 nodes, NumPy' "$(peer 1024 exponential 300)"
echo '== by nodes'
for nodes in 16 64 256 1024 4096 16384; do
  printf '%-28s %s\n' "$nodes nodes" "$(run $((400000 / nodes)) --nodes $nodes)"
done
printf '%-28s %s\n' '100,000 nodes' "$(run 5 --nodes 100000 \
  --dataset synthetic:rows=200000,features=784,classes=10 --evaluate.dataset none)"
echo '== by degree, 1,024 nodes'
for topology in one-peer-exponential ring torus:32x32 exponential random-regular:d=32; do
  printf '%-28s %s\n' "$topology" "$(run 300 --nodes 1024 --topology $topology)"
done
echo '== by threads, 1,024 nodes'
for threads in 1 2 4; do
  printf '%-28s %s\n' "$threads" "$(run 300 --nodes 1024 --threads $threads)"
done
echo '== 2NN'
printf '%-28s %s\n' '16 nodes' "$(run 400 --nodes 16 --model.kind mlp)"
printf '%-28s %s\n' '1,024 nodes' "$(run 10 --nodes 1024 --model.kind mlp)"
