#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A ring of real peers falls into two halves for a minute and heals. The halves train apart; then the
# rate is 0, so that what is left between them is theirs alone: after the healing the consensus
# distance must fall per step by the ring's second eigenvalue again, and every peer must finish.
# usage: tests/bench/partition.sh [DIRECTORY-OF-PROGRAMS]
# NODES (even), AWAY (seconds), STEPS, LATENCY, TOLERANCE (of the factor, relative) say otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-gossip starling-edge)
nodes=${NODES:-16} away=${AWAY:-60} steps=${STEPS:-16000} latency=${LATENCY:-5ms}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/events.toml" <<TOML
[two-halves]
step = 500
kind = "partition"
nodes = "1-$((nodes / 2))"
for = "${away}s"
TOML
"$programs/starling-gossip" launch --topology ring --nodes "$nodes" --steps "$steps" \
  --dataset "synthetic:rows=$((nodes * 100)),features=20,classes=4" --partition shards:per-part=1 \
  --schedule step --step-every 2000 --gamma 0 --evaluate.every 20 \
  --latency "$latency" --events "$work/events.toml" --out "$work/out" >"$work/printed" 2>&1 || {
  tail -n 30 "$work/printed" >&2
  exit 1
}
grep 'steps: ' "$work/printed"
python3 - "$work/out" "$nodes" "$away" "${TOLERANCE:-0.01}" <<'PY'
import json, math, pathlib, sys
out, nodes = pathlib.Path(sys.argv[1]), int(sys.argv[2])
away, tolerance = float(sys.argv[3]), float(sys.argv[4])
lines = [json.loads(line) for line in open(out / "metrics.jsonl")]
left = max(l["consensus_distance"] for l in lines if l["step"] > 2000)
apart = [l for l in lines if l["step"] >= 500 and l["consensus_distance"] > 0.9 * left]
# From where the halves are half of what they were apart, while float has digits left.
fall = [l for l in lines if l["step"] > apart[-1]["step"] and l["nodes_up"] == nodes
        and left * 1e-4 < l["consensus_distance"] < left / 2]
first, last = fall[0], fall[-1]
factor = (last["consensus_distance"] / first["consensus_distance"]) ** (1 / (last["step"] - first["step"]))
slem = (1 + 2 * math.cos(2 * math.pi / nodes)) / 3
print(f"apart for {away:g} s, to step {apart[-1]['step']}: consensus distance {left:.4g} at its end, "
      f"{lines[-1]['consensus_distance']:.3g} at the run's")
print(f"falls by {factor:.5f} a step (steps {first['step']} to {last['step']}); "
      f"the ring's second eigenvalue is {slem:.5f}")
sys.exit(abs(factor - slem) > tolerance * slem)
PY
echo 'healed as predicted'
