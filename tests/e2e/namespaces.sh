#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two peers in two network namespaces with a coordinator in a third, on one bridge: they train
# directly, with one that cannot be dialled, relayed, and by an owner's roster with the coordinator
# gone. The models are those of the simulation, and the bytes are counted where they pass.
# usage: tests/e2e/namespaces.sh DIRECTORY-OF-PROGRAMS; ends with 77 where namespaces are refused
set -euo pipefail

# All is done in namespaces of its own: no name meets another's, and the kernel takes down whatever
# is left of it, however it ends.
if [ -z "${STARLING_INSIDE:-}" ]; then
  programs=$(cd "${1:-build/release/bin}" && pwd)
  for needed in ip bridge unshare nsenter; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$needed" >/dev/null ||
      { echo "'$needed' is missing; run examples/install_packages.sh test" >&2; exit 1; }
  done
  try='set -e; mount -t tmpfs none /run; PATH=$PATH:/usr/sbin:/sbin; ip netns add probe
    ip link add name bridge type bridge; ip link add name veth type veth peer name eth0 netns probe
    nsenter --net=/run/netns/probe true'
  for user in '' '--user --map-root-user'; do
    # shellcheck disable=SC2206
    walls=(unshare $user --mount --net --pid --fork --kill-child --mount-proc)
    if why=$("${walls[@]}" bash -c "$try" 2>&1); then
      STARLING_INSIDE=1 exec "${walls[@]}" "${BASH_SOURCE[0]}" "$programs"
    fi
  done
  echo "skipped: this machine lets us make no network namespaces: ${why:-no reason given}"
  exit 77
fi

programs=$1
PATH=$PATH:/usr/sbin:/sbin
steps=100 features=200 classes=10 port=7443
model_bytes=$((4 * (features + 1) * classes))
sent=$((steps * model_bytes))  # by each peer, and heard
dataset=synthetic:rows=600,features=$features,classes=$classes
mount -t tmpfs none /run  # the namespaces' names, and all files
mkdir /run/work
cd /run/work

