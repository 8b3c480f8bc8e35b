#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A coordinator that is killed three times in the middle of a run, each time as soon as a round has
# been held since: how long after it listens again the next update arrives. A device's waits between
# dials grow while nobody answers; they must not go on growing from one restart to the next.
# usage: tests/bench/restarts.sh [DIRECTORY-OF-PROGRAMS]
# DOWN (seconds from a kill to the restart), LIMIT (seconds, for each of the three) say otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator starling-edge)
down=${DOWN:-3} limit=${LIMIT:-10}
work=$(mktemp -d)
hub=
pids=()
finish() {
  { for pid in $hub "${pids[@]}"; do kill -9 "$pid" || true; done; wait || true; } 2>/dev/null
  rm -rf "$work"
}
trap finish EXIT
cd "$work"
coordinator() { "$programs/starling-coordinator" "$@" --state hub; }
serve() {  # appends to hub.log; each start has a part of its own there
  "$programs/starling-coordinator" serve hub 2>>hub.log >/dev/null &
  hub=$!
  wait_for_line 'listens on'
}
wait_for_line() {  # TEXT, after the last "starts" line
  for _ in $(seq 600); do
    if sed '0,/^-- start '"$starts"'$/d' hub.log | grep -qF -- "$1"; then return; fi
    sleep 0.1
  done
  echo "nobody said '$1'; the end of the log:" >&2
  tail -n 30 hub.log >&2
  exit 1
}
at() {  # TEXT: when it was first said since the last start, in seconds
  date -d "$(sed '0,/^-- start '"$starts"'$/d' hub.log | grep -F -m 1 -- "$1" | cut -d ' ' -f 1)" +%s.%N
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$programs/starling-coordinator" init hub --listen "127.0.0.1:$port" --name 127.0.0.1 >/dev/null
starts=0
echo "-- start $starts" >>hub.log
serve
for k in 1 2 3; do
  token=$(coordinator token new "client-$k" | grep -o 'STJ1-[A-Z2-7]*' | head -1)
  "$programs/starling-edge" join "$token" --state "client-$k" >/dev/null
  "$programs/starling-edge" start --state "client-$k" \
    --data.dataset synthetic:rows=3000,features=12,classes=4 \
    --data.partition "iid:index=$k,of=3" 2>"client-$k.log" &
  pids+=($!)
done
cat >job.toml <<'TOML'
name = "restarts"
rounds = 1000000
[model]
kind = "softmax-regression"
[round]
cohort = 3
min-updates = 3
wait-for = 3
[evaluate]
dataset = "synthetic:rows=500,features=12,classes=4:test"
TOML
coordinator run submit job.toml >/dev/null
wait_for_line 'updates'
failed=0
for starts in 1 2 3; do
  kill -9 "$hub"
  wait "$hub" 2>/dev/null || true
  sleep "$down"
  echo "-- start $starts" >>hub.log
  serve
  wait_for_line 'updates'
  seconds=$(awk -v a="$(at 'listens on')" -v b="$(at 'updates')" 'BEGIN { printf "%.1f", b - a }')
  echo "restart $starts, after $down s: the next round's updates arrived $seconds s after it listened"
  awk -v s="$seconds" -v l="$limit" 'BEGIN { exit !(s > l) }' && failed=1
done
exit $failed
