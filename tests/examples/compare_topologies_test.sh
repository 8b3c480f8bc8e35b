#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A few steps of examples/compare_topologies.sh: every run has its page, the page of all names each,
# and a directory that is there is left alone.
# usage: compare_topologies_test.sh SCRIPT DIRECTORY-OF-PROGRAMS
set -euo pipefail

script=$1 programs=$2
unset DISPLAY WAYLAND_DISPLAY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

compare() { "$script" --programs "$programs" --out "$work/runs" --steps 12 --seed 7; }

refused() {  # refused SENTENCE ARGUMENT...
  local sentence=$1 status=0
  shift
  "$script" --out "$work/refused" "$@" >/dev/null 2>"$work/errors" || status=$?
  [ $status -eq 2 ] || fail "$* ended with $status"
  grep -q -F -- "$sentence" "$work/errors" || fail "$* does not say why it was refused"
  [ ! -e "$work/refused" ] || fail "$* left its directory"
}
mkdir "$work/empty"
refused "no starling-gossip in '$work/empty'; build it" --programs "$work/empty"
refused "there is no directory '$work/nowhere'" --programs "$work/nowhere"
refused '--programs needs a directory' --programs
refused "unknown flag '--stepps'" --programs "$programs" --stepps 12

compare | tee "$work/output"
for run in ring torus exponential base-graph; do
  [ -s "$work/runs/$run/report.html" ] || fail "$run has no report.html"
  grep -q '"seed":7' "$work/runs/$run/summary.json" || fail "--seed did not reach $run"
done
for topology in ring torus exponential base-graph:k=1; do
  grep -q "^$topology " "$work/output" || fail "the table has no row $topology"
  grep -q -F "$topology" "$work/runs/comparison.html" || fail "the page does not name $topology"
done
grep -q -F "written: $work/runs/comparison.html" "$work/output" || fail 'the path is not printed'

status=0
compare >/dev/null 2>"$work/again" || status=$?
[ $status -eq 1 ] || fail "a second run into the same directory ended with $status"
grep -q 'is there already' "$work/again" || fail 'a second run does not say why it was refused'
