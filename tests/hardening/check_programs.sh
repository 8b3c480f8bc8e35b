#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That programs are position-independent, with read-only relocations that are bound at start, a stack
# that is not executable, stack protection and, where they were built with it, checked copies. That
# OBJECTS are marked for control-flow integrity, and so the programs where the C library's start files
# let them be. Says what is missing.
# usage: check_programs.sh [--fortified] [--marked "OBJECTS" COMPILER] PROGRAM...
set -euo pipefail
missing=0
fortified=
marked=
must_be_marked=

expect() {  # PROGRAM WHAT PATTERN TEXT
  grep -qE "$3" <<<"$4" || { echo "$1: $2 is missing"; missing=1; }
}
expect_mark() {  # FILE
  expect "$1" 'the mark of control-flow integrity' 'IBT, SHSTK' "$(readelf -nW "$1")"
}

if [ "${1:-}" = --fortified ]; then
  fortified=yes
  shift
fi
if [ "${1:-}" = --marked ]; then
  marked=$2
  compiler=$3
  shift 3
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo 'int main() {}' >"$work/empty.cpp"
  "$compiler" -fcf-protection=full "$work/empty.cpp" -o "$work/empty"
  if readelf -nW "$work/empty" | grep -q 'IBT, SHSTK'; then must_be_marked=yes; fi
fi
[ $# -gt 0 ] || { echo 'no program was given'; exit 1; }
for object in $marked; do expect_mark "$object"; done
for program in "$@"; do
  dynamic=$(readelf -dW "$program")
  segments=$(readelf -lW "$program")
  symbols=$(readelf -W --dyn-syms "$program")
  expect "$program" 'PIE' 'FLAGS_1.*PIE' "$dynamic"
  expect "$program" 'immediate binding' 'FLAGS_1.*NOW' "$dynamic"
  expect "$program" 'read-only relocations' '^ +GNU_RELRO ' "$segments"
  expect "$program" 'a stack that is not executable' '^ +GNU_STACK .* RW +0x' "$segments"
  expect "$program" 'stack protection' '__stack_chk_fail' "$symbols"
  if [ -n "$fortified" ]; then expect "$program" 'fortify' '__memcpy_chk' "$symbols"; fi
  if [ -n "$must_be_marked" ]; then expect_mark "$program"; fi
done
exit "$missing"
