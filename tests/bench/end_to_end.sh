#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real federation over mTLS on loopback, beside the same job simulated: seconds a round.
# usage: tests/bench/end_to_end.sh [DIRECTORY-OF-PROGRAMS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/bench/programs.sh
programs=$(programs_in "${1:-build/release/bin}" starling-coordinator starling-edge)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

root=$PWD
cd "$work"
"$root/examples/quickstart.sh" --programs "$programs" >quickstart.txt
"$programs/starling-coordinator" simulate "$root/examples/fashion-2nn.toml" --clients 12 \
  >simulate.txt 2>&1

median_seconds() {  # of the lines "... accuracy 0.8421  1.93 s  in ..."
  sed -n 's/.*accuracy [0-9.]*  \([0-9.]*\) s  in.*/\1/p' "$1" | sort -g |
    awk '{ s[NR] = $1 } END { printf "%.3f s a round (median of %d)\n", s[int((NR + 1) / 2)], NR }'
}
printf '12 processes over mTLS: %s\n' "$(median_seconds quickstart.txt)"
printf 'simulated, no sockets:  %s\n' "$(median_seconds simulate.txt)"
