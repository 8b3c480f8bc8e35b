#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the tests of whole gossip networks and of their parts find bugs: plants those of a list in a
copy of the sources, builds the tests there, lets one bug after the other show and says which test
found it. Run by hand; the copy and its build stay, so that the next time takes less."""

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
# The first failure ends a bug's turn. First the programs that test the folder of the bug's file, where
# that is not the one below.
OF_FOLDER = {"gossip/collective": ["gossip_collective_test", "gossip_collective_faults_test"],
             "gossip/algorithms": ["gossip_algorithms_test", "gossip_robust_test"],
             "core/identity": ["identity_test"]}
# Of whole peers: the machines and their rules, networks, networks from seeds, and last all others.
OF_PEERS = "gossip_peer_test"
MACHINES = ("PeerMachine*:Fallbacks*:RostersInForce*:Checkpoints*:ProtocolState*:NeighbourProtocol*:"
            "CopyRules*:ApartMembers*:UsualDistance*")
NETWORKS = "PeerWorlds*:AsynchronousProtocol*:AsynchronousProtocol/*"
SEEDS = "*PeerWorldSeeds.*/0"
OTHERS = f"-{MACHINES}:{NETWORKS}:*PeerWorldSeeds.*"
SEEDS_AT_A_TIME = 50
VARIABLE = "STARLING_PLANTED_BUG"
HEADER = f"""// Which bug of tests/gossip_peer/planted_bugs.toml is to show, from 1; 0: none.
#pragma once
#include <cstdlib>
inline bool planted_bug(int number) {{
  static const int shown = std::getenv("{VARIABLE}") ? std::atoi(std::getenv("{VARIABLE}")) : 0;
  return shown == number;
}}
"""


def sources():
    """What git knows of or would, by path in the tree."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_with_bugs(to, bugs):
    """Writes only what differs, so that no more is compiled again."""
    contents = {name: (ROOT / name).read_bytes() for name in sources()}
    contents["planted_bug.h"] = HEADER.encode()
    for number, bug in enumerate(bugs, 1):
        planted = bug["replacement"].replace("PLANTED", f"planted_bug({number})")
        content = contents[bug["file"]].decode()
        if bug["text"] not in content:
            sys.exit(f"error: {bug['name']}: another bug has changed its text")
        if '"planted_bug.h"' not in content:
            content = '#include "planted_bug.h"\n' + content
        contents[bug["file"]] = content.replace(bug["text"], planted).encode()
    for name, content in contents.items():
        there = to / name
        if there.is_file() and there.read_bytes() == content:
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)
        if (ROOT / name).is_file():
            shutil.copymode(ROOT / name, there)
    for path in to.rglob("*"):
        name = path.relative_to(to)
        if path.is_file() and name.parts[0] != "build" and str(name) not in contents:
            path.unlink()


def check(bugs):
    """Whether each text stands in its file exactly once."""
    wrong = 0
    for bug in bugs:
        file = ROOT / bug["file"]
        count = file.read_text().count(bug["text"]) if file.is_file() else 0
        if count != 1 or "PLANTED" not in bug["replacement"]:
            print(f"error: {bug['name']}: its text stands {count} times in {bug['file']}, or its "
                  f"replacement is without PLANTED: mend it in {LIST.relative_to(ROOT)}",
                  file=sys.stderr)
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


def test(programs, number, folders, seeds, seeds_only, log):
    """What failed first; None: nothing did. `programs`: where they are; `folders`: of bugs."""
    shows = os.environ | {VARIABLE: str(number)}

    def step(program, tests="*", more=None):
        command = [programs / program, "--gtest_fail_fast", f"--gtest_filter={tests}"]
        return command, shows | (more or {})

    steps = [step(program) for folder in folders for program in OF_FOLDER.get(folder, [])]
    steps += [step(OF_PEERS, MACHINES), step(OF_PEERS, NETWORKS)]
    with_seeds = []
    for begin in range(1, seeds + 1, SEEDS_AT_A_TIME):
        end = min(begin + SEEDS_AT_A_TIME - 1, seeds)
        some = {"STARLING_SEEDS": f"{begin}-{end}"}
        with_seeds.append(step(OF_PEERS, SEEDS, some))
    steps += with_seeds
    steps.append(step(OF_PEERS, OTHERS))
    for command, environment in with_seeds if seeds_only else steps:
        code = run(command, log.parent, log, environment, timeout=900)
        if code is None:
            return "a test that did not end within 900 s"
        if code != 0:
            return first_failure(log)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="WORDS", action="append",
                        help="bugs whose name contains this, or one of several")
    parser.add_argument("--seeds", type=int, default=300, help="of whole networks (default 300)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "planted_bugs",
                        help="where the copy is kept (default build/planted_bugs)")
    parser.add_argument("--seeds-only", action="store_true",
                        help="without the unit tests: what do whole networks find?")
    parser.add_argument("--check", action="store_true",
                        help="only whether the list fits the sources")
    arguments = parser.parse_args()

    with open(LIST, "rb") as file:
        bugs = tomllib.load(file)["bug"]
    check(bugs)
    if arguments.check:
        return 0

    work = arguments.directory.resolve()
    copy = work / "source"
    copy.mkdir(parents=True, exist_ok=True)
    copy_with_bugs(copy, bugs)
    log = work / "build.log"
    if run(["cmake", "--preset", "release", "-DSTARLING_TEST_SET=all"], copy, log) != 0:
        sys.exit(f"error: the copy cannot be configured: see {log}")
    if run(["cmake", "--build", "build/release", "--parallel", str(arguments.jobs), "--target",
            OF_PEERS, *sum(OF_FOLDER.values(), [])], copy, log) != 0:
        sys.exit(f"error: the copy cannot be built: see {log}")
    programs = copy / "build" / "release" / "bin"

    print(f"without a bug, {arguments.seeds} seeds: ", end="", flush=True)
    if failure := test(programs, 0, OF_FOLDER, arguments.seeds, arguments.seeds_only,
                       work / "test.log"):
        sys.exit(f"{failure} fails: see {work / 'test.log'}")
    print("all tests pass", flush=True)

    shown = missed = 0
    for number, bug in enumerate(bugs, 1):
        if arguments.only and not any(words in bug["name"] for words in arguments.only):
            continue
        began = time.monotonic()
        print(f"{bug['name']}: ", end="", flush=True)
        folder = str(Path(bug["file"]).parent)
        failure = test(programs, number, [folder], arguments.seeds, arguments.seeds_only,
                       work / f"test-{number}.log")
        shown += 1
        missed += failure is None
        print(f"found by {failure}" if failure else "NOT FOUND",
              f"[{time.monotonic() - began:.0f} s]", flush=True)
    print(f"{shown - missed} of {shown} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
