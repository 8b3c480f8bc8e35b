#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of gossip/README.md: final accuracy by algorithm and topology beside all-reduce. 16
# nodes with the 2NN on Fashion-MNIST, classes divided by balanced-dirichlet, equal local steps, the
# rate falling by a cosine. Every row has the rates of one grid for seed 1, doubled or halved until
# the best is none of its ends; the best is run with the other seeds.
# usage: algorithms.sh [DIRECTORY-OF-PROGRAMS]       (half an hour on one core; STEPS, SEEDS, RATES,
#        ALPHAS and JOBS, how many cells are made at once, to change)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
. "$root/tests/bench/final_accuracy.sh"
program=$(programs_in "${1:-$root/build/release/bin}" starling-gossip)/starling-gossip
steps=${STEPS:-1000}
seeds=${SEEDS:-1 2 3}
rates=${RATES:-0.2 0.4}
alphas=${ALPHAS:-0.1 0.01}
jobs=${JOBS:-$(nproc)}
rate_least=0.005  # whoever diverges at this one diverges

# algorithm, topology, further flags
rows=(
  'all-reduce|-|'
  'dpsgd|ring|'
  'dpsgd|exponential|'
  'dpsgd|one-peer-exponential|'
  'dpsgd|base-graph:k=1|'
  'dpsgd|epidemic:s=4|'
  'sgp|one-peer-exponential|'
  'gradient-tracking|exponential|'
  'gradient-tracking|base-graph:k=1|'
  'd2|ring|--mixing lazy'
  'qg-dsgdm|ring|'
  'relaysgd|path|'
  'choco|torus:4x4|--ratio 0.05'
  'ad-psgd|hypercube|'
  'push-sum|exponential|'
  'diloco|one-peer-exponential|--local-steps 10'
)

# Final accuracy, mean over the nodes.
accuracy() {
  local algorithm=$1 topology=$2 flags=$3 alpha=$4 rate=$5 seed=$6 graph=()
  [ "$topology" = - ] || graph=(--topology "$topology")
  # shellcheck disable=SC2086  # flags are words
  final_accuracy "$work" "$program" --nodes 16 --algorithm "$algorithm" "${graph[@]}" $flags \
    --model.kind mlp --schedule cosine --steps "$steps" --evaluate.every "$steps" --seed "$seed" \
    --partition "balanced-dirichlet:alpha=$alpha,seed=$seed" --learning-rate "$rate"
}

# "mean ± largest distance from it (rate)" over the seeds.
cell() {
  local row=("$@") best=diverged best_rate='' rate value values=()
  local least=${rates%% *} most=${rates##* } tried="$rates"
  while :; do
    for rate in $tried; do
      value=$(accuracy "${row[@]}" "$rate" "${seeds%% *}") || return
      [ "$value" != diverged ] || continue
      if [ "$best" = diverged ] || awk "BEGIN { exit !($value > $best) }"; then
        best=$value best_rate=$rate
      fi
    done
    if [ "$best" = diverged ] || [ "$best_rate" = "$least" ]; then
      tried=$(awk "BEGIN { print $least / 2 }") least=$tried
    elif [ "$best_rate" = "$most" ]; then
      tried=$(awk "BEGIN { print 2 * $most }") most=$tried
    else
      break
    fi
    awk "BEGIN { exit !($least >= $rate_least) }" || break
  done
  [ "$best" != diverged ] || { printf 'diverges'; return; }
  values=("$best")
  for seed in ${seeds#* }; do
    [ "$seed" != "${seeds%% *}" ] || continue
    value=$(accuracy "${row[@]}" "$best_rate" "$seed") || return
    values+=("$value")
  done
  printf '%s\n' "${values[@]}" | awk -v rate="$best_rate" '
    $1 == "diverged" { bad = 1 }
    { v[NR] = $1; sum += $1 }
    END {
      if (bad) { printf "diverges for a seed"; exit }
      mean = sum / NR
      for (i = 1; i <= NR; ++i) { d = v[i] - mean; if (d < 0) d = -d; if (d > most) most = d }
      printf "%.1f ± %.1f (%s)", mean, most, rate
    }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for index in "${!rows[@]}"; do
  IFS='|' read -r algorithm topology flags <<<"${rows[index]}"
  for alpha in $alphas; do
    start_cell "$work" "$jobs" "$work/$index-$alpha" \
      cell "$algorithm" "$topology" "$flags" "$alpha"
  done
done
end_cells "$work"

printf '| algorithm | topology |'; printf ' alpha = %s |' $alphas; printf '\n|---|---|'; printf -- '---|%.0s' $alphas; printf '\n'
for index in "${!rows[@]}"; do
  IFS='|' read -r algorithm topology flags <<<"${rows[index]}"
  printf '| %s%s | %s |' "$algorithm" "${flags:+ \`$flags\`}" "${topology/#-/everybody}"
  for alpha in $alphas; do
    printf ' %s |' "$(<"$work/$index-$alpha")"
  done
  printf '\n'
done
