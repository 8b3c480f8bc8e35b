#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That programs are position-independent, with read-only relocations that are bound at start, a stack
# that is not executable, and stack protection. Says what is missing.
# usage: check_programs.sh PROGRAM...
set -euo pipefail
missing=0

expect() {  # PROGRAM WHAT PATTERN TEXT
  grep -qE "$3" <<<"$4" || { echo "$1: $2 is missing"; missing=1; }
}

[ $# -gt 0 ] || { echo 'no program was given'; exit 1; }
for program in "$@"; do
  dynamic=$(readelf -dW "$program")
  segments=$(readelf -lW "$program")
  symbols=$(readelf -W --dyn-syms "$program")
  expect "$program" 'PIE' 'FLAGS_1.*PIE' "$dynamic"
  expect "$program" 'immediate binding' 'FLAGS_1.*NOW' "$dynamic"
  expect "$program" 'read-only relocations' '^ +GNU_RELRO ' "$segments"
  expect "$program" 'a stack that is not executable' '^ +GNU_STACK .* RW +0x' "$segments"
  expect "$program" 'stack protection' '__stack_chk_fail' "$symbols"
done
exit "$missing"
