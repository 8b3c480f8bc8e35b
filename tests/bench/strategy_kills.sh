#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run of each strategy over mTLS on loopback, with a coordinator and four edges: once undisturbed,
# once with `kill -9` of random processes at random moments, and once simulated. All three must give
# the same model in every round and the same state of the strategy at the end; the edges' own states
# must be the same with kills as without.
# usage: tests/bench/strategy_kills.sh [--kills N] [--rounds N] [--seed N] [--strategy NAME ...]
#                                      [--undisturbed-only] [DIRECTORY-OF-PROGRAMS]
# Without --strategy: fedadam, scaffold and diloco; with --undisturbed-only all eleven.
# STEPS (local steps a round) says how long a round takes; KEEP=1 keeps the directories.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kills=30 rounds=12 seed=1 undisturbed_only= strategies=() programs=build/release/bin
while (($#)); do
  case $1 in
    --kills) kills=$2 && shift ;;
    --rounds) rounds=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --strategy) strategies+=("$2") && shift ;;
    --undisturbed-only) undisturbed_only=1 ;;
    *) programs=$1 ;;
  esac
  shift
done
. tests/bench/programs.sh
programs=$(programs_in "$programs" starling-coordinator starling-edge)
if ((${#strategies[@]} == 0)); then
  strategies=(fedadam scaffold diloco)
  if [[ $undisturbed_only ]]; then
    strategies=(fedavg fedprox fedavgm fedadagrad fedadam fedyogi fednova scaffold qfedavg feddyn
      diloco)
  fi
fi
programs=$(cd "$programs" && pwd)
edges=4 steps=${STEPS:-16000} data=synthetic:rows=2000,features=100,classes=5
partition=dirichlet:alpha=0.5
work=$(mktemp -d)
declare -A pid_of=()
stop_all() {
  { for pid in "${pid_of[@]}"; do kill -9 "$pid" || true; done; wait || true; } 2>/dev/null
  pid_of=()
}
finish() {
  stop_all
  if [[ ${KEEP:-} ]]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap finish EXIT

# --- processes of the federation in the current directory ---------------------------------------

coordinator() { "$programs/starling-coordinator" "$@" --state hub; }
start() {  # hub, or client-K
  if [[ $1 == hub ]]; then
    "$programs/starling-coordinator" serve hub >>hub.log 2>&1 &
  else
    "$programs/starling-edge" start --state "$1" --data.dataset "$data" \
      --data.partition "$partition,index=${1#client-},of=$edges" --backoff-max 2s \
      >>"$1.log" 2>&1 &
  fi
  pid_of[$1]=$!
}
kill_and_restart() {
  { kill -9 "${pid_of[$1]}"; wait "${pid_of[$1]}" || true; } 2>/dev/null
  start "$1"
}
wait_for_hub() {
  for _ in $(seq 300); do
    if coordinator client list >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  echo "the coordinator does not answer:" >&2
  tail -n 20 hub.log >&2
  exit 1
}
start_federation() {  # DIRECTORY
  mkdir "$work/$1"
  cd "$work/$1"
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$programs/starling-coordinator" init hub --listen "127.0.0.1:$port" --name 127.0.0.1 >/dev/null
  start hub
  wait_for_hub
  for k in $(seq $edges); do
    local token
    token=$(coordinator token new "client-$k" | grep -o 'STJ1-[A-Z2-7]*' | head -1)
    "$programs/starling-edge" join "$token" --state "client-$k" >/dev/null
    start "client-$k"
  done
}

# --- one run ------------------------------------------------------------------------------------

write_job() {  # STRATEGY
  local optimizer=sgd rate=0.0001
  if [[ $1 == diloco ]]; then optimizer=adamw rate=0.00005; fi
  cat >"$work/$1.toml" <<TOML
name = "$1"
rounds = $rounds
[model]
kind = "mlp"
hidden = [64]
[strategy]
name = "$1"
[train]
batch-size = 16
local-steps = $steps
optimizer = "$optimizer"
learning-rate = $rate
[round]
cohort = $edges
min-updates = $edges
wait-for = $edges
deadline = "300s"
reconnect-grace = "300s"
attempts-max = 1000
[checkpoint]
keep = 0
[data]
input = [100]
classes = 5
dataset = "$data"
partition = "$partition"
TOML
}
committed() { grep -cF 'train loss' hub.log || true; }

# Kill i of K comes at a random moment of the round after i/K of all but the last, so that it hits
# the run unless that goes much faster than before; every third one kills the coordinator.
kill_at_random() {  # SEED SECONDS-UNDISTURBED; sets `hits`
  RANDOM=$1 hits=0
  local name i seconds=$2
  for ((i = 0; i < kills; ++i)); do
    while (($(committed) < i * (rounds - 1) / kills)); do sleep 0.05; done
    sleep "$(awk -v part=$((RANDOM % 500)) -v all="$seconds" -v n=$rounds \
      'BEGIN { print all / n * part / 500 }')"
    if (($(committed) >= rounds)); then return; fi
    name=client-$((RANDOM / 64 % edges + 1))
    if ((i % 3 == 1)); then name=hub; fi
    kill_and_restart "$name"
    hits=$((hits + 1))
  done
}
wait_for_end() {  # RUN
  for _ in $(seq 1200); do
    if state=$(coordinator run show "$1" --format json 2>/dev/null |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])' 2>/dev/null); then
      case $state in completed | failed | stopped) break ;; esac
    fi
    sleep 0.25
  done
  # What the edges still have to hear.
  for _ in $(seq 100); do
    if ! ls client-*/pending/*.update >/dev/null 2>&1; then break; fi
    sleep 0.1
  done
  coordinator run show "$1" --format json >"run-$1.json"
}
describe() {  # RUN-JSON MODELS-DIRECTORY: the models of all rounds, and the last state
  python3 - "$@" "$rounds" <<'PY'
import hashlib, json, pathlib, sys
run = json.load(open(sys.argv[1]))
if run["state"] != "completed":
    print("the run is", run["state"])
for record in run["rounds"]:
    if record["state"] == "committed":
        print("round", record["round"], record["model_sha256"])
state = pathlib.Path(sys.argv[2]) / (sys.argv[3] + ".state.safetensors")
print("state", hashlib.sha256(state.read_bytes()).hexdigest() if state.exists() else "none")
PY
}
# Behind its head, which names the task that brought it.
describe_edges() {  # RUN
  for k in $(seq $edges); do
    local file=client-$k/pending/$1.state
    echo "client-$k $([[ -f $file ]] && tail -c +65 "$file" | sha256sum || echo none)"
  done
}
submit() { coordinator run submit "$work/$1.toml" --format json | grep -o '[0-9]*' | head -1; }

failed=0
compare() {  # WHAT FILE FILE
  if diff "$2" "$3" >"$work/difference"; then return; fi
  echo "  DIFFERENT: $1"
  head -n 6 "$work/difference"
  failed=1
}

# --- undisturbed, all in one federation; and simulated ------------------------------------------

declare -A calm_seconds=()
start_federation calm
for strategy in "${strategies[@]}"; do
  write_job "$strategy"
  cd "$work/calm"
  began=$EPOCHREALTIME
  run=$(submit "$strategy")
  wait_for_end "$run"
  seconds=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  calm_seconds[$strategy]=$seconds
  describe "run-$run.json" "hub/models/$run" >"$work/$strategy.calm"
  describe_edges "$run" >"$work/$strategy.calm-edges"
  "$programs/starling-coordinator" simulate "$work/$strategy.toml" --clients $edges \
    --out "$work/$strategy-simulated" >/dev/null 2>"$work/$strategy-simulated.log" ||
    cat "$work/$strategy-simulated.log"
  describe "$work/$strategy-simulated/run.json" "$work/$strategy-simulated/models" \
    >"$work/$strategy.simulated"
  echo "$strategy: $rounds rounds undisturbed in $seconds s, $(grep -c ^round "$work/$strategy.calm") models, state $(grep ^state "$work/$strategy.calm" | cut -c 7-22), $(grep -vc none "$work/$strategy.calm-edges") edges with a state"
  if (($(grep -c ^round "$work/$strategy.calm") != rounds)); then failed=1; fi
  compare "the service and the simulation" "$work/$strategy.calm" "$work/$strategy.simulated"
done
stop_all
if [[ $undisturbed_only ]]; then exit $failed; fi

# --- with kills ---------------------------------------------------------------------------------

for strategy in "${strategies[@]}"; do
  start_federation "$strategy-kills"
  began=$EPOCHREALTIME
  run=$(submit "$strategy")
  kill_at_random "$seed" "${calm_seconds[$strategy]}"
  wait_for_hub
  wait_for_end "$run"
  seconds=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  describe "run-$run.json" "hub/models/$run" >"$work/$strategy.kills"
  describe_edges "$run" >"$work/$strategy.kills-edges"
  echo "$strategy: $rounds rounds with $hits kills (seed $seed) in $seconds s, the coordinator resumed $(grep -cF 'resumed after' hub.log) times"
  if ((hits < kills)); then echo "  of $kills: the run ended before the others; STEPS makes it longer"; fi
  if ((hits == 0)); then failed=1; fi
  compare "with kills and undisturbed" "$work/$strategy.kills" "$work/$strategy.calm"
  compare "the edges' states" "$work/$strategy.kills-edges" "$work/$strategy.calm-edges"
  stop_all
done
exit $failed
