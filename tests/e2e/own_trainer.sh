#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Custom trainers on real devices over mTLS: four of them, each with a trainer that is a program of its
# own, as has the coordinator, which evaluates by it; a trainer, a device and the coordinator are killed in
# between. The models and evaluations are those of a simulation whose clients share the same program, and
# no trainer outlives its device or the coordinator. Once with tasks that the trainers do whole, and once
# by their gradients; then the coordinator's trainer is killed too, and the coordinator and a run are stopped
# while it hangs. The first model is made by the coordinator's trainer from the seed, as in the simulation.
# usage: own_trainer.sh DIRECTORY-OF-PROGRAMS
set -euo pipefail

programs=$(cd "$1" && pwd)
trainer=$(cd "$(dirname "${BASH_SOURCE[0]}")/../client" && pwd)/fake_trainer.py
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
export PATH=$programs:$PATH
work=$(mktemp -d)
coordinator=
declare -a edges=()
stop_all() {
  kill -KILL $coordinator "${edges[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}
trap 'stop_all; rm -rf "$work"' EXIT
cd "$work"
clients=4 rounds=20

job() {
  cat <<JOB
name = "own"
rounds = $rounds
[model]
kind = "external"
[trainer]
echo = ["one", "two"]
seeded = true
[strategy]
name = "$1"
[train]
learning-rate = 0.1
local-steps = 3
batch-size = 16
[round]
cohort = $clients
min-updates = $clients
wait-for = $clients
deadline = "60s"
attempts-max = 100
[evaluate]
dataset = "trainer"
federated-every = 10
JOB
}
# "ROUND HASH" of each committed round; an attempt that lost its trainer has none.
hashes() {
  python3 -c 'import json, sys
for each in json.load(open(sys.argv[1]))["rounds"]:
    if each["model_sha256"]: print(each["round"], each["model_sha256"])' "$1"
}
# "ROUND LOSS" by the coordinator's trainer.
losses() {
  python3 -c 'import json, sys
for each in json.load(open(sys.argv[1]))["rounds"]:
    if each["model_sha256"]: print(each["round"], each["eval_loss"], each["eval_accuracy"])' "$1"
}
initial_sha256() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["initial_sha256"])' "$1"; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
serve() {
  starling-coordinator serve coordinator >>coordinator.log 2>&1 &
  coordinator=$!
  until listens; do kill -0 "$coordinator"; sleep 0.1; done
}
start() {
  starling-edge start --state "edge-$1" >>"edge-$1.log" 2>&1 &
  edges[$1]=$!
}
trainers_of() { pgrep -f "fake_trainer.py [a-z]* $work/$1\$" || true; }
committed() {
  { starling-coordinator run show "$1" --state coordinator --format json 2>/dev/null || true; } |
    grep -o '"state":"committed"' | wc -l
}
reach() { until [ "$(committed "$1")" -ge "$2" ]; do kill -0 "$coordinator"; sleep 0.05; done; }
submit() {
  starling-coordinator run submit "$1" --state coordinator --format json |
    sed -n 's/.*"id": *"\{0,1\}\([^",}]*\).*/\1/p'
}

submit_from() {
  starling-coordinator run submit fedprox.toml --model.initial "$work/$1" --state coordinator --format json |
    sed -n 's/.*"id": *"\{0,1\}\([^",}]*\).*/\1/p'
}

for strategy in fedadam fedprox; do
  job $strategy >$strategy.toml
  starling-coordinator simulate $strategy.toml --clients $clients --workers 2 \
    --trainer "python3 $trainer honest $work" --out $strategy >$strategy.log 2>&1
  # The devices begin with what the trainer made of the seed.
  starling-coordinator simulate $strategy.toml --clients $clients --workers 1 \
    --trainer "python3 $trainer honest $work" --out $strategy-1 >/dev/null 2>&1
  diff <(hashes $strategy/run.json) <(hashes $strategy-1/run.json)
done
[ "$(hashes fedadam/run.json | wc -l)" = $rounds ]
cmp -s <(tail -c 20 fedadam/models/0.safetensors) <(tail -c 20 fedprox/models/0.safetensors)

port=$((20000 + RANDOM % 12000))
starling-coordinator init coordinator --federation own --listen "127.0.0.1:$port" --name 127.0.0.1 >/dev/null
serve
submit fedadam.toml 2>refused || true
grep -q 'trainer.* command' refused             # a coordinator needs its trainer
sed '/^dataset/d' fedadam.toml >unevaluated.toml
submit unevaluated.toml 2>refused || true
grep -q 'model.initial, or set \[trainer\] command' refused
kill "$coordinator"
wait "$coordinator" || true
printf '[trainer]\ncommand = ["python3", "%s", "honest", "%s"]\n' "$trainer" "$work/coordinator" \
  >>coordinator/coordinator.toml
