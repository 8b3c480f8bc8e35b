#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tables of robust.sh and algorithms.sh: "diverges" stands only where a run diverged, and a program
# that cannot run ends them with its message. All benchmarks say which program they miss.
set -euo pipefail

bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TOPOLOGIES=ring SEEDS='1 2' JOBS=2 RATES='0.2 0.4 0.8' ALPHAS=1

fail() {
  echo "$*" >&2
  sed 's/^/  /' "$work/out" "$work/err" >&2
  exit 1
}

# program BODY: a starling-gossip that does this, in $work/bin.
program() {
  mkdir -p "$work/bin"
  printf '#!/usr/bin/env bash\n%s\n' "$1" >"$work/bin/starling-gossip"
  chmod +x "$work/bin/starling-gossip"
}

# expect STATUS WORDS SCRIPT [ARGUMENT]: WORDS stand in what it prints, in a table or as its only error.
expect() {
  local status=$1 words=$2 script=$3 got=0
  shift 3
  "$bench/$script" "$@" >"$work/out" 2>"$work/err" || got=$?
  [ "$got" = "$status" ] || fail "$script $* ended with $got, not with $status"
  if [ "$status" = 0 ]; then
    grep -qF "$words" "$work/out" || fail "$script $* does not print: $words"
    [ ! -s "$work/err" ] || fail "$script $* complains"
  else
    grep -qF "$words" "$work/err" || fail "$script $* does not say: $words"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$script $* says more than one sentence"
    ! grep -q '|' "$work/out" || fail "$script $* prints a table all the same"
  fi
}

program 'case "$* " in
*"--attack outlier "* | *"--learning-rate 0.8 "*)
  echo "error: the loss of node 3 is not finite in step 9: lower attack.scale" >&2
  exit 1 ;;
*"--seed 1 "*"--learning-rate 0.4 "*) accuracy=0.6 ;;
*"--learning-rate 0.4 "*) accuracy=0.8 ;;
*"--seed 1 "*) accuracy=0.5 ;;
*) accuracy=0.75 ;;
esac
echo "{\"measurements\":[{\"eval_accuracy\":0.1},{\"eval_accuracy\":$accuracy}]}"'
row='| ring | off | 62.5 ± 12.5 | 62.5 ± 12.5 | 62.5 ± 12.5 | diverges |'
expect 0 "$row" robust.sh "$work/bin"
expect 0 '| dpsgd | ring | 70.0 ± 10.0 (0.4) |' algorithms.sh "$work/bin/"

for script in robust.sh algorithms.sh; do
  program 'echo "error: there is no data set" >&2; exit 2'
  expect 1 'error: there is no data set' $script "$work/bin"
  program 'exit 139'
  expect 1 'failed without a message' $script "$work/bin"
  program 'echo "{}"'
  expect 1 'printed no accuracy' $script "$work/bin"
done

for script in "$bench"/*.sh; do
  grep -q '^# .*\[DIRECTORY-OF-PROGRAMS' "$script" || continue
  script=${script##*/}
  expect 2 "in $work/no-such: name the directory that holds it" "$script" "$work/no-such"
done
expect 2 "there is no program starling-edge in $work/bin: name" peers.sh "$work/bin"
expect 2 "there is no program starling-gossip in $work/bin/starling-gossip: name" gossip.sh "$work/bin/starling-gossip"
