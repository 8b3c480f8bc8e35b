#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Edges that lose their coordinator: it is killed for a while and started again; they train on by
# gossip and merge. One of them is killed in the middle and goes on with what it kept. Beside it the
# same job undisturbed. A device that was revoked before stays out.
# usage: tests/bench/fallback.sh [DIRECTORY-OF-PROGRAMS]
# EDGES, AWAY, AFTER (seconds), ROUNDS, KILL_AT, DATASET, EVALUATION, TOLERANCE (points) say otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator starling-edge)
edges=${EDGES:-8} away=${AWAY:-120} after=${AFTER:-10} rounds=${ROUNDS:-150} kill_at=${KILL_AT:-10}
dataset=${DATASET:-fashion-mnist:/usr/share/datasets/fashion-mnist}
evaluation=${EVALUATION:-fashion-mnist:/usr/share/datasets/fashion-mnist:test}
tolerance=${TOLERANCE:-0.5}
work=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if [[ ${KEEP:-} ]]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap finish EXIT
cd "$work"

free_ports() {  # so many
  python3 - "$1" <<'PY'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in sockets])
PY
}
coordinator() { "$programs/starling-coordinator" "$@" --state hub; }
serve() {
  "$programs/starling-coordinator" serve hub >>hub.log 2>&1 &
  hub=$!
  pids+=("$hub")
  until coordinator client list >/dev/null 2>&1; do sleep 0.2; done
}
wait_for_line() {  # FILE TEXT SECONDS
  for _ in $(seq $(($3 * 5))); do
    if grep -qF -- "$2" "$1"; then return; fi
    sleep 0.2
  done
  echo "nobody said '$2' in $1:" >&2
  tail -n 30 "$1" >&2
  exit 1
}
job() {  # NAME TOPOLOGY
  cat >"$1.toml" <<TOML
name = "$1"
seed = 3
rounds = $rounds
[model]
kind = "softmax-regression"
[train]
batch-size = 32
learning-rate = ${RATE:-0.02}
[round]
cohort = $edges
min-updates = $edges
wait-for = $edges
deadline = "120s"
reconnect-grace = "60s"
[evaluate]
dataset = "$evaluation"
[fallback]
topology = "$2"
after = "${after}s"
TOML
}
accuracy() {  # FILE: of the last round, in percent
  sed -n 's/.*accuracy \([0-9.]*\) .*/\1/p' "$1" | tail -n 1 | awk '{ printf "%.2f", 100 * $1 }'
}

start_edge() {  # K; its process is then the last of pids
  "$programs/starling-edge" start --state "edge-$1" --data.dataset "$dataset" \
    --data.partition "dirichlet:alpha=1,index=$(($1 > edges ? 1 : $1)),of=$edges" \
    --gossip.listen "127.0.0.1:${ports[$1]}" --connection.backoff-max 2s >>"edge-$1.log" 2>&1 &
  pids+=($!)
}

read -ra ports < <(free_ports $((edges + 2)))
coordinator_address=127.0.0.1:${ports[0]}
"$programs/starling-coordinator" init hub --federation trial --listen "$coordinator_address" \
  --name 127.0.0.1 >/dev/null
serve
for k in $(seq $((edges + 1))); do
  token=$(coordinator token new "edge-$k" --role peer --address "127.0.0.1:${ports[$k]}" --format json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])')
  "$programs/starling-edge" join "$token" --state "edge-$k" >/dev/null
  start_edge "$k"
  if [[ $k -eq 1 ]]; then restarted=$!; fi
done
revoked=edge-$((edges + 1))
for k in $(seq "$edges"); do wait_for_line "edge-$k.log" "connected to federation" 60; done

job fallback ring
job plain ""
coordinator run submit fallback.toml >/dev/null
coordinator run log 1 --follow >fallback.txt 2>&1 || true &
wait_for_line fallback.txt "[round 2/$rounds]" 300
wait_for_line "$revoked.log" "selected" 300
wait_for_line "$revoked.log" "should the coordinator be gone" 60
coordinator client revoke "$revoked" >/dev/null  # it keeps the roster that names it
wait_for_line fallback.txt "[round $kill_at/$rounds]" 300
kill -9 "$hub"
wait "$hub" 2>/dev/null || true
echo "killed after round $kill_at; away for $away s"
sleep "$((away / 2))"
kill -9 "$restarted"
wait "$restarted" 2>/dev/null || true
start_edge 1
sleep "$((away - away / 2 - 1))"
heard=$(python3 -c 'import json, sys
gossip = json.load(open(sys.argv[1]))["gossip"]
print(gossip["neighbours"], gossip["expected"])' "$revoked/status.json")
sleep 1
serve
coordinator run wait 1 >fallback.txt
coordinator run submit plain.toml --wait >plain.txt
merged=$(cat edge-*.log | grep -c "merging what was trained by gossip" || true)
steps=$(cat edge-*.log | sed -n 's/.* \([0-9]*\) steps were trained by gossip.*/\1/p' | sort -n | tr '\n' ' ')
undisturbed=$(accuracy plain.txt)
disturbed=$(accuracy fallback.txt)
members=$(coordinator gossip show --format json |
  python3 -c 'import json, sys; print(*[m["name"] for m in json.load(sys.stdin)["members"]])')
printf 'undisturbed %s %%, with the fallback %s %% after %s rounds\n' \
  "$undisturbed" "$disturbed" "$rounds"
printf 'merged by %s of %s; steps by gossip: %s\nmembers: %s\n' "$merged" "$edges" "$steps" "$members"
[[ $merged -eq $edges ]]
grep -q "steps trained by gossip for run 1 were kept" edge-1.log || { echo "edge-1 kept nothing"; exit 1; }
if [[ " $members " == *" $revoked "* ]]; then echo "$revoked is a member"; exit 1; fi
grep -q "training on by gossip" "$revoked.log" || echo "$revoked did not even try"
printf 'heard by %s meanwhile: %s of %s neighbours; lines of others that refused it: %s\n' "$revoked" $heard \
  "$(cat edge-*.log | grep -c "refused .* not-a-member" || true)"
[[ $heard == "0 "* ]] || { echo "$revoked was let in"; exit 1; }
if grep -q "merging what was trained" "$revoked.log"; then echo "$revoked merged"; exit 1; fi
python3 -c "import sys; sys.exit(abs($undisturbed - $disturbed) > $tolerance)" ||
  { echo "more than $tolerance points apart"; exit 1; }
