#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a simulated round costs by the number of clients and by its cohort: softmax regression on
# synthetic data (20 rows a client), no evaluation, so that the coordinator's work is most of it.
# "s a round" is the median of `run show`'s seconds; "user s" the processor time that one round more
# takes; "start" all before the first round, in processor time; "peak" the memory of the process. Both
# per client: of the cohort, in microseconds, and of all clients, in KB (1.7 of them are its rows). Linear is
# where they stay the same.
# usage: cohort.sh [DIRECTORY-OF-PROGRAMS [CLIENTSxCOHORT...]]     (a few minutes on 2 cores, 0.7 GB)
# ROUNDS (default 10, and more of small cohorts, whose rounds are short)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
program=$(programs_in "${1:-$root/build/release/bin}" starling-coordinator)/starling-coordinator
shift || true
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=({10000,100000}x{100,1000,10000})

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

simulate() {  # CLIENTS COHORT ROUNDS: prints user seconds and the peak in KB; the run is in $work/run
  cat >"$work/job.toml" <<JOB
[model]
kind = "softmax-regression"
[train]
batch-size = 16
[round]
min-updates = 1
[data]
dataset = "synthetic:rows=$((20 * $1)),features=20,classes=10"
JOB
  /usr/bin/env time -f '%U %M' -o "$work/time" "$program" simulate "$work/job.toml" --clients "$1" \
    --rounds "$3" --round.cohort "$2" --evaluate.every 0 --format json >"$work/run" 2>"$work/log"
  cat "$work/time"
}
median_seconds() {
  python3 -c 'import json, statistics, sys
print(statistics.median(r["seconds"] for r in json.load(sys.stdin)["rounds"]))' <"$work/run"
}

printf '%8s %8s %10s %10s %12s %10s %10s %12s\n' clients cohort 's a round' 'user s' 'us a client' \
  'start s' 'peak MB' 'KB a client'
for one in "${cases[@]}"; do
  clients=${one%x*} cohort=${one#*x}
  rounds=$((${ROUNDS:-10} + 10000 / cohort))
  read -r user_of_one _ < <(simulate "$clients" "$cohort" 1)
  read -r user peak < <(simulate "$clients" "$cohort" $((rounds + 1)))
  awk -v clients="$clients" -v cohort="$cohort" -v rounds="$rounds" -v a="$user_of_one" -v b="$user" \
    -v peak="$peak" -v seconds="$(median_seconds)" 'BEGIN {
      round = (b - a) / rounds
      printf "%8d %8d %10.3f %10.3f %12.1f %10.2f %10.0f %12.1f\n", clients, cohort, seconds, round,
        1e6 * round / cohort, a - round, peak / 1024, peak / clients }'
done
