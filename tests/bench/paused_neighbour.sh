#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a stopped peer (SIGSTOP) costs its neighbours on a ring in memory: the largest resident size
# of every other process while one is paused, beside the largest before. Fails if a neighbour grew by
# more than two models and SLACK megabytes.
# usage: tests/bench/paused_neighbour.sh [DIRECTORY-OF-PROGRAMS]
# NODES, TOPOLOGY, PAUSE (seconds), HIDDEN (widths of the model's layers), SLACK say otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-gossip starling-edge)
nodes=${NODES:-6} topology=${TOPOLOGY:-ring} pause=${PAUSE:-40} hidden=${HIDDEN:-2048,768}
work=$(mktemp -d)
launcher=
trap '[ -z "$launcher" ] || kill "$launcher" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cat >"$work/events.toml" <<TOML
[one-sleeps]
at = "30s"
kind = "pause"
nodes = "1"
for = "${pause}s"
TOML
"$programs/starling-gossip" launch --topology "$topology" --nodes "$nodes" --steps 1000000 \
  --model mlp --hidden "$hidden" --dataset "synthetic:rows=$((nodes * 100)),features=784,classes=10" \
  --evaluate.dataset none --evaluate.every 1000000 --events "$work/events.toml" --out "$work/out" \
  >"$work/printed" 2>&1 &
launcher=$!
python3 - "$launcher" "$nodes" "$topology" "$pause" "$hidden" "${SLACK:-12}" <<'PY' || { tail -n 20 "$work/printed"; exit 1; }
import os, re, sys, time
launcher, nodes, topology = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
pause, slack = float(sys.argv[4]), float(sys.argv[6])
widths = [784, *map(int, sys.argv[5].split(",")), 10]
model = sum(4 * (a + 1) * b for a, b in zip(widths, widths[1:])) / 1e6

def field(pid, name):
    with open(f"/proc/{pid}/status") as status:
        return next(line.split()[1] for line in status if line.startswith(name + ":"))

def peers():  # by number
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline") as line:
                number = re.search(r"node-?0*(\d+)", line.read())
            if number and int(field(entry, "PPid")) == launcher:
                found[int(number[1])] = int(entry)
        except (OSError, StopIteration):
            pass
    return found

before, during, stopped_at = {}, {}, None
deadline = time.time() + 60 + pause
while time.time() < deadline:
    try:
        os.kill(launcher, 0)
        now = peers()
        sizes = {node: int(field(pid, "VmRSS")) / 1e3 for node, pid in now.items()}
        asleep = 1 in now and field(now[1], "State") == "T"
    except (OSError, StopIteration):
        break
    if asleep and stopped_at is None:
        stopped_at = time.time()
    if stopped_at is not None and not asleep:
        break
    into = before if stopped_at is None else during
    for node, size in sizes.items():
        into[node] = max(into.get(node, 0), size)
    time.sleep(0.2)
if not during or len(during) < nodes:
    sys.exit("the pause was not seen")
print(f"{topology} of {nodes}, a model of {model:.1f} MB, node 1 stopped for {pause:g} s")
worst = 0
for node in sorted(during):
    grown = during[node] - before[node]
    near = node in (2, nodes)
    if node != 1 and near:
        worst = max(worst, grown)
    print(f"  node {node}{' (paused)' if node == 1 else ' (its neighbour)' if near else ''}: "
          f"{before[node]:.0f} MB before, {during[node]:.0f} MB during: {grown:+.1f} MB")
print(f"a neighbour grew by {worst:.1f} MB at most, {worst / model:.2f} models")
sys.exit(worst > 2 * model + slack)
PY
