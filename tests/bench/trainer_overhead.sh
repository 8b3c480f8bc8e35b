#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What Starling adds to a training loop: seconds from the start of a round to the start of the next (median) of a
# simulation of ten clients a round on one worker, beside the same PyTorch loop in one process, by turns. The loop is
# timed without and with the mean of the ten models, which a simulation always includes.
# usage: trainer_overhead.sh [DIRECTORY-OF-PROGRAMS]   PYTHON (python3): with torch; MODELS ("2nn cnn"), ROUNDS (8),
# PAIRS (5)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/tests/bench/programs.sh"
programs=$(programs_in "${1:-$root/build/release/bin}" starling-coordinator)
python=${PYTHON:-python3} rounds=${ROUNDS:-8} pairs=${PAIRS:-5}
here=$root/tests/bench/trainers
export PYTHONPATH=$root/edge_client/python:$here PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
"$python" -c 'import torch' || { echo "$python has no torch: set PYTHON to one that has" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$here/job.sh"

simulated() {
  write_job "$work/job.toml" $((rounds + 2)) "$1"
  "$programs/starling-coordinator" simulate "$work/job.toml" --clients 100 --workers 1 \
    --trainer "$python $here/trainer.py" --out "$work/out" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  "$python" -c 'import datetime, json, statistics, sys
starts = [datetime.datetime.fromisoformat(each["started"].replace("Z", "+00:00")).timestamp()
          for each in json.load(open(sys.argv[1]))["rounds"]][1:]  # the first one reads the rows
print("%.4f" % statistics.median(after - before for before, after in zip(starts, starts[1:])))' "$work/out/run.json"
  rm -r "$work/out"
}

printf '%-6s %10s %10s %10s %10s %10s\n' model starling loop 'with mean' ratio 'with mean'
for model in ${MODELS:-2nn cnn}; do
  for _ in $(seq "$pairs"); do
    echo "$(simulated "$model") $("$python" "$here/bare.py" "$model" "$rounds")"
  done | "$python" -c 'import statistics, sys
rows = [[float(word) for word in line.split()] for line in sys.stdin]
columns = [list(column) for column in zip(*rows)]
columns += [[row[0] / row[1] for row in rows], [row[0] / row[2] for row in rows]]
def line(name, of):
    print("%-6s " % name + " ".join("%10.4f" % of(column) for column in columns))
line(sys.argv[1], statistics.median)
line("  min", min)
line("  max", max)' "$model"
done
