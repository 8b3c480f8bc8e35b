#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A coordinator on loopback that is attacked by strangers and by one of its devices, and how long an
# honest operator waits meanwhile: connections that are reset, TLS key updates without end, half-open
# connections from few and from many addresses, Pongs at full speed. Then a ring of gossip peers of which one is
# sent 30,000 Pongs a second by a member, and how long the exchanges take. Fails if the coordinator
# dies or an honest ping takes more than 200 ms. Builds what it runs, unless told where that is.
# usage: tests/bench/network_attacks.sh [DIRECTORY-OF-PROGRAMS [RESETS [SECONDS]]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if (($# == 0)); then
  cmake --preset release >/dev/null
  cmake --build --preset release --target starling-coordinator starling-edge network_attacks
fi
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator starling-edge network_attacks)
resets=${2:-100000}
seconds=${3:-10}
work=$(mktemp -d)
coordinator=
peers=()
trap 'for pid in $coordinator "${peers[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait; rm -rf "$work"' EXIT
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
"$programs/network_attacks" "$state" updates "$seconds"
still_there
for attack in '8 150' '100 150' '1000 1000' '300 300 hello'; do  # addresses, a second
  # shellcheck disable=SC2086
  "$programs/network_attacks" "$state" half-open "$seconds" $attack
  still_there
done
join() {  # NAME [OPTIONS of token new...]
  local token
  token=$("$programs/starling-coordinator" token new "$@" --state "$state" | grep -o 'STJ1-[A-Z2-7]*' | head -1)
  "$programs/starling-edge" join "$token" --state "$work/$1" >/dev/null
}
join cam-1
"$programs/network_attacks" "$state" pongs "$seconds" "$work/cam-1"
still_there

# Six in a ring in order of their names. The last one is bad: it trains nothing, and its victim is
# not its neighbour, so that nobody but the flood holds up the victim's exchanges.
read -ra ports < <(python3 - <<'PY'
import socket
sockets = [socket.socket() for _ in range(6)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in sockets])
PY
)
for k in 1 2 3 4 5 6; do
  join "peer-$k" --role peer --address "127.0.0.1:${ports[k - 1]}"
  if ((k == 6)); then continue; fi
  "$programs/starling-edge" start --state "$work/peer-$k" --gossip.listen "127.0.0.1:${ports[k - 1]}" \
    --data.dataset synthetic:rows=600,features=784,classes=10 \
    --data.partition "iid:index=$k,of=6" 2>"$work/peer-$k.log" &
  peers+=($!)
done
cat >"$work/net.toml" <<'TOML'
steps = 10000000
[topology]
spec = "ring"
[data]
dataset = "synthetic:rows=600,features=784,classes=10"
[evaluate]
dataset = "none"
TOML
"$programs/starling-coordinator" gossip start "$work/net.toml" --state "$state" >/dev/null
exchanges() {  # prints the exchanges a second of the victim and of the slowest within $seconds
  python3 - "$programs/starling-coordinator" "$state" "$seconds" <<'PY'
import datetime, json, subprocess, sys, time
def reports():
    shown = json.loads(subprocess.check_output(
        [sys.argv[1], "gossip", "show", "--state", sys.argv[2], "--format", "json"]))
    return {m["name"]: (m["report"]["step"], datetime.datetime.fromisoformat(m["report"]["time"][:-1]))
            for m in shown["members"] if m["report"]}
while min((step for step, _ in reports().values()), default=0) < 1 or len(reports()) < 5: time.sleep(0.2)
before = reports()
time.sleep(float(sys.argv[3]))
after = reports()
rates = {name: (after[name][0] - before[name][0]) / (after[name][1] - before[name][1]).total_seconds()
         for name in before}
victim, slowest = rates["peer-3"], min(rates.values())
print(f"1,000 exchanges take {1000 / victim:.1f} s (peer-3), {1000 / slowest:.1f} s (slowest)")
PY
}
echo "nobody attacks: $(exchanges)"
for rate in 0 30000; do
  "$programs/network_attacks" "$state" peer-pongs "$((seconds + 4))" "$work/peer-6" "${ports[2]}" $rate \
    >"$work/attack" &
  attack=$!
  sleep 2
  echo "a member sends peer-3 $rate pongs a second: $(exchanges)"
  wait "$attack"
  cat "$work/attack"
  still_there
done
