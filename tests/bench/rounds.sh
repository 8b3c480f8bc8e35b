#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rounds without training over mTLS, beside bare TLS that moves the same bytes down and up in the
# same run. A real coordinator; its clients are the client's own machine without data, all in one
# process, so that each side has one of two cores as the bare loop has. Milliseconds, medians:
#   round    from the first plan until every update is validated and in the aggregate
#   bare     blocking OpenSSL, one connection, two processes
#   commit   from there until the next round's first plan: model written, durable, recorded
#   empty    one byte each way over bare TLS
#   peak     of the coordinator's memory (VmHWM)
#   upload   of one client alone: from the answer to its offer until it is in the aggregate; beside
#            the same bytes over bare TLS, and how much of its speed that is
# Builds what it runs, unless told where that is.
# usage: tests/bench/rounds.sh [DIRECTORY-OF-PROGRAMS [CLIENTSxPARAMETERS...]]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if (($# == 0)); then
  (cd "$root" && cmake --preset release >/dev/null &&
    cmake --build --preset release --target starling-coordinator starling-edge rounds_bench)
fi
. "$root/tests/bench/programs.sh"
programs=$(programs_in "${1:-$root/build/release/bin}" starling-coordinator starling-edge rounds_bench)
shift || true
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(2x100000 10x1000000 50x1000000 10x10000000 1x10000000 1x100000000)
work=$(mktemp -d -p "${TMPDIR:-/tmp}")
pid=
stop() {
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
  pid=
}
trap 'stop; rm -rf "$work"' EXIT

coordinator() { "$programs/starling-coordinator" "$@"; }

measure() {
  local clients=${1%x*} parameters=${1#*x} home=$work/$1 port i token
  local features=$((parameters / 1000 - 1))  # and 1000 classes: with the biases so many parameters
  local rounds=${ROUNDS:-$((parameters > 20000000 ? 6 : 21))}
  mkdir -p "$home"
  port=$((20000 + RANDOM % 12000))
  coordinator init "$home/coordinator" --federation rounds --listen "127.0.0.1:$port" \
    --name 127.0.0.1 >/dev/null
  # shellcheck disable=SC2086
  "$programs/starling-coordinator" serve "$home/coordinator" ${SERVE_FLAGS:-} >"$home/log" 2>&1 &
  pid=$!
  until coordinator client list --state "$home/coordinator" >/dev/null 2>&1; do
    kill -0 "$pid" || { cat "$home/log" >&2; return 1; }
    sleep 0.1
  done
  for ((i = 0; i < clients; ++i)); do
    token=$(coordinator token new "client-$i" --state "$home/coordinator" --format json |
      sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
    "$programs/starling-edge" join "$token" --state "$home/edge-$i" >/dev/null
  done
  cat >"$home/job.toml" <<JOB
rounds = $rounds
[model]
kind = "softmax-regression"
[data]
input = [$features]
classes = 1000
[round]
cohort = $clients
min-updates = $clients
wait-for = $clients
deadline = "10m"
[aggregation]
norm-max = "off"
[evaluate]
every = 0
[checkpoint]
keep = 1
JOB
  coordinator run submit "$home/job.toml" --state "$home/coordinator" >/dev/null
  local line
  line=$("$programs/rounds_bench" "$parameters" "$home"/edge-*)
  printf '%s %8s\n' "$line" \
    "$(awk '$1 == "VmHWM:" { printf "%.0f", $2 * 1024 / 1e6 }' "/proc/$pid/status")"
  stop
  rm -rf "$home"
}

printf '%8s %12s %10s %10s %7s %10s %9s %10s %10s %7s %8s\n' clients parameters 'round ms' 'bare ms' \
  ratio 'commit ms' 'empty ms' 'upload ms' 'bare ms' speed 'peak MB'
for one in "${cases[@]}"; do measure "$one"; done