finish() {
  local status=$?
  if [ "$status" -ne 0 ]; then
    for log in /run/work/*/*.log; do printf -- '--- %s\n' "$log"; tail -n 25 "$log"; done >&2
  fi
}
trap finish EXIT
trap 'exit 130' INT TERM
fail() { echo "$*" >&2; exit 1; }

# --- the network --------------------------------------------------------------------------------

ip link add name bridge type bridge forward_delay 0
ip link set bridge up
for place in hub:1 peer-1:2 peer-2:3; do
  name=${place%:*}
  ip netns add "$name"
  ip link add name "to-$name" type veth peer name eth0 netns "$name"
  ip link set "to-$name" master bridge up
  ip -n "$name" address add "10.77.0.${place#*:}/24" dev eth0
  ip -n "$name" link set lo up
  ip -n "$name" link set eth0 up
done
hub=10.77.0.1:$port

within() { nsenter --net="/run/netns/$1" "${@:2}"; }
pids=()
begin() {  # NAMESPACE LOG COMMAND...: the process itself is what is to be stopped
  nsenter --net="/run/netns/$1" "${@:3}" >>"$2" 2>&1 &
  pids+=($!)
}
stop_all() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" || fail "process $pid did not end well"; done
  pids=()
}
# Bytes that came into a namespace and left it, so far.
traffic() {
  ip -n "$1" -s link show eth0 | awk '/RX:/ { getline; rx = $1 } /TX:/ { getline; print rx + $1 }'
}
until_true() {  # SECONDS COMMAND...
  local deadline=$((SECONDS + $1))
  until "${@:2}"; do
    [ "$SECONDS" -lt "$deadline" ] || fail "not within $1 s: ${*:2}"
    sleep 0.1
  done
}

# --- who runs in it -----------------------------------------------------------------------------

coordinator() { within hub "$programs/starling-coordinator" "$@" --state hub; }
is_serving() { coordinator client list >/dev/null 2>&1; }
serve() {
  begin hub hub.log "$programs/starling-coordinator" serve hub
  until_true 30 is_serving
}
# A federation of its own: the addresses at which others are to dial the peers, "" for none.
federation() {  # NAME ADDRESS ADDRESS
  local address token k
  mkdir "/run/work/$1"
  cd "/run/work/$1"
  within hub "$programs/starling-coordinator" init hub --federation "$1" --listen "$hub" \
    --name "${hub%:*}" >init.log
  serve
  for k in 1 2; do
    address=${*:k+1:1}
    token=$(coordinator token new "peer-$k" --role peer ${address:+--address "$address"} \
      --format json | grep -o 'STJ1-[A-Z2-7]*' | head -n 1)
    within "peer-$k" "$programs/starling-edge" join "$token" --state "peer-$k" >>join.log
    cat >>"peer-$k/edge.toml" <<TOML
[data]
dataset = "$dataset"
partition = "iid:index=$k,of=2"
[gossip]
listen = "$address"
[connection]
backoff-min = "60s"
backoff-max = "60s"
[log]
level = "debug"
TOML
  done
}
start_peers() {
  local k
  for k in 1 2; do
    begin "peer-$k" "peer-$k.log" "$programs/starling-edge" start --state "peer-$k"
  done
}
network() {  # of a run with this name; what a simulation needs too
  cat >"$1.toml" <<TOML
seed = 7
steps = $steps
[topology]
spec = "ring"
nodes = 2
[train]
learning-rate = 0.05
[data]
dataset = "$dataset"
partition = "iid"
[evaluate]
dataset = "none"
every = $steps
TOML
}
gossip_start() {
  network "$1"
  coordinator gossip start "$1.toml" >gossip.log
}

# --- what must come of it -----------------------------------------------------------------------

has_ended() { [ -s peer-1/gossip/model.safetensors ] && [ -s peer-2/gossip/model.safetensors ]; }
weights() { tail -c "$model_bytes" "$1" | od -An -v -t f4 -w4; }
# The largest distance of two models in one parameter, in units of 1e-6.
distance() {
  paste <(weights "$1") <(weights "$2") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { printf "%d", 1e6 * most }'
}
says_finished() {  # RUN PEER
  "$programs/starling-edge" status --state "$2" >status.log
  grep -q "finished, run '$1' step $steps, 1 of 1 neighbours heard, linked with 1 other member" status.log
}
both_trained() {  # RUN
  local k apart
  until_true 120 has_ended
  "$programs/starling-gossip" simulate "$1.toml" --out "of-$1" >simulate.log 2>&1
  for k in 1 2; do
    apart=$(distance "of-$1/model.safetensors" "peer-$k/gossip/model.safetensors")
    # The simulation's is the mean of two that differ by rounding; one exchange missed makes 1e-3.
    [ "$apart" -le 10 ] || fail "$1: the model of peer-$k is ${apart}e-6 from the simulation's"
    until_true 10 says_finished "$1" "peer-$k"  # also without a coordinator
  done
}
# What passed in and out of a namespace since then: at least and at most.
before=()
count_traffic() { before=("$(traffic hub)" "$(traffic peer-1)" "$(traffic peer-2)"); }
took() {  # INDEX NAMESPACE LEAST MOST
  local bytes=$(($(traffic "$2") - before[$1]))
  printf '  %s: %s bytes\n' "$2" "$bytes"
  [ "$bytes" -ge "$3" ] && [ "$bytes" -le "$4" ] || fail "$2: $bytes bytes are not $3 to $4"
}
hub_shows_both() {
  coordinator gossip show >show.log
  [ "$(grep -c "yes.* finished *$steps .*1/1" show.log)" -eq 2 ]
}
can_dial() {  # NAMESPACE ADDRESS
  within "$1" timeout 1 bash -c "</dev/tcp/${2/://}" 2>/dev/null
}

echo "directly"
federation direct 10.77.0.2:7500 10.77.0.3:7500
start_peers
count_traffic
gossip_start direct
both_trained direct
until_true 30 hub_shows_both
took 0 hub 1000 "$sent"  # rosters and reports
took 1 peer-1 $((2 * sent)) $((4 * sent))
took 2 peer-2 $((2 * sent)) $((4 * sent))
stop_all

# As behind a NAT: the address that its roster names is its own network's, and what is sent there
# is lost without an answer. It is the one that the other would dial.
echo "one that cannot be dialled"
ip -n peer-2 address add 192.168.77.2/32 dev lo
ip -n peer-1 route add 192.168.77.0/24 via 10.77.0.254
ip -n peer-1 neighbour add 10.77.0.254 lladdr 02:00:00:00:00:01 nud permanent dev eth0
federation barrier 10.77.0.2:7500 192.168.77.2:7500
start_peers
count_traffic
gossip_start barrier
both_trained barrier
until_true 30 hub_shows_both
can_dial peer-2 192.168.77.2:7500 || fail "peer-2 does not listen"
if can_dial peer-1 192.168.77.2:7500; then fail "there is no barrier"; fi
took 0 hub 1000 "$sent"
took 1 peer-1 $((2 * sent)) $((4 * sent))
stop_all

echo "relayed"
bridge link set dev to-peer-1 isolated on
bridge link set dev to-peer-2 isolated on
federation relayed "" ""
start_peers
count_traffic
gossip_start relayed
both_trained relayed
until_true 30 hub_shows_both
grep -q "relaying between peer-1 and peer-2: neither can be dialled" hub.log || fail "who relays?"
took 0 hub $((4 * sent)) $((8 * sent))
took 1 peer-1 $((2 * sent)) $((4 * sent))
stop_all
bridge link set dev to-peer-1 isolated off
bridge link set dev to-peer-2 isolated off

# The first federation's peers go on by what their owner signs.
echo "with the coordinator gone"
cd /run/work/direct
rm peer-?/gossip/model.safetensors
serve
for k in 1 2; do
  key=$(coordinator client show "peer-$k" --format json | grep -o '"key":"[0-9a-f]*"' | cut -d '"' -f 4)
  echo "peer-$k $key 10.77.0.$((k + 1)):7500" >>members
done
stop_all
network offline
sign() {
  "$programs/starling-coordinator" gossip sign offline.toml --members members --to offline.roster \
    --state hub "$@" >>sign.log
}
take() { "$programs/starling-edge" roster offline.roster --state "$1"; }
sign
if take peer-1 2>refused.log; then fail "an older roster was taken"; fi
grep -q "but this device holds epoch 1 of direct.* --epoch 2" refused.log || fail "another reason"
sign --epoch 2
for k in 1 2; do take "peer-$k" >taken.log; done
grep -q "^epoch 2 of offline with 2 members, .* signed by issuer" taken.log || fail "what is it?"
count_traffic  # they need nobody to begin
start_peers
both_trained offline
took 0 hub 0 "$sent"
took 1 peer-1 $((2 * sent)) $((4 * sent))
stop_all
echo "all is well"
