#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One or two of eight real peers lose their cable for a minute, with skewed data, in each kind of
# course: what they learn apart must not replace what the majority has. Each run stands beside one
# without the event; printed are the nodes' own accuracies, as means of the last evaluations.
# usage: tests/bench/cable.sh [DIRECTORY-OF-PROGRAMS]
# AWAY (seconds), STEPS, LATENCY, LOSS (of accuracy, at most) say otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(cd "${1:-build/release/bin}" && pwd)
away=${AWAY:-60} steps=${STEPS:-4000} latency=${LATENCY:-10ms} loss=${LOSS:-0.005}
dataset=${DATASET:-fashion-mnist:/usr/share/datasets/fashion-mnist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {  # NAME NODES-WITHOUT-A-CABLE ALGORITHM TOPOLOGY
  local events=()
  if [ -n "$2" ]; then
    printf '[cable]\nat = "20s"\nkind = "partition"\nnodes = "%s"\nfor = "%ss"\n' "$2" "$away" \
      >"$work/events.toml"
    events=(--events "$work/events.toml")
  fi
  rm -rf "$work/$1"
  "$programs/starling-gossip" launch --algorithm "$3" --topology "$4" --nodes 8 --steps "$steps" \
    --model softmax-regression --dataset "$dataset" --partition dirichlet:alpha=0.1 --learning-rate 0.01 \
    --batch-size 16 --evaluate.every 50 --latency "$latency" "${events[@]}" --out "$work/$1" \
    >"$work/printed" 2>&1 || { tail -n 30 "$work/printed" >&2; exit 1; }
}

status=0
for course in 'dpsgd ring' 'dpsgd exponential' 'ad-psgd ring' 'all-reduce ring' 'diloco-all ring'; do
  read -r algorithm topology <<<"$course"
  run calm '' "$algorithm" "$topology"
  for pulled in 3 2,6; do
    run pulled "$pulled" "$algorithm" "$topology"
    python3 - "$work" "$algorithm on a $topology, $pulled without a cable for $away s" "$loss" <<'PY' || status=1
import json, pathlib, sys
work, what, most = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def last(name):
    lines = [json.loads(line) for line in open(work / name / "metrics.jsonl")]
    tail = lines[-10:]
    return (sum(l["eval_accuracy"] for l in tail) / len(tail), lines[-1]["virtual_seconds"])
calm, calm_seconds = last("calm")
pulled, seconds = last("pulled")
print(f"{what}: {pulled:.3f} beside {calm:.3f} undisturbed; {seconds:.0f} s beside {calm_seconds:.0f}")
sys.exit(pulled < calm - most)
PY
  done
done
exit $status
