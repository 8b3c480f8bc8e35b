#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/embedded_client in a federation over mTLS: two of them with their own measurements, a run that
# completes with the line through all of them, one that leaves and comes back, and both end at SIGTERM.
# usage: embedded_client_test.sh EXAMPLE DIRECTORY-OF-PROGRAMS
set -euo pipefail

example=$(realpath "$1")
job=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../examples/embedded_client/job.toml
export PATH=$(realpath "$2"):$PATH
work=$(mktemp -d)
coordinator=
declare -a clients=()
stop_all() {
  kill -KILL $coordinator "${clients[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}
trap 'stop_all; rm -rf "$work"' EXIT
trap 'tail -n 20 "$work"/*.log >&2' ERR
cd "$work"

# y = 2 x - 1, each client on one side of zero.
awk 'BEGIN {
  for (x = 0.05; x < 1.02; x += 0.05) { print x, 2 * x - 1 >"right"; print -x, -2 * x - 1 >"left" }
}'
"$example" --initial initial.safetensors
submit() {
  id=$(starling-coordinator run submit "$job" --initial "$work/initial.safetensors" \
    --state coordinator --format json | sed -n 's/.*"id": *"\{0,1\}\([^",}]*\).*/\1/p')
}

port=$((20000 + RANDOM % 12000))
starling-coordinator init coordinator --federation line --listen "127.0.0.1:$port" --name 127.0.0.1 >/dev/null
starling-coordinator serve coordinator >coordinator.log 2>&1 &
coordinator=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do kill -0 $coordinator; sleep 0.1; done
for side in left right; do
  token=$(starling-coordinator token new "$side" --state coordinator --format json |
    sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
  "$example" "$side-state" "$side" "$token" >"$side.log" 2>&1 &
  clients+=($!)
done
submit
starling-coordinator run wait "$id" --state coordinator >/dev/null
starling-coordinator run export "$id" --to line.safetensors --state coordinator >/dev/null
read -r offset slope <<<"$(tail -c 8 line.safetensors | od -An -f)"
awk -v a="$offset" -v b="$slope" 'BEGIN { exit !((a + 1) ^ 2 < 1e-4 && (b - 2) ^ 2 < 1e-4) }' ||
  { echo "the line is $offset + $slope x; it should be -1 + 2 x" >&2; exit 1; }
grep -q "the line's trainer: fit; 2 tensors, 2 values; 20 rows" left.log

kill "${clients[0]}"
wait "${clients[0]}"
"$example" left-state left >>left.log 2>&1 &    # joined already
clients[0]=$!
submit
starling-coordinator run wait "$id" --state coordinator >/dev/null
for pid in "${clients[@]}"; do kill "$pid"; done
for pid in "${clients[@]}"; do wait "$pid"; done
echo "run completed: y = $offset + $slope x"
