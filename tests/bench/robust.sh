#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of gossip/README.md on members that lie: final accuracy of the honest nodes by topology,
# attack and robust rule. 16 nodes of which one lies, D-PSGD, an MLP of 32 hidden units on
# Fashion-MNIST, 500 steps with the rate falling by a cosine, classes divided by PARTITION. Mean of
# the seeds with the largest distance from it.
# usage: robust.sh [DIRECTORY-OF-PROGRAMS]       (five minutes on two cores; STEPS, SEEDS, RATE, PARTITION, TOPOLOGIES
#        and JOBS, how many runs at once, to change)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
. "$root/tests/bench/final_accuracy.sh"
program=$(programs_in "${1:-$root/build/release/bin}" starling-gossip)/starling-gossip
steps=${STEPS:-500}
seeds=${SEEDS:-1 2 3}
rate=${RATE:-0.2}
partition=${PARTITION:-balanced-dirichlet:alpha=0.1}
topologies=${TOPOLOGIES:-ring torus:4x4 exponential complete}
jobs=${JOBS:-$(nproc)}
rules='off clip remove'
attacks='none sign-flip alie outlier'

# Final accuracy, mean over the honest nodes.
accuracy() {
  local topology=$1 rule=$2 attack=$3 seed=$4 separator=:
  [[ $partition != *:* ]] || separator=,
  final_accuracy "$work" "$program" --nodes 16 --topology "$topology" --model.kind mlp \
    --model.hidden 32 --schedule cosine --steps "$steps" --evaluate.every "$steps" \
    --learning-rate "$rate" --seed "$seed" --partition "$partition${separator}seed=$seed" \
    --robust "$rule" --attack "$attack"
}

cell() {
  local seed value values=()
  for seed in $seeds; do
    value=$(accuracy "$@" "$seed") || return
    values+=("$value")
  done
  printf '%s\n' "${values[@]}" | awk '
    $1 == "diverged" { bad = 1 }
    { v[NR] = $1; sum += $1 }
    END {
      if (bad) { printf "diverges"; exit }
      mean = sum / NR
      for (i = 1; i <= NR; ++i) { d = v[i] - mean; if (d < 0) d = -d; if (d > most) most = d }
      printf "%.1f ± %.1f", mean, most
    }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for topology in $topologies; do
  for rule in $rules; do
    for attack in $attacks; do
      start_cell "$work" "$jobs" "$work/$topology-$rule-$attack" \
        cell "$topology" "$rule" "$attack"
    done
  done
done
end_cells "$work"

printf '| topology | rule | no attack | sign-flip | alie | outlier |\n|---|---|---|---|---|---|\n'
for topology in $topologies; do
  for rule in $rules; do
    printf '| %s | %s |' "$topology" "$rule"
    for attack in $attacks; do printf ' %s |' "$(<"$work/$topology-$rule-$attack")"; done
    printf '\n'
  done
done
