#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A coordinator beside gossip on slow and on fast links: 16 nodes, the 2NN on Fashion-MNIST, virtual
# time and traffic until the nodes' own models, or the coordinator's, have 80 % test accuracy on
# average: the mean of all models, which no node has, is not asked. The same few learning rates are
# tried for all, each with a few seeds, and the one that is quickest on average is taken: of those
# with which the most seeds get there. Prints tables in Markdown, times as mean ± largest distance.
# usage: tests/bench/links.sh [DIRECTORY-OF-PROGRAMS [PARTITION]]     (RATES, SEEDS to change)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator starling-gossip)
partition=${2:-iid}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nodes=16
evaluated=8  # of them
target=0.80
rates=${RATES:-0.1 0.2 0.4 0.8}
seeds=${SEEDS:-1 2 3}
dataset=fashion-mnist:/usr/share/datasets/fashion-mnist
common=(--model.kind mlp --train.batch-size 32 --data.dataset "$dataset" --data.partition "$partition"
  --nodes.step-time 5ms)

# Lines of evaluations -> the crossing: "virtual-seconds bytes steps", between two evaluations by a
# straight line; nothing where the target is not reached. `bytes` adds up per line where `sum` is 1.
crossing() {  # ACCURACY-KEY BYTES-KEYS STEP-KEY STEPS-PER SUM
  awk -v accuracy_key="$1" -v bytes_keys="$2" -v step_key="$3" -v per="$4" -v sum="$5" -v target="$target" '
    function value(key) {
      if (!match($0, "\"" key "\":[-+0-9.eE]+")) return -1
      return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
    }
    !done {  # and reads on, so that nobody writes into a closed pipe
      if (!sum) bytes = 0
      count = split(bytes_keys, keys, " ")
      for (i = 1; i <= count; ++i) bytes += value(keys[i])
      accuracy = value(accuracy_key)
      if (accuracy < 0) next
      seconds = value("virtual_seconds"); step = value(step_key) * per
      if (accuracy >= target) {
        part = accuracy > last ? (target - last) / (accuracy - last) : 1
        printf "%.9g %.9g %.9g\n", before + part * (seconds - before), \
            sent + part * (bytes - sent), at + part * (step - at)
        done = 1
      }
      last = accuracy; before = seconds; sent = bytes; at = step
    }'
}

# A rate at which a run diverges is none to take.
failed() {
  ! grep -q -e 'diverged' -e 'abandoned' "$work/log" || return 0
  tail -n 3 "$work/log" >&2
  exit 1
}

coordinator() {  # LOCAL-STEPS ROUNDS EVALUATE-EVERY RATE SEED LINK...
  local steps=$1 rounds=$2 every=$3 rate=$4 seed=$5
  shift 5
  : >"$work/job.toml"
  "$programs/starling-coordinator" simulate "$work/job.toml" --clients "$nodes" --format json \
    --round.cohort "$nodes" --rounds "$rounds" --train.local-steps "$steps" \
    --evaluate.dataset "$dataset:test" --evaluate.every "$every" --train.learning-rate "$rate" \
    --seed "$seed" "${common[@]}" "$@" >"$work/run.json" 2>"$work/log" || { failed && return; }
  sed 's/{"round":/\n&/g' "$work/run.json" | crossing eval_accuracy 'bytes_in bytes_out' round "$steps" 1
}

# Synchronous gossip takes the same course on any links that lose nothing: it is evaluated on the
# first links, and on others only its times and bytes are new.
gossip() {  # ALGORITHM TOPOLOGY LOCAL-STEPS STEPS EVALUATE-EVERY RATE SEED LINK...
  local algorithm=$1 topology=$2 local_steps=$3 steps=$4 every=$5 rate=$6 seed=$7
  shift 7
  local course=$work/$algorithm-$topology-$local_steps-$rate-$seed evaluation=auto
  [ ! -e "$course" ] || evaluation=none
  rm -rf "$work/run"
  "$programs/starling-gossip" simulate --algorithm "$algorithm" --topology "$topology" \
    --nodes "$nodes" --steps "$steps" --train.local-steps "$local_steps" \
    --evaluate.every "$every" --evaluate.nodes "$evaluated" --evaluate.dataset "$evaluation" \
    --train.learning-rate "$rate" --seed "$seed" "${common[@]}" "$@" --out "$work/run" >/dev/null 2>"$work/log" ||
    { failed && return; }
  [ -e "$course" ] || grep -o '"eval_accuracy":[-+0-9.eE]*' "$work/run/metrics.jsonl" >"$course"
  paste "$course" "$work/run/metrics.jsonl" | crossing eval_accuracy bytes_sent step 1 0
}

