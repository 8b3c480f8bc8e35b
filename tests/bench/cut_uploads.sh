#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real devices whose uploads are cut twice each at random offsets by a proxy, while the coordinator
# is killed and started again in between: the models must be those of an undisturbed run, and the
# devices may send at most 1.1 times the bytes.
# usage: tests/bench/cut_uploads.sh [DIRECTORY-OF-PROGRAMS]
# CLIENTS, FEATURES (a model has 4 kB each), SEED and RATE (bytes/s of a device's link) say otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator starling-edge)
clients=${CLIENTS:-4} features=${FEATURES:-10000} seed=${SEED:-$RANDOM} rate=${RATE:-2e7}
work=$(mktemp -d)
hub=
pids=()
stop_all() {
  { for pid in $hub "${pids[@]}"; do kill -9 "$pid" || true; done; wait || true; } 2>/dev/null
  hub='' pids=()
}
trap 'stop_all; rm -rf "$work"' EXIT

cat >"$work/proxy.py" <<'PY'
# A link for each device, in front of the coordinator. Appends a line to `cuts` for each connection
# that it cuts, and writes to `bytes` what the devices sent.
import os, random, socket, sys, threading, time
target, rate, seed, cuts_each, upload, names = (
    int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:])
lock, sent = threading.Lock(), {name: 0 for name in names}
draw = random.Random(seed)
cuts_at = {name: sorted(draw.randrange(upload // 20, upload) for _ in range(cuts_each)) for name in names}

def close(*ends):
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

def up(name, device, coordinator):
    try:
        while data := device.recv(16384):
            coordinator.sendall(data)
            with lock:
                sent[name] += len(data)
                with open("bytes.new", "w") as file:
                    print(sum(sent.values()), file=file)
                os.replace("bytes.new", "bytes")
                if cuts_at[name] and sent[name] >= cuts_at[name][0]:
                    with open("cuts", "a") as file:
                        print(name, cuts_at[name].pop(0), file=file)
                    break
            time.sleep(len(data) / rate)
    except OSError:
        pass
    close(device, coordinator)

def down(device, coordinator):
    try:
        while data := coordinator.recv(65536):
            device.sendall(data)
    except OSError:
        pass
    close(device, coordinator)

def serve(name, listener):
    while True:
        device, _ = listener.accept()
        try:
            coordinator = socket.create_connection(("127.0.0.1", target))
        except OSError:
            device.close()
            continue
        threading.Thread(target=up, args=(name, device, coordinator), daemon=True).start()
        threading.Thread(target=down, args=(device, coordinator), daemon=True).start()

for name in names:
    listener = socket.create_server(("127.0.0.1", 0))
    with open(name + "/identity/coordinator", "w") as file:
        print(f"127.0.0.1:{listener.getsockname()[1]}", file=file)
    threading.Thread(target=serve, args=(name, listener), daemon=True).start()
open("ready", "w").close()
while True:
    time.sleep(60)
PY

wait_for() {  # COMMAND...
  for _ in $(seq 3000); do
    if "$@"; then return; fi
    sleep 0.05
  done
  echo "not within 150 s: $*; the end of the log:" >&2
  tail -n 30 hub.log >&2
  exit 1
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
cut() { [ "$(wc -l <cuts)" -ge "$1" ]; }
coordinator() { "$programs/starling-coordinator" "$@" --state hub; }
serve() {
  "$programs/starling-coordinator" serve hub 2>>hub.log >/dev/null &
  hub=$!
  wait_for listens
}

run() {  # NAME CUTS-EACH: prints what the devices sent, leaves the models' digests in NAME/models
  local name=$1 cuts_each=$2 names=() id
  mkdir "$work/$name"
  cd "$work/$name"
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$programs/starling-coordinator" init hub --listen "127.0.0.1:$port" --name 127.0.0.1 >/dev/null
  serve
  for ((k = 0; k < clients; ++k)); do
    token=$(coordinator token new "client-$k" | grep -o 'STJ1-[A-Z2-7]*' | head -1)
    "$programs/starling-edge" join "$token" --state "client-$k" >/dev/null
    names+=("client-$k")
  done
  : >cuts
  python3 "$work/proxy.py" "$port" "$rate" "$seed" "$cuts_each" $((features * 4000)) "${names[@]}" &
  pids+=($!)
  wait_for test -e ready
  for ((k = 0; k < clients; ++k)); do
    "$programs/starling-edge" start --state "client-$k" \
      --data.dataset "synthetic:rows=64,features=$features,classes=1000" \
      --data.partition "iid:index=$((k + 1)),of=$clients" 2>"client-$k.log" &
    pids+=($!)
  done
  cat >job.toml <<TOML
rounds = 1
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
[evaluate]
every = 0
TOML
  id=$(coordinator run submit job.toml --format json | sed -n 's/.*"id": *"\{0,1\}\([^",}]*\).*/\1/p')
  if [ "$cuts_each" -gt 0 ]; then
    wait_for cut $((clients + clients / 2))
    kill -9 "$hub"
    wait "$hub" 2>/dev/null || true
    ls hub/spool | sed 's/^/in the spool after the kill: /' >&2
    serve
    wait_for cut $((clients * cuts_each))
  fi
  coordinator run wait "$id" >/dev/null
  coordinator run show "$id" --format json | grep -o '"model_sha256": *"[0-9a-f]*"' >models
  ls hub/spool | sed 's/^/left in the spool after the run: /' >&2
  cat bytes
  stop_all
}

run calm 0 >"$work/calm.bytes"
run cut 2 >"$work/cut.bytes"
calm=$(cat "$work/calm.bytes") disturbed=$(cat "$work/cut.bytes")
echo "seed $seed, $clients devices, updates of $((features * 4)) kB: $calm bytes up undisturbed," \
  "$disturbed with $((2 * clients)) cuts and a kill"
cmp "$work/calm/models" "$work/cut/models"
[ "$(wc -l <"$work/cut/models")" -ge 1 ]
awk -v a="$calm" -v b="$disturbed" 'BEGIN { printf "%.3f times the bytes, the same models\n", b / a; exit b > 1.1 * a }'
