#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Simulation with a custom trainer (trainers/networks.py: the 2NN in PyTorch on Fashion-MNIST, 100 clients,
# cohort 10, one epoch in batches of 10) on two workers: seconds a round (median, without the first), the whole
# run, and the largest memory of all its processes; beside the same loops bare, and beside Flower's simulation
# engine where it is installed (pip install "flwr[simulation]"; of Ray only the processes of its session count).
# usage: trainers.sh [DIRECTORY-OF-PROGRAMS]   PYTHON (python3): with torch; ROUNDS (30)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
programs=$(programs_in "${1:-$root/build/release/bin}" starling-coordinator)
python=${PYTHON:-python3} rounds=${ROUNDS:-30} workers=2
here=$root/tests/bench/trainers
export PYTHONPATH=$root/edge_client/python:$here PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import torch' || { echo "$python has no torch: set PYTHON to one that has" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$here/job.sh"

# Runs a command in a session of its own; prints its seconds and the largest sum of its processes' memory, MB.
watch() {
  local begin session peak=0 now
  begin=$(date +%s.%N)
  setsid "$@" >"$work/log" 2>&1 &
  session=$!
  while kill -0 "$session" 2>/dev/null; do
    now=$(ps -e -o sid=,rss= | awk -v s="$session" '$1 == s { sum += $2 } END { print int(sum / 1000) }')
    ((now <= peak)) || peak=$now
    sleep 0.2
  done
  wait "$session" || { cat "$work/log" >&2; return 1; }
  awk -v b="$begin" -v e="$(date +%s.%N)" -v p="$peak" 'BEGIN { printf "%8.1f %8d\n", e - b, p }'
}

write_job "$work/job.toml" "$rounds" 2nn

printf '%-10s %8s %8s %8s\n' '' 's/round' 's' 'peak MB'
fits=$(for _ in $(seq $workers); do OMP_NUM_THREADS=1 "$python" "$here/bare.py" & done; wait)
awk -v w=$workers '{ sum += $1 } END { printf "%-10s %8.3f\n", "bare", sum / NR / w }' <<<"$fits"
whole=$(watch "$programs/starling-coordinator" simulate "$work/job.toml" --clients 100 --workers $workers \
  --trainer "$python $here/trainer.py" --out "$work/out")
median=$("$python" -c 'import json, statistics, sys
rounds = json.load(open(sys.argv[1]))["rounds"][1:]
print("%.3f" % statistics.median(each["seconds"] for each in rounds))' "$work/out/run.json")
printf '%-10s %8s %s\n' starling "$median" "$whole"
if "$python" -c 'import flwr, ray' 2>/dev/null; then
  whole=$(watch "$python" "$here/flower.py" "$rounds" $workers)
  printf '%-10s %8s %s\n' flower "$(sed -n 's/^median //p' "$work/log")" "$whole"
else
  echo 'flower     not installed: pip install "flwr[simulation]"'
fi
