#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which topology? Trains the same model on the same nodes over a ring, a torus, an exponential graph
# and Base-2, each with unevenly spread classes, and shows the four runs side by side.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/build_programs.sh
. "$root/examples/build_programs.sh"

usage() {
  cat <<'TEXT'
usage: examples/compare_topologies.sh [--out DIR] [--programs DIR] [FLAG...]

  --out DIR        a new directory for the runs and comparison.html (default compare-topologies)
  --programs DIR   use the programs in DIR; install and build nothing
  FLAG...          for every run, as starling-gossip simulate takes it: --steps 1000 --model mlp
TEXT
}

topologies=(ring torus exponential base-graph:k=1)
out=compare-topologies programs= flags=()
while [ $# -gt 0 ]; do
  case $1 in
    --out | --programs) [ -n "${2:-}" ] || refuse "$1 needs a directory" ;;
  esac
  case $1 in
    --out) out=$2; shift 2 ;;
    --programs) programs=$(program_directory "$2" starling-gossip); shift 2 ;;
    --help) usage; exit 0 ;;
    *) flags+=("$1"); shift ;;
  esac
done

[ -n "$programs" ] || build_programs starling-gossip

if [ -e "$out" ]; then
  echo "compare_topologies: $out is there already: name a new directory with --out, or remove it" >&2
  exit 1
fi
# What FLAG may say otherwise: a flag wins over the file.
net=$(mktemp)
trap 'rm -f "$net"' EXIT
cat >"$net" <<'TOML'
steps = 400
[topology]
nodes = 16
[data]
partition = "balanced-dirichlet:alpha=0.1"
TOML
runs=()
for topology in "${topologies[@]}"; do
  say "$topology"
  run=$out/${topology%%:*}
  # The curve is in the report.
  "$programs/starling-gossip" simulate "$net" --topology "$topology" "${flags[@]}" --out "$run" | tail -n 3
  runs+=("$run")
done

say 'side by side'
"$programs/starling-gossip" report "${runs[@]}" --out "$out/comparison.html"
if [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ] && command -v xdg-open >/dev/null; then
  xdg-open "$out/comparison.html" >/dev/null 2>&1 || true
fi
