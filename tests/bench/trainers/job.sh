# SPDX-License-Identifier: Apache-2.0
# The federation that the benchmarks of custom trainers simulate; to be sourced.

# write_job FILE ROUNDS MODEL: a cohort of 10, one epoch in batches of 10, MODEL of networks.py.
write_job() {
  cat >"$1" <<JOB
rounds = $2
[model]
kind = "external"
[trainer]
model = "$3"
[train]
batch-size = 10
[round]
cohort = 10
wait-for = 100
[evaluate]
every = 0
[checkpoint]
keep = 1
JOB
}
