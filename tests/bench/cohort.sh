#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a simulated round costs by the size of its cohort: 10,000 clients, softmax regression on
# synthetic data (20 rows a client), no evaluation, so that the coordinator's work is most of it.
# usage: cohort.sh [PROGRAM [COHORT...]]           (some half minute on 2 cores)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=${1:-$root/build/release/bin/starling-coordinator}
shift || true
cohorts=("$@")
[ ${#cohorts[@]} -gt 0 ] || cohorts=(100 1000 3000 10000)
rounds=${ROUNDS:-10}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/job.toml" <<'JOB'
[model]
kind = "softmax-regression"
[train]
batch-size = 16
[round]
min-updates = 1
[data]
dataset = "synthetic:rows=200000,features=20,classes=10"
JOB

printf '%8s %22s %22s\n' cohort 'seconds a round' 'processor seconds'
for cohort in "${cohorts[@]}"; do
  /usr/bin/env time -f '%e %U' -o "$work/time" "$program" simulate "$work/job.toml" \
    --clients 10000 --rounds "$rounds" --round.cohort "$cohort" --evaluate.every 0 >"$work/log" 2>&1
  awk -v cohort="$cohort" -v rounds="$rounds" \
    '{ printf "%8d %22.3f %22.3f\n", cohort, $1 / rounds, $2 / rounds }' "$work/time"
done
