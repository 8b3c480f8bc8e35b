#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The federated strategies beside each other: Fashion-MNIST over 100 simulated clients, Dirichlet 0.1,
# cohort 10, the 2NN, one local epoch. One grid of client and server learning rates for all, on one
# seed and a part of the rounds; the pair with the best mean accuracy of the last 10 rounds is then
# run in full with each seed. What a strategy has beside these two rates stays at its default.
# Prints a table in Markdown: rounds until a first evaluation of 80 % ("-": never), and the mean
# accuracy of the last 10 rounds, each as the mean of the seeds ± the largest distance from it.
# Finished runs are kept in WORK and not run again when the command is repeated.
# usage: tests/bench/strategies.sh [DIRECTORY-OF-PROGRAMS [WORK]]
#   to change: STRATEGIES, CLIENT_RATES, SERVER_RATES, SEEDS, ROUNDS, TUNING_ROUNDS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator)
work=${2:-build/strategies}
mkdir -p "$work"

strategies=${STRATEGIES:-fedavg fedprox fedavgm fedadagrad fedadam fedyogi fednova scaffold qfedavg feddyn diloco}
client_rates=${CLIENT_RATES:-0.05 0.1 0.2}
server_rates=${SERVER_RATES:-0.01 0.03 0.1 0.3 1 3}
seeds=${SEEDS:-1 2 3}
rounds=${ROUNDS:-200}
tuning_rounds=${TUNING_ROUNDS:-60}
dataset=fashion-mnist:/usr/share/datasets/fashion-mnist

# The lines "round accuracy" of a run, in a file of its own; of one that failed, none.
run() {  # STRATEGY CLIENT-RATE SERVER-RATE SEED ROUNDS
  local file=$work/$1-$2-$3-$4-$5
  if [ ! -e "$file" ]; then
    : >"$work/job.toml"
    "$programs/starling-coordinator" simulate "$work/job.toml" --clients 100 --format json \
      --strategy.name "$1" --train.learning-rate "$2" --strategy.server-learning-rate "$3" \
      --seed "$4" --rounds "$5" --model.kind mlp --model.hidden 200,200 --train.local-epochs 1 \
      --train.batch-size 32 --round.cohort 10 --data.dataset "$dataset" \
      --data.partition dirichlet:alpha=0.1 --evaluate.dataset "$dataset:test" --evaluate.every 2 \
      >"$work/run.json" 2>"$work/log" || grep -q -e diverged -e abandoned "$work/log" || {
      tail -n 3 "$work/log" >&2
      exit 1
    }
    sed 's/{"round":/\n&/g' "$work/run.json" | awk '
      function value(key) {
        if (!match($0, "\"" key "\":[-+0-9.eE]+")) return -1
        return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
      }
      value("eval_accuracy") >= 0 { print value("round"), value("eval_accuracy") }' >"$file.part"
    mv "$file.part" "$file"
  fi
  cat "$file"
}

# Of such lines: "rounds-to-80% mean-of-the-last-10-rounds"; 0 where a run did not come to its end.
measures() {  # ROUNDS
  awk -v last="$1" '
    $2 >= 0.8 && !first { first = $1 }
    $1 > last - 10 { sum += $2; ++count }
    $1 == last { whole = 1 }
    END { printf "%d %.4f\n", first, whole ? sum / count : 0 }'
}

printf '| strategy | client rate | server rate | rounds to 80 %% | accuracy, last 10 of %s rounds |\n' "$rounds"
printf '|---|---|---|---|---|\n'
for strategy in $strategies; do
  best=-1
  for client_rate in $client_rates; do
    for server_rate in $server_rates; do
      read -r _ accuracy < <(run "$strategy" "$client_rate" "$server_rate" 1 "$tuning_rounds" |
        measures "$tuning_rounds")
      if awk -v a="$accuracy" -v b="$best" 'BEGIN { exit !(a > b) }'; then
        best=$accuracy chosen_client=$client_rate chosen_server=$server_rate
      fi
    done
  done
  for seed in $seeds; do
    run "$strategy" "$chosen_client" "$chosen_server" "$seed" "$rounds" | measures "$rounds"
  done | awk -v name="$strategy" -v client="$chosen_client" -v server="$chosen_server" '
    function spread(values, count, mean, i, largest) {
      for (i = 1; i <= count; ++i) {
        distance = values[i] > mean ? values[i] - mean : mean - values[i]
        if (distance > largest) largest = distance
      }
      return largest + 0
    }
    { first[NR] = $1; accuracy[NR] = $2; firsts += $1; accuracies += $2; never += $1 == 0 }
    END {
      reached = never ? "-" : sprintf("%.0f ± %.0f", firsts / NR, spread(first, NR, firsts / NR))
      printf "| %s | %s | %s | %s | %.2f ± %.2f %% |\n", name, client, server, reached,
          100 * accuracies / NR, 100 * spread(accuracy, NR, accuracies / NR)
    }'
done
