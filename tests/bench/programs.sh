# SPDX-License-Identifier: Apache-2.0
# For benchmarks that source it: the programs that they run.

# programs_in DIRECTORY NAME...: its absolute path, where all these programs are in it. Status 2 where one
# is not.
programs_in() {
  local directory=$1 name
  shift
  for name; do
    if [ ! -f "$directory/$name" ] || [ ! -x "$directory/$name" ]; then
      echo "error: there is no program $name in $directory: name the directory that holds it" >&2
      return 2
    fi
  done
  (cd "$directory" && pwd)
}
