#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Memory of a real coordinator beside real devices, by clients and size of the model: the peak
# (VmHWM, which counts mapped spool files as far as they are in memory) and what it holds a second
# after the run (VmRSS). Softmax regression on a few synthetic rows, so that hardly anything but
# transfer and summing happens.
# usage: memory.sh [DIRECTORY-OF-PROGRAMS [CLIENTSxPARAMETERS...]]
# The devices need some four models each: 4x100000000 takes about 8 GB.
# COHORT=K: only K of the connected clients train, so that a difference is the uploads' own.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
programs=$(programs_in "${1:-$root/build/release/bin}" starling-coordinator starling-edge)
shift || true
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(10x10000000 50x1000000 10x100000 500x100000 4x100000000)
rounds=${ROUNDS:-3}
work=$(mktemp -d -p "${TMPDIR:-/tmp}")
processes=()

stop_all() {
  [ ${#processes[@]} -eq 0 ] || kill "${processes[@]}" 2>/dev/null || true
  [ ${#processes[@]} -eq 0 ] || wait "${processes[@]}" 2>/dev/null || true
  processes=()
}
trap 'stop_all; rm -rf "$work"' EXIT

coordinator() { "$programs/starling-coordinator" "$@"; }

is_listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

megabytes() { awk -v key="$2:" '$1 == key { printf "%.0f", $2 * 1024 / 1e6 }' "/proc/$1/status"; }

median_seconds() {
  grep -o '"seconds": *[0-9.eE+-]*' | sed 's/.*: *//' | sort -g |
    awk '{ s[NR] = $1 } END { printf "%.2f", s[int((NR + 1) / 2)] }'
}

measure() {
  local clients=${1%x*} parameters=${1#*x} home=$work/$1 port pid id i token
  local features=$((parameters / 1000))  # and 1000 classes
  local data="synthetic:rows=8,features=$features,classes=1000"
  mkdir -p "$home"
  port=$((20000 + RANDOM % 12000))
  coordinator init "$home/coordinator" --federation memory --listen "127.0.0.1:$port" \
    --name 127.0.0.1 >/dev/null
  # shellcheck disable=SC2086
  "$programs/starling-coordinator" serve "$home/coordinator" ${SERVE_FLAGS:-} >"$home/log" 2>&1 &
  pid=$!
  processes+=("$pid")
  until is_listening "$port"; do
    kill -0 "$pid" || { cat "$home/log" >&2; return 1; }
    sleep 0.1
  done
  for ((i = 0; i < clients; ++i)); do
    token=$(coordinator token new "client-$i" --state "$home/coordinator" --format json |
      sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
    "$programs/starling-edge" join "$token" --state "$home/edge-$i" >/dev/null
    printf '[data]\ndataset = "%s"\n' "$data" >>"$home/edge-$i/edge.toml"
    "$programs/starling-edge" start --state "$home/edge-$i" >"$home/edge-$i/log" 2>&1 &
    processes+=($!)
  done
  cat >"$home/job.toml" <<JOB
rounds = $rounds
[model]
kind = "softmax-regression"
[data]
input = [$features]
classes = 1000
[round]
cohort = ${COHORT:-$clients}
min-updates = ${COHORT:-$clients}
wait-for = $clients
deadline = "10m"
[evaluate]
every = 0
[checkpoint]
keep = 1
JOB
  id=$(coordinator run submit "$home/job.toml" --state "$home/coordinator" --format json |
    sed -n 's/.*"id": *"\{0,1\}\([^",}]*\).*/\1/p')
  coordinator run wait "$id" --state "$home/coordinator" >/dev/null
  sleep 1
  printf '%8d %12d %10s %10s %12s\n' "$clients" "$parameters" "$(megabytes "$pid" VmHWM)" \
    "$(megabytes "$pid" VmRSS)" \
    "$(coordinator run show "$id" --state "$home/coordinator" --format json | median_seconds)"
  stop_all
  rm -rf "$home"
}

printf '%8s %12s %10s %10s %12s\n' clients parameters 'peak MB' 'after MB' 's a round'
for one in "${cases[@]}"; do measure "$one"; done