serve
for k in $(seq $clients); do
  token=$(starling-coordinator token new "client-$k" --state coordinator --format json |
    sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
  starling-edge join "$token" --state "edge-$k" >/dev/null
  printf '[trainer]\ncommand = ["python3", "%s", "honest", "%s"]\n' "$trainer" "$work/edge-$k" \
    >>"edge-$k/edge.toml"
  start "$k"
done
id=$(submit fedadam.toml)                       # without its model
reach "$id" 3
kill -KILL $(trainers_of edge-1)                # a trainer
reach "$id" 6
kill -KILL "${edges[2]}"                        # a device, and its trainer with it
wait "${edges[2]}" || true
start 2
reach "$id" 9
kill -KILL "$coordinator"
wait "$coordinator" || true
serve
starling-coordinator run wait "$id" --state coordinator >/dev/null
starling-coordinator run show "$id" --state coordinator --format json >devices.json
diff <(hashes fedadam/run.json) <(hashes devices.json)
diff <(losses fedadam/run.json) <(losses devices.json)
[ "$(losses devices.json | grep -c ' 0.75$')" = $rounds ]
starling-coordinator simulate fedadam.toml --clients $clients --replay devices.json \
  --trainer "python3 $trainer honest $work" --out replay >/dev/null 2>&1
diff <(losses replay/run.json) <(losses devices.json)
starling-coordinator run export "$id" --state coordinator --round 0 --to initial.safetensors >/dev/null
[ "$(sha256sum <initial.safetensors | cut -d ' ' -f 1)" = "$(initial_sha256 devices.json)" ]
grep -q 'trainer: task .*"echo": \["one", "two"\]' edge-1.log
grep -q 'the trainer .*ended by signal 9' edge-1.log

id=$(submit_from initial.safetensors)           # the same model, as a file
reach "$id" 3
kill -KILL $(trainers_of coordinator)           # costs one evaluation at most
mv initial.safetensors used.safetensors         # which is not needed once the run has begun
starling-coordinator run wait "$id" --state coordinator >/dev/null
starling-coordinator run show 2 --state coordinator --format json >devices.json
diff <(hashes fedprox/run.json) <(hashes devices.json)
[ "$(sha256sum <used.safetensors | cut -d ' ' -f 1)" = "$(initial_sha256 devices.json)" ]
[ "$(losses devices.json | grep -c ' 0.75$')" -ge $((rounds - 1)) ]
[ "$(trainers_of coordinator | wc -l)" = 1 ]

kill "$coordinator"
wait "$coordinator"
[ -z "$(trainers_of coordinator)" ] || { echo "a trainer outlived the coordinator" >&2; exit 1; }
mkdir hanging                                   # in its first task
sed -i "s|\"honest\", \"$work/coordinator\"|\"hangs\", \"$work/hanging\"|" coordinator/coordinator.toml
serve
id=$(submit_from fedprox/models/0.safetensors)
until [ -e hanging/misbehaved ]; do kill -0 "$coordinator"; sleep 0.05; done
kill "$coordinator"
wait "$coordinator"                             # not for its drain, nor the trainer's deadline
[ -z "$(trainers_of hanging)" ] || { echo "a trainer outlived the coordinator" >&2; exit 1; }
serve
starling-coordinator run wait "$id" --state coordinator >/dev/null
starling-coordinator run show "$id" --state coordinator --format json >devices.json
diff <(hashes fedprox/run.json) <(hashes devices.json)
starling-coordinator run log "$id" --state coordinator >run.log
grep -q "\[round 1/$rounds\] not evaluated at the coordinator: stopped, the service was stopped" run.log

# A run that is stopped does not wait for its evaluation, nor for its first model, whose deadlines are hours.
for submission in "submit_from used.safetensors" "submit fedprox.toml"; do
  rm hanging/misbehaved
  id=$($submission)
  until [ -e hanging/misbehaved ]; do kill -0 "$coordinator"; sleep 0.05; done
  starling-coordinator run stop "$id" --state coordinator >/dev/null
  starling-coordinator run wait "$id" --state coordinator >/dev/null || true
  starling-coordinator run show "$id" --state coordinator --format json >stopped.json
  grep -q '"state":"stopped"' stopped.json
done
id=$(submit fedprox.toml)                       # by a trainer that was started again
starling-coordinator run wait "$id" --state coordinator >/dev/null
starling-coordinator run show "$id" --state coordinator --format json >devices.json
diff <(hashes fedprox/run.json) <(hashes devices.json)
diff <(losses fedprox/run.json) <(losses devices.json)

for k in $(seq $clients); do kill "${edges[k]}"; done
for k in $(seq $clients); do wait "${edges[k]}" || true; done
for k in $(seq $clients); do
  [ -z "$(trainers_of "edge-$k")" ] || { echo "a trainer outlived device $k" >&2; exit 1; }
done
kill "$coordinator"
wait "$coordinator"
[ -z "$(trainers_of hanging)" ] || { echo "a trainer outlived the coordinator" >&2; exit 1; }
echo "four runs of $rounds rounds on devices, with kills: the models of the simulations"
