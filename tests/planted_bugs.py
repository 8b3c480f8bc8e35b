#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the tests of whole gossip networks find bugs: plants each of a list in a copy of the
sources, builds gossip_peer_test and runs it, and says which test found it. Run by hand; the copy and
its build stay, so that the next time takes less."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "gossip_peer" / "planted_bugs.toml"
# In the order in which they are run; the first failure ends a bug's turn. Without sockets or time.
UNIT_TESTS = "PeerMachine*:Fallbacks*:RostersInForce*:ExchangeMachine*:NeighbourCourse*:" \
             "AsyncCourse*:AsyncCourse/*:Checkpoints*:CourseState*:PeerWorlds*"
SEEDS_AT_A_TIME = 50


def sources():
    """What git knows of or would, by path in the tree."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_sources(to):
    """Only what differs, so that no more is compiled again."""
    names = sources()
    for name in names:
        content = (ROOT / name).read_bytes()
        there = to / name
        if there.is_file() and there.read_bytes() == content:
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, there)
        os.utime(there)
    wanted = set(names)
    for path in to.rglob("*"):
        name = path.relative_to(to)
        if path.is_file() and name.parts[0] != "build" and str(name) not in wanted:
            path.unlink()


def check(bugs):
    """Whether each text stands in its file exactly once."""
    wrong = 0
    for bug in bugs:
        file = ROOT / bug["file"]
        count = file.read_text().count(bug["text"]) if file.is_file() else 0
        if count != 1 or bug["text"] == bug["replacement"]:
            print(f"error: {bug['name']}: its text stands {count} times in {bug['file']}: "
                  f"mend it in {LIST.relative_to(ROOT)}", file=sys.stderr)
            wrong += 1
    if wrong:
        sys.exit(2)


def run(command, cwd, log, environment=None, timeout=None):
    """The exit code; None where it took too long."""
    with open(log, "w") as out:
        try:
            return subprocess.run(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT,
                                  env=environment, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            return None


def first_failure(log):
    text = Path(log).read_text(errors="replace")
    failed = re.search(r"^\[  FAILED  \] ([^ ,]+)", text, re.MULTILINE)
    sentence = re.search(r"^(seed \d+[^\n]*)", text, re.MULTILINE)
    name = failed.group(1) if failed else "a test that ended the program"
    if not failed and (running := re.findall(r"^\[ RUN      \] ([^ ,]+)", text, re.MULTILINE)):
        name = running[-1] + ", which ended the program"
    return name + (f" ({sentence.group(1)[:120]})" if sentence else "")


def test(program, seeds, work):
    """What failed first; None: nothing did."""
    fast = "--gtest_fail_fast"
    steps = [([program, fast, f"--gtest_filter={UNIT_TESTS}"], None)]
    for begin in range(1, seeds + 1, SEEDS_AT_A_TIME):
        end = min(begin + SEEDS_AT_A_TIME - 1, seeds)
        environment = os.environ | {"STARLING_SEEDS": f"{begin}-{end}"}
        steps.append(([program, fast, "--gtest_filter=*PeerWorldSeeds.*/0"], environment))
    log = work / "test.log"
    for command, environment in steps:
        code = run(command, work, log, environment, timeout=900)
        if code is None:
            return "a test that did not end within 900 s"
        if code != 0:
            return first_failure(log)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="WORDS", default="",
                        help="bugs whose name contains this")
    parser.add_argument("--seeds", type=int, default=300, help="of whole networks (default 300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "planted_bugs",
                        help="where the copy is kept (default build/planted_bugs)")
    parser.add_argument("--check", action="store_true",
                        help="only whether the list fits the sources")
    arguments = parser.parse_args()

    with open(LIST, "rb") as file:
        bugs = tomllib.load(file)["bug"]
    check(bugs)
    if arguments.check:
        return 0
    bugs = [bug for bug in bugs if arguments.only in bug["name"]]

    work = arguments.directory.resolve()
    copy = work / "source"
    copy.mkdir(parents=True, exist_ok=True)
    copy_sources(copy)
    log = work / "build.log"
    if run(["cmake", "--preset", "release", "-DSTARLING_TEST_SET=unit"], copy, log) != 0:
        sys.exit(f"error: the copy cannot be configured: see {log}")
    build = ["cmake", "--build", "build/release", "--parallel", str(arguments.jobs), "--target",
             "gossip_peer_test"]
    program = copy / "build" / "release" / "bin" / "gossip_peer_test"

    print(f"without a bug, {arguments.seeds} seeds: ", end="", flush=True)
    if run(build, copy, log) != 0:
        sys.exit(f"it cannot be built: see {log}")
    if failure := test(program, arguments.seeds, work):
        sys.exit(f"{failure} fails: see {work / 'test.log'}")
    print("all tests pass", flush=True)

    missed = 0
    for bug in bugs:
        began = time.monotonic()
        file = copy / bug["file"]
        sound = file.read_text()
        print(f"{bug['name']}: ", end="", flush=True)
        try:
            file.write_text(sound.replace(bug["text"], bug["replacement"]))
            if run(build, copy, log) != 0:
                sys.exit(f"error: it cannot be built: see {log}")
            failure = test(program, arguments.seeds, work)
        finally:
            file.write_text(sound)
        missed += failure is None
        print(f"found by {failure}" if failure else "NOT FOUND",
              f"[{time.monotonic() - began:.0f} s]", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
