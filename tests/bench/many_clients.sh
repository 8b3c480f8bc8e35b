#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real coordinator beside many connected clients, a few processes of them (many_clients.cpp): seconds of
# a round whose training does nothing, with all clients and with 100 in the cohort; two runs at a time,
# with disjoint clients (half of them hold data of another shape) and with shared ones; memory and processor
# time of the coordinator. "seconds" are those of `run show`, from the plans to the last update; "wall" is
# the run's length divided by its rounds, so with the commits and the openings of rounds. Builds what it
# runs, unless told where that is.
# usage: many_clients.sh [DIRECTORY-OF-PROGRAMS [CLIENTS...]], each 200 or more: half of them are a cohort of 100
# ROUNDS (default 30; of a cohort of 100: ROUNDS_OF_100, 200), PROCESSES (4). A client takes some 10
# files of 4 KB in /dev/shm, where there is one, so that only the coordinator waits for the disk.
set -euo pipefail
ulimit -n "$(ulimit -Hn)"  # a connection is a descriptor; the coordinator does the same for itself

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if (($# == 0)); then
  (cd "$root" && cmake --preset release >/dev/null &&
    cmake --build --preset release --target starling-coordinator many_clients)
fi
. "$root/tests/bench/programs.sh"
programs=$(programs_in "${1:-$root/build/release/bin}" starling-coordinator many_clients)
shift || true
sizes=("$@")
[ ${#sizes[@]} -gt 0 ] || sizes=(1000 5000)
for clients in "${sizes[@]}"; do
  if ! [[ $clients =~ ^[0-9]+$ ]] || ((clients < 200)); then
    echo "CLIENTS must be 200 or more, not $clients: the half of them must hold a cohort of 100" >&2
    exit 2
  fi
done
rounds=${ROUNDS:-30} rounds_of_100=${ROUNDS_OF_100:-200} processes=${PROCESSES:-4}
work=$(mktemp -d)
devices=$(mktemp -d -p "$([ -d /dev/shm ] && echo /dev/shm || echo "$work")")
hub=
drivers=()

stop_drivers() {
  [ ${#drivers[@]} -eq 0 ] || kill "${drivers[@]}" 2>/dev/null || true
  [ ${#drivers[@]} -eq 0 ] || wait "${drivers[@]}" 2>/dev/null || true
  drivers=()
}
stop_hub() {
  [ -z "$hub" ] || kill "$hub" 2>/dev/null || true
  [ -z "$hub" ] || wait "$hub" 2>/dev/null || true
  hub=
}
trap 'stop_drivers; stop_hub; rm -rf "$work" "$devices"' EXIT

is_listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
kilobytes() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$hub/status"; }
processor_seconds() {  # of the process $1
  awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / ticks }' "/proc/$1/stat"
}
difference() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b - a }'; }

serve() {
  # One machine plays all devices: without the limits to connections from one address.
  "$programs/starling-coordinator" serve "$work/hub" --connection.per-second 1000000 --connection.burst 1000000 \
    --connection.handshakes-per-address 256 --enrol.tries-per-second 1000000 --enrol.tries-burst 1000000 \
    2>>"$work/log" &
  hub=$!
  until is_listening "$port"; do
    kill -0 "$hub" || { tail "$work/log" >&2; return 1; }
    sleep 0.1
  done
}

for_each_process() {  # COMMAND...: with the number of the process, its first client and their count
  local i share=$((clients / processes))
  for ((i = 0; i < processes; ++i)); do
    "$@" "$i" $((1 + i * share)) "$((i + 1 < processes ? share : clients - i * share))"
  done
}
join() { "$programs/many_clients" join "$work/hub" "$devices" "$2" "$3"; }
start() {
  "$programs/many_clients" start "$devices" "$2" "$3" "$((halves && $1 % 2 ? 30 : 20))" >"$work/driver-$1" &
  drivers+=($!)
}
connect_all() {  # 1: half of the clients hold rows of 30 features, 0: all of 20
  halves=$1
  rm -f "$work"/driver-*
  for_each_process start
  until [ "$(cat "$work"/driver-* | grep -c 'all connected')" = "$processes" ]; do
    for driver in "${drivers[@]}"; do kill -0 "$driver"; done
    sleep 0.1
  done
}

submit() {  # COHORT FEATURES ROUNDS: prints the run's number
  cat >"$work/job.toml" <<JOB
rounds = $3
[model]
kind = "softmax-regression"
[data]
input = [$2]
classes = 10
[round]
cohort = $1
min-updates = $1
wait-for = $1
deadline = "10m"
[evaluate]
every = 0
[checkpoint]
keep = 1
JOB
  "$programs/starling-coordinator" run submit "$work/job.toml" --state "$work/hub" --format json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'
}

measure() {  # NAME, then as for submit, of each run
  local name=$1 before ids=() id
  shift
  before=$(processor_seconds "$hub")
  echo 5 >"/proc/$hub/clear_refs"  # VmHWM begins again
  while (($#)); do
    ids+=("$(submit "$1" "$2" "$3")")
    shift 3
  done
  for id in "${ids[@]}"; do
    "$programs/starling-coordinator" run wait "$id" --state "$work/hub" >/dev/null
  done
  local used peak
  used=$(difference "$before" "$(processor_seconds "$hub")")
  peak=$(kilobytes VmHWM)
  for id in "${ids[@]}"; do
    "$programs/starling-coordinator" run show "$id" --state "$work/hub" --format json >"$work/run-$id"
  done
  python3 - "$name" "$used" "$peak" "${ids[@]/#/$work/run-}" <<'PY'
import json, sys
from datetime import datetime
name, used, peak, *files = sys.argv[1:]
runs = [json.load(open(file)) for file in files]
total = sum(len(run["rounds"]) for run in runs)
for run in runs:
    committed = [r for r in run["rounds"] if r["state"] == "committed"]
    if len(committed) != len(run["rounds"]): sys.exit(f"{name}: rounds were abandoned")
    seconds = sorted(r["seconds"] for r in committed)
    at = lambda share: seconds[min(len(seconds) - 1, int(share * len(seconds)))]
    length = (datetime.fromisoformat(run["ended"][:-1]) - datetime.fromisoformat(run["started"][:-1])).total_seconds()
    print(f"{name:<26} {committed[0]['updates']:7} {len(seconds):7} {at(0.5):8.3f} {at(0.99):8.3f} "
          f"{length / len(seconds):8.3f} {float(used) / total:13.3f} {int(peak) / 1024:8.1f}")
PY
}

for clients in "${sizes[@]}"; do
  rm -rf "$work/hub" "${devices:?}"/*
  port=$((20000 + RANDOM % 12000))
  "$programs/starling-coordinator" init "$work/hub" --federation crowd --listen "127.0.0.1:$port" --name 127.0.0.1 \
    >/dev/null
  serve
  begin=$(date +%s.%N)
  for_each_process join
  printf '%d clients joined in %.1f s (coordinator: %s s of processor time)\n' "$clients" \
    "$(difference "$begin" "$(date +%s.%N)")" "$(processor_seconds "$hub")"
  stop_hub

  serve
  idle=$(kilobytes VmRSS)
  begin=$(date +%s.%N)
  before=$(processor_seconds "$hub")
  connect_all 0
  printf 'connected in %.1f s (coordinator: %s s of processor time); memory %.1f MB, %.1f KB a client\n' \
    "$(difference "$begin" "$(date +%s.%N)")" "$(difference "$before" "$(processor_seconds "$hub")")" \
    "$(awk -v k="$(kilobytes VmRSS)" 'BEGIN { print k / 1024 }')" \
    "$(awk -v a="$idle" -v b="$(kilobytes VmRSS)" -v n="$clients" 'BEGIN { print (b - a) / n }')"
  half=$((clients / 2))
  printf '%-26s %7s %7s %8s %8s %8s %13s %8s\n' '' cohort rounds 'p50 s' 'p99 s' 'wall s' 'processor s' 'peak MB'
  measure 'all' "$clients" 20 "$rounds"
  measure '100 of them' 100 20 "$rounds_of_100"
  measure 'two runs, shared, all' "$clients" 20 "$rounds" "$clients" 20 "$rounds"
  measure 'two runs, shared, 100' 100 20 "$rounds_of_100" 100 20 "$rounds_of_100"
  measure 'half' "$half" 20 "$rounds"
  stop_drivers
  connect_all 1
  measure 'two runs, disjoint halves' "$half" 20 "$rounds" "$half" 30 "$rounds"
  measure 'two runs, disjoint, 100' 100 20 "$rounds_of_100" 100 30 "$rounds_of_100"
  printf 'coordinator at the end: %.1f MB\n' "$(awk -v k="$(kilobytes VmRSS)" 'BEGIN { print k / 1024 }')"
  stop_drivers
  stop_hub
done
