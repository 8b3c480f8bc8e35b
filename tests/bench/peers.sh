#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Launched peers on a sparse graph: steps a second once all run, and of each peer its links, its memory
# and the processor time of a step. While many processes start, some are taken for dead, and dialled to
# find out; such links end after 90 s without use. Fails where a peer has more than LINKS after 240 s.
# usage: tests/bench/peers.sh [DIRECTORY-OF-PROGRAMS]
# NODES, TOPOLOGY, LINKS, SECONDS_MEASURED, FEATURES (of a softmax regression with 10 classes) say
# otherwise. State directories are in memory, since a launch writes them durably.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-gossip starling-edge)
topology=${TOPOLOGY:-ring} seconds=${SECONDS_MEASURED:-20} features=${FEATURES:-64}
work=$(mktemp -d)
launcher=
trap '[ -z "$launcher" ] || kill "$launcher" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm
echo "| peers | steps/s | start, s | links a peer: mean (most) | idle ones ended | memory a peer, MB | processor ms a step and peer |"
echo "|---|---|---|---|---|---|---|"
for nodes in ${NODES:-16 32 64 128}; do
  "$programs/starling-gossip" launch --topology "$topology" --nodes "$nodes" --steps 1000000 \
    --dataset "synthetic:rows=$((nodes * 100)),features=$features,classes=10" \
    --evaluate.dataset none --evaluate.every 50 --out "$work/$nodes" >"$work/printed" 2>&1 &
  launcher=$!
  python3 - "$launcher" "$nodes" "$seconds" "$work/$nodes/metrics.jsonl" "${LINKS:-4}" <<'PY' || { tail -n 5 "$work/printed"; exit 1; }
import json, os, sys, time
launcher, nodes, measured, metrics, links_max = int(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4], int(sys.argv[5])

def peers():
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == launcher:
                    found.append(entry)
        except OSError:
            pass
    return found

def established():  # inodes of sockets
    with open("/proc/net/tcp") as table:
        return {line.split()[9] for line in table.readlines()[1:] if line.split()[3] == "01"}

def links(pid, sockets):  # but the one with the issuer
    count = -1
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            name = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:  # closed meanwhile
            continue
        count += name.startswith("socket:") and name[8:-1] in sockets
    return count

def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1e3

def seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

def evaluations():  # (step, seconds since the first peer was started)
    try:
        with open(metrics) as lines:
            return [(m["step"], m["wall_seconds"]) for m in map(json.loads, lines)]
    except (OSError, ValueError):
        return []

def wait(done, what):
    deadline = time.time() + 300
    while not done():
        os.kill(launcher, 0)
        if time.time() > deadline:
            sys.exit(f"not within 300 s: {what}")
        time.sleep(0.1)

began = time.time()
wait(lambda: len(evaluations()) > 2, "a hundred steps")
first, processes = evaluations()[-1], peers()
before = {pid: seconds(pid) for pid in processes}
wait(lambda: evaluations()[-1][1] > first[1] + measured, f"{measured} s more")
last = evaluations()[-1]
worked = sum(seconds(pid) - before[pid] for pid in processes)
def count_links():
    sockets = established()
    return [links(pid, sockets) for pid in processes]

counts = count_links()
pss = sum(map(memory, processes)) / nodes
done = last[0] - first[0]
pace = done / (last[1] - first[1])
start = evaluations()[1][1] - evaluations()[1][0] / pace
left = counts
while max(left) > links_max and time.time() < began + 240:
    time.sleep(1)
    left = count_links()
print(f"| {nodes} | {pace:.0f} | {start:.1f} | {sum(counts) / nodes:.1f} ({max(counts)}) | "
      f"{sum(left) / nodes:.1f} ({max(left)}) | {pss:.1f} | {1e3 * worked / done / nodes:.2f} |", flush=True)
if len(processes) != nodes or max(left) > links_max:
    sys.exit(f"{len(processes)} of {nodes} peers run, with up to {max(left)} links: expected {links_max}")
PY
  kill "$launcher"
  wait "$launcher" || true
  launcher=
done