# The quickest rate: "seeds-that-failed virtual-seconds bytes steps rate largest-distance"; the last
# is of the seconds.
best() {  # KIND ARGUMENTS-BEFORE-THE-RATE -- LINK...
  local kind=$1 rate seed
  shift
  local before=()
  while [ "$1" != -- ]; do before+=("$1"); shift; done
  shift
  for rate in $rates; do
    for seed in $seeds; do
      "$kind" "${before[@]}" "$rate" "$seed" "$@"
    done | awk -v rate="$rate" -v seeds="$(wc -w <<<"$seeds")" '
      { seconds[NR] = $1; sum += $1; bytes += $2; steps += $3 }
      END {
        if (!NR) exit
        for (i = 1; i <= NR; ++i) {
          distance = seconds[i] - sum / NR
          if (distance < 0) distance = -distance
          if (distance > most) most = distance
        }
        printf "%d %.9g %.9g %.9g %s %.9g\n", seeds - NR, sum / NR, bytes / NR, steps / NR, rate, most
      }'
  done | sort -k 1,1g -k 2,2g | head -n 1
}

row() {  # NAME KIND ARGUMENTS -- LINK...
  local name=$1
  shift
  # Traffic is what an access link sends and receives. Gossip here is regular: all nodes are alike.
  best "$@" | awk -v name="$name" -v kind="$1" -v nodes="$nodes" '
    { node = kind == "coordinator" ? $3 / nodes : 2 * $3 / nodes
      busiest = kind == "coordinator" ? $3 : node
      printf $2 < 100 ? "| %s | %.3g ± %.2g s" : "| %s | %.0f ± %.0f s", name, $2, $6
      if ($1) printf " (%d of the seeds not)", $1
      printf " | %.0f | %.4g MB | %.4g MB | %s |\n", $4, node / 1e6, busiest / 1e6, $5
      found = 1 }
    END { if (!found) printf "| %s | not reached | | | | |\n", name }'
}

table() {  # TITLE LINK...
  printf '\n%s\n\n' "$1"
  shift
  printf '| | virtual time | local steps | traffic of a node | of the busiest | learning rate |\n'
  printf '|---|---|---|---|---|---|\n'
  row 'coordinator, FedAvg with H = 1' coordinator 1 400 10 -- "$@"
  row 'coordinator, local SGD with H = 16' coordinator 16 40 1 -- "$@"
  row 'all-reduce, H = 1' gossip all-reduce ring 1 400 10 -- "$@"
  row 'all-reduce, H = 16' gossip all-reduce ring 16 640 16 -- "$@"
  row 'gossip on a ring, H = 1' gossip dpsgd ring 1 400 10 -- "$@"
  row 'gossip on the exponential graph, H = 1' gossip dpsgd exponential 1 400 10 -- "$@"
  row 'one-peer exponential, H = 1' gossip dpsgd one-peer-exponential 1 400 10 -- "$@"
  row 'one-peer exponential, H = 16' gossip dpsgd one-peer-exponential 16 640 16 -- "$@"
}

slow=(--network.bandwidth 10Mbit/s --network.latency 20ms)
table '10 Mbit/s, 20 ms:' "${slow[@]}"
row 'coordinator at 1 Gbit/s, H = 1' coordinator 1 400 10 -- "${slow[@]}" --network.coordinator-bandwidth 1Gbit/s
row 'coordinator at 1 Gbit/s, H = 16' coordinator 16 40 1 -- "${slow[@]}" --network.coordinator-bandwidth 1Gbit/s
table '10 Gbit/s, 0.1 ms:' --network.bandwidth 10Gbit/s --network.latency 100us
