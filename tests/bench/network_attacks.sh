#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A coordinator on loopback that is attacked by strangers and by one of its devices, and how long an
# honest operator waits meanwhile: connections that are reset, TLS key updates without end, half-open
# connections from eight addresses, Pongs at full speed. Fails if the coordinator dies.
# usage: tests/bench/network_attacks.sh [DIRECTORY-OF-PROGRAMS [RESETS [SECONDS]]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=${1:-build/release/bin}  # built with the target network_attacks
resets=${2:-100000}
seconds=${3:-10}
work=$(mktemp -d)
coordinator=
trap '[ -z "$coordinator" ] || kill "$coordinator"; rm -rf "$work"' EXIT
state=$work/state
port=$((20000 + RANDOM % 10000))

"$programs/starling-coordinator" init --listen "127.0.0.1:$port" --name 127.0.0.1 "$state" >/dev/null

serve() {  # SETTINGS...
  "$programs/starling-coordinator" serve "$state" "$@" 2>>"$work/log" &
  coordinator=$!
  until "$programs/starling-coordinator" client list --state "$state" >/dev/null 2>&1; do
    kill -0 "$coordinator" || { cat "$work/log"; exit 1; }
    sleep 0.2
  done
}
still_there() {
  kill -0 "$coordinator" 2>/dev/null || { echo 'the coordinator died'; tail "$work/log"; exit 1; }
}

# Without the limit to connections of an address, so that each of them is accepted.
serve --connection.per-second 1000000 --connection.burst 1000000
"$programs/network_attacks" "$state" resets "$resets"
still_there
kill "$coordinator" && wait "$coordinator" || true

serve
for attack in updates half-open; do
  "$programs/network_attacks" "$state" "$attack" "$seconds"
  still_there
done
token=$("$programs/starling-coordinator" token new cam-1 --state "$state" | grep -o 'STJ1-[A-Z2-7]*' | head -1)
"$programs/starling-edge" join "$token" --state "$work/cam-1" >/dev/null
"$programs/network_attacks" "$state" pongs "$seconds" "$work/cam-1"
still_there
