#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One or two of eight real peers lose their cable for a minute, with skewed data, in each kind of
# course: what they learn apart must not replace what the majority has. Each run stands beside one
# without the event; printed are the nodes' own accuracies, as means of the last evaluations.
# usage: tests/bench/cable.sh [DIRECTORY-OF-PROGRAMS]
# AWAY (seconds), LATENCY, LOSS (of accuracy, at most) and ALGORITHMS (separated by commas) say otherwise.
# The steps are measured first: a run lasts about twice as long as all until the cable is back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-gossip starling-edge)
away=${AWAY:-60} latency=${LATENCY:-10ms} loss=${LOSS:-0.005}
algorithms=${ALGORITHMS:-dpsgd,ad-psgd,all-reduce}
dataset=${DATASET:-fashion-mnist:/usr/share/datasets/fashion-mnist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {  # NAME NODES-WITHOUT-A-CABLE ALGORITHM STEPS
  local events=()
  if [ -n "$2" ]; then
    printf '[cable]\nat = "20s"\nkind = "partition"\nnodes = "%s"\nfor = "%ss"\n' "$2" "$away" \
      >"$work/events.toml"
    events=(--events "$work/events.toml")
  fi
  rm -rf "$work/$1"
  "$programs/starling-gossip" launch --algorithm "$3" --topology ring --nodes 8 --steps "$4" \
    --model softmax-regression --dataset "$dataset" --partition dirichlet:alpha=0.1 --learning-rate 0.01 \
    --batch-size 16 --evaluate.every $(($4 / 40)) --latency "$latency" "${events[@]}" --out "$work/$1" \
    >"$work/printed" 2>&1 || { tail -n 30 "$work/printed" >&2; exit 1; }
}

seconds_of() {  # NAME
  tail -n 1 "$work/$1/metrics.jsonl" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["virtual_seconds"])'
}

steps_for() {  # SECONDS ALGORITHM
  local steps=400 took=0
  while awk -v took="$took" 'BEGIN { exit took >= 10 }'; do
    steps=$((steps * 4))
    run pace '' "$2" "$steps"
    took=$(seconds_of pace)
  done
  awk -v steps="$steps" -v took="$took" -v seconds="$1" 'BEGIN { printf "%d", steps * seconds / took }'
}

status=0
for algorithm in ${algorithms//,/ }; do
  steps=$(steps_for $((2 * (20 + away))) "$algorithm")
  run calm '' "$algorithm" "$steps"
  for pulled in 3 2,6; do
    run pulled "$pulled" "$algorithm" "$steps"
    python3 - "$work" "$algorithm, $pulled without a cable for $away s" "$loss" <<'PY' || status=1
import json, pathlib, sys
work, what, most = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])

def last(name):
    lines = [json.loads(line) for line in open(work / name / "metrics.jsonl")]
    return (sum(line["eval_accuracy"] for line in lines[-10:]) / 10, lines[-1]["virtual_seconds"])

calm, calm_seconds = last("calm")
pulled, seconds = last("pulled")
print(f"{what}: {pulled:.4f} in {seconds:.0f} s; undisturbed {calm:.4f} in {calm_seconds:.0f} s")
sys.exit(pulled < calm - most)
PY
  done
done
exit $status
