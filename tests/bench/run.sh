#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the benchmarks, with PyTorch beside them where it is installed (python3-torch and
# libopenblas0-pthread). Quote ratios within one run: absolute figures move between machines and days.
# usage: tests/bench/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=build/bench
examples/install_packages.sh build test data
cmake -S . -B "$build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D STARLING_BENCHMARKS=ON \
  -D STARLING_TESTS=ON >/dev/null
cmake --build "$build" --target starling_training_bench starling_aggregation_bench starling_settle_bench \
  starling-coordinator

# One thread each; and OpenBLAS does not know every processor, so its best kernels are named for it.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
if grep -q avx512f /proc/cpuinfo; then export OPENBLAS_CORETYPE=SKYLAKEX; fi
peer=
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then peer="/usr/bin/python3 tests/bench/peer_torch.py"; fi

printf '\n== training and summing\n'
"$build/bin/starling_training_bench" --benchmark_min_time=1 2>/dev/null
"$build/bin/starling_aggregation_bench" --benchmark_min_time=0.5 2>/dev/null
"$build/bin/starling_settle_bench" --benchmark_min_time=0.5 2>/dev/null
if [ -n "$peer" ]; then
  printf '\n== the same training in PyTorch, samples/s, one thread\n'
  for kind in softmax 2nn cnn; do
    for batch in 10 32 128; do
      printf '%-8s batch %-4s %s\n' "$kind" "$batch" "$($peer train "$kind" "$batch")"
    done
  done
fi

printf '\n== simulated FedAvg: 100 clients, 10 a round, E=1, B=10, 2NN, IID\n'
job=$(mktemp)
trap 'rm -f "$job"' EXIT
cat >"$job" <<'TOML'
rounds = 60
[train]
batch-size = 10
[evaluate]
every = 0
[data]
dataset = "fashion-mnist:/usr/share/datasets/fashion-mnist"
TOML
for threads in 1 2; do
  "$build/bin/starling-coordinator" simulate "$job" --clients 100 --threads "$threads" --format json \
    2>/dev/null | tr ',' '\n' | sed -n 's/.*"seconds":\([0-9.eE+-]*\).*/\1/p' | sort -g |
    awk -v t="$threads" '{ s[NR] = $1 } END { printf "Starling, %d thread(s): %.4f s a round (median of %d)\n", t, s[int((NR + 1) / 2)], NR }'
done
if [ -n "$peer" ]; then echo "PyTorch, 1 thread: $($peer fedavg 20) s a round"; fi
