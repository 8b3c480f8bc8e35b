#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A whole federation on this machine: builds Starling, makes a coordinator, joins edge clients to
# it by token as real processes, and trains a model on Fashion-MNIST over mutual TLS.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/build_programs.sh
. "$root/examples/build_programs.sh"

usage() {
  cat <<'TEXT'
usage: examples/quickstart.sh [--clients N] [--rounds R] [--seed S] [--keep] [--programs DIR]

  --clients N      edge clients, each a process with its own part of the data (default 12)
  --rounds R       rounds of training (default 20)
  --seed S         seed of the run (default 1)
  --keep           keep the federation's directory: identities, database, models, logs
  --programs DIR   use the programs in DIR; install and build nothing
TEXT
}

# number FLAG VALUE MIN MAX: the value without leading zeros.
number() {
  if [[ ! $2 =~ ^[0-9]{1,15}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    refuse "$1 must be a whole number from $3 to $4, not '$2'"
  fi
  echo $((10#$2))
}

clients=12 rounds=20 seed=1 keep=no programs=
while [ $# -gt 0 ]; do
  case $1 in
    --clients | --rounds | --seed | --programs) [ $# -gt 1 ] || refuse "$1 needs a value" ;;
  esac
  case $1 in
    --clients) clients=$(number "$1" "$2" 1 1000); shift 2 ;;
    --rounds) rounds=$(number "$1" "$2" 1 1000000); shift 2 ;;
    --seed) seed=$(number "$1" "$2" 0 999999999999999); shift 2 ;;
    --keep) keep=yes; shift ;;
    --programs)
      programs=$(program_directory "$2" starling-coordinator starling-edge)
      shift 2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; refuse "unknown argument '$1'" ;;
  esac
done

job=$root/examples/fashion-2nn.toml
data=fashion-mnist:/usr/share/datasets/fashion-mnist
model=$PWD/fashion-2nn.safetensors
home=   # the federation's directory, once there is one
processes=()

# Stops every process that this script started, on any exit, and says where a failure's logs are.
finish() {
  local status=$?
  trap - EXIT HUP INT TERM
  if [ ${#processes[@]} -gt 0 ]; then
    kill "${processes[@]}" 2>/dev/null || true
    wait "${processes[@]}" 2>/dev/null || true
  fi
  if [ -n "$home" ]; then
    if [ $status -ne 0 ] && [ $status -lt 128 ]; then
      printf '\nquickstart: failed (exit code %s); the last lines of the coordinator:\n' $status >&2
      tail -n 20 "$home/logs/coordinator" >&2 2>/dev/null || true
      printf 'quickstart: everything is kept in %s\n' "$home" >&2
    elif [ "$keep" = no ]; then
      rm -rf "$home"
    fi
  fi
  exit $status
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

coordinator() { "$programs/starling-coordinator" "$@"; }
edge() { "$programs/starling-edge" "$@"; }

is_listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A port below the range from which the kernel gives ports to those who ask for none.
choose_port() {
  local port
  for _ in $(seq 50); do
    port=$((20000 + RANDOM % 12000))
    if ! is_listening "$port"; then echo "$port"; return; fi
  done
  echo 'quickstart: no free port found on 127.0.0.1' >&2
  return 1
}

start() {  # start LOG PROGRAM ARGUMENT...
  local log=$home/logs/$1
  shift
  "$@" >"$log" 2>&1 &
  processes+=($!)
}

start_coordinator() {
  local port
  port=$(choose_port)
  coordinator init "$home/coordinator" --federation demo --listen "127.0.0.1:$port" \
    --name 127.0.0.1
  start coordinator "$programs/starling-coordinator" serve "$home/coordinator"
  for _ in $(seq 100); do
    if is_listening "$port"; then return; fi
    kill -0 "${processes[0]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "quickstart: the coordinator does not listen on 127.0.0.1:$port" >&2
  return 1
}

# What a device owner does: one command with the token, and where the data is.
join_client() {
  local name=client-$1 state=$home/edges/client-$1 token
  token=$(coordinator token new "$name" --state "$home/coordinator" --format json |
    sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
  edge join "$token" --state "$state"
  cat >>"$state/edge.toml" <<TOML
[data]
dataset = "$data"
partition = "dirichlet:alpha=0.5,index=$1,of=$clients"
TOML
  start "$name" "$programs/starling-edge" start --state "$state"
}

# Fewer clients than the job asks for: every one of them in every round.
overrides() {
  local cohort=10
  [ "$clients" -ge $cohort ] || cohort=$clients
  printf '%s\n' --seed "$seed" --rounds "$rounds" --round.wait-for "$clients" \
    --round.cohort "$cohort" --round.min-updates $(((cohort * 4 + 4) / 5))
}

train() {
  local id flags
  mapfile -t flags < <(overrides)
  id=$(coordinator run submit "$job" --state "$home/coordinator" --format json "${flags[@]}" |
    sed -n 's/.*"id": *"\{0,1\}\([^",}]*\).*/\1/p')
  # In the background, so that a signal to this script is obeyed at once.
  "$programs/starling-coordinator" run log "$id" --follow --state "$home/coordinator" &
  processes+=($!)
  wait $!
  coordinator run wait "$id" --state "$home/coordinator"
  say 'the run'
  coordinator run show "$id" --state "$home/coordinator"
  say 'the model'
  coordinator run export "$id" --to "$model" --state "$home/coordinator"
}

what_next() {
  local flags
  flags=$(overrides | paste -s -d ' ')
  cat <<TEXT

What to try next
  the same run in one process, no sockets, the same model bit for bit:
    ${programs#"$PWD/"}/starling-coordinator simulate \\
      ${job#"$PWD/"} --clients $clients $flags --out out/fashion-2nn
  the model in Python:
    safetensors.torch.load_file("$model")
  another seed, more clients:
    examples/quickstart.sh --seed 2 --clients 20
TEXT
  if [ "$keep" = yes ]; then
    cat <<TEXT
  this federation again (in a terminal each):
    $programs/starling-coordinator serve $home/coordinator
    $programs/starling-edge start --state $home/edges/client-1
    $programs/starling-coordinator client list --state $home/coordinator
TEXT
  else
    echo '  keep the federation, to start it again: examples/quickstart.sh --keep'
  fi
}

[ -n "$programs" ] || build_programs starling-coordinator starling-edge

home=$(mktemp -d "${TMPDIR:-/tmp}/starling-demo-XXXXXX")
mkdir "$home/logs" "$home/edges"
say "making a coordinator in $home"
start_coordinator
say "joining $clients edge clients, each with its own key, certificate and part of the data"
for index in $(seq "$clients"); do join_client "$index"; done
say "training for $rounds rounds over mutual TLS"
SECONDS=0
train
say "done: $rounds rounds with $clients clients in $SECONDS seconds; the model is in $model"
what_next
