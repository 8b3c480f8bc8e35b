#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wrong arguments of examples/quickstart.sh are refused with a sentence and exit code 2, before
# anything is installed, built or started.
# usage: quickstart_arguments_test.sh SCRIPT
set -euo pipefail

script=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir empty

refused() {  # refused SENTENCE ARGUMENT...
  local sentence=$1 status=0
  shift
  timeout 20 "$script" "$@" >output 2>errors || status=$?
  if [ $status -ne 2 ] || [ -s output ] || ! grep -q -F -- "$sentence" errors; then
    printf 'FAILED: %s ended with %s and said:\n' "$*" $status >&2
    cat output errors >&2
    exit 1
  fi
}

for wrong in abc '' 0 -3 1.5 1e3 99999999999999999999 '3 4' 'a[$(touch was-run)]'; do
  refused "--clients must be a whole number from 1 to 1000, not '$wrong'" --clients "$wrong"
done
refused "--clients must be a whole number from 1 to 1000, not '1001'" --clients 1001
refused "--rounds must be a whole number from 1 to" --rounds 0
refused "--seed must be a whole number from 0 to" --seed x
refused '--rounds needs a value' --clients 3 --rounds
refused "there is no directory 'nowhere'" --programs nowhere
refused "no starling-coordinator in 'empty'" --programs empty
refused "unknown argument '--client'" --client 3
refused 'usage: examples/quickstart.sh' --client 3
[ ! -e was-run ]
