#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer (core/client/TRAINER.md) with nothing but the standard library: least squares y = w x + b
over rows that follow from the client's name. Its first argument says how it misbehaves, and may begin
with the operation in which it does ("fit:hangs"); its second is a directory for what it must remember
between two starts."""

import array
import json
import os
import signal
import subprocess
import sys

WHEN, _, MODE = (sys.argv[1] if len(sys.argv) > 1 else "honest").rpartition(":")
MEMORY = sys.argv[2] if len(sys.argv) > 2 else "."
FEATURES = 3
ROWS = 40


def first_time(what):
    """Whether no process did this before: what misbehaves once is honest after its restart."""
    path = os.path.join(MEMORY, what)
    if os.path.exists(path):
        return False
    open(path, "w").close()
    return True


def rows_of(client):
    """As process_trainer_test.cpp makes them."""
    key = sum(client.encode())
    rows = []
    for i in range(ROWS):
        x = [(i * 7 + j * 3 + key) % 11 / 10 - 0.5 for j in range(FEATURES)]
        rows.append((x, 2 * x[0] - x[-1] + 0.5))
    return rows


def read_vector(place):
    vector = array.array("f")
    vector.frombytes(os.pread(5, place["bytes"], place["offset"]))
    return vector


def write_vector(place, values):
    os.pwrite(5, array.array("f", values).tobytes(), place["offset"])


# The vector: "b" (trainable), "counter" (a buffer, which one mode does without), "w" [FEATURES], by
# name.
HAS_COUNTER = not MODE.endswith("without-buffers")
DIES_ALWAYS = MODE.startswith("dies-always")
W = 2 if HAS_COUNTER else 1


def gradient(vector, rows):
    result = [0.0] * len(vector)
    loss = 0.0
    for x, y in rows:
        error = vector[0] + sum(w * v for w, v in zip(vector[W:], x)) - y
        loss += error * error / 2
        result[0] += error / len(rows)
        for i, v in enumerate(x):
            result[W + i] += error * v / len(rows)
    return result, loss / len(rows)


def batch(rows, train, step):
    size = min(train["batch-size"], len(rows))
    return [rows[(step * size + i) % len(rows)] for i in range(size)]


def describe(request):
    tensors = [
        {"name": "w", "shape": [FEATURES], "dtype": "float32", "role": "trainable"},
        {"name": "b", "shape": [], "dtype": "float32", "role": "trainable"},
        {"name": "counter", "shape": [1], "dtype": "int64", "role": "buffer"},
    ]
    if not HAS_COUNTER:
        tensors.pop()
    operations = ["initialize", "fit", "evaluate", "gradient", "of-a-later-version"]
    answer = {"protocol": 1, "name": "fake.py", "operations": operations, "rows": ROWS, "held-out": 4,
              "tensors": tensors}
    if MODE == "fit-only":
        answer["operations"] = ["fit"]
    if MODE == "no-rows" or (MODE == "rows-of-clients" and request["client"] == ""):
        answer["rows"] = 0
    if MODE == "enormous":
        tensors[0]["shape"] = [10**12]
    if MODE == "another-version":
        answer["protocol"] = 2
    if MODE == "private":
        tensors.append({"name": "head", "shape": [2, 3], "dtype": "float16", "role": "private"})
    if MODE == "needs-settings" and "hidden" not in request["settings"]:
        return {"error": {"message": "KeyError: 'hidden'"}}
    if "refuse" in request["settings"]:
        return {"error": {"code": "bad-settings", "message": "these\x1b settings\nare refused"}}
    return {"ok": answer}


def initialize(request):
    task = request["task"]
    first = task["seed"] % 1000 / 1000 if "seeded" in task["settings"] else 0.5
    write_vector(request["result"], [first] + [7] * HAS_COUNTER + [0.25] * FEATURES)
    return {}


def fit(request):
    vector, task = read_vector(request["parameters"]), request["task"]
    if MODE == "large-results":
        write_vector(request["result"], [v + 1 for v in vector])
        return {"weight": 1, "loss": 0}
    rows, steps = rows_of(task["client"]), task["train"]["local-steps"] or 1
    loss = 0.0
    for step in range(steps):
        change, loss = gradient(vector, batch(rows, task["train"], step))
        vector = [v - task["train"]["learning-rate"] * g for v, g in zip(vector, change)]
    if "echo" in task["settings"]:  # what the task says, where a test can see it
        print("task " + json.dumps(task, sort_keys=True), flush=True)
    write_vector(request["result"], vector)
    return {"weight": len(rows), "loss": loss, "steps": steps + (MODE == "one-step-more")}


def evaluate(request):
    _, loss = gradient(read_vector(request["parameters"]), rows_of(request["task"]["client"])[:4])
    return {"rows": 4, "loss": loss, "accuracy": 0.75}


def gradient_step(request):
    task, step = request["task"], request["step"]
    rows = rows_of(task["client"])
    rows = rows if step is None else batch(rows, task["train"], step)
    vector = read_vector(request["parameters"])
    result, loss = gradient(vector, rows)
    if HAS_COUNTER:
        result[1] = vector[1] + (1 if "counts" in task["settings"] else 0)
    write_vector(request["result"], result)
    return {"rows": len(rows), "loss": loss}


OPERATIONS = {"initialize": initialize, "fit": fit, "evaluate": evaluate, "gradient": gradient_step}


def wait_for_ever():
    while True:
        signal.pause()


def send(text):
    view = text.encode()
    while view:
        view = view[os.write(4, view):]


def misbehave(request):
    """Instead of the first task, or behind its answer; returns whether it is answered as it should."""
    if MODE == "dies":
        print("about to fail\nRuntimeError: out of \x1b[31mluck", file=sys.stderr, end="", flush=True)
        os._exit(3)
    elif DIES_ALWAYS:
        sys.exit("the GPU has fallen off the bus")
    elif MODE == "kills-itself":
        os.kill(os.getpid(), signal.SIGKILL)
    elif MODE == "hangs":
        wait_for_ever()
    elif MODE == "floods-answers":
        while True:
            os.write(4, b"x" * 65536)
    elif MODE == "not-json":
        send("hello\n")
    elif MODE == "a-list":
        send("[1]\n")
    elif MODE == "wrong-id":
        send(json.dumps({"id": request["id"] + 1, "ok": {}}) + "\n")
    elif MODE == "both":
        send(json.dumps({"id": request["id"], "ok": {}, "error": {"message": "x"}}) + "\n")
    elif MODE == "neither":
        send(json.dumps({"id": request["id"]}) + "\n")
    elif MODE == "no-loss":
        send(json.dumps({"id": request["id"], "ok": {"weight": 1}}) + "\n")
    elif MODE == "no-weight":
        send(json.dumps({"id": request["id"], "ok": {"weight": 0, "loss": 1}}) + "\n")
    elif MODE == "nan-loss":
        send('{"id": %d, "ok": {"weight": 1, "loss": NaN}}\n' % request["id"])
    elif MODE == "nan-result":
        write_vector(request["result"], [1.0, float("nan")])
        send(json.dumps({"id": request["id"], "ok": {"weight": 1, "loss": 1}}) + "\n")
    elif MODE == "no-result":
        send(json.dumps({"id": request["id"], "ok": {"weight": 1, "loss": 1}}) + "\n")
    elif MODE == "bad-code":
        send(json.dumps({"id": request["id"], "error": {"code": "No Data", "message": "x"}}) + "\n")
    elif MODE == "truncates":
        os.ftruncate(5, 0)
        send(json.dumps({"id": request["id"], "ok": {"weight": 1, "loss": 1}}) + "\n")
    elif MODE == "closes-answers":
        os.close(4)
        wait_for_ever()
    elif MODE == "takes-memory":
        held = bytearray(300_000_000)
        for i in range(0, len(held), 4096):
            held[i] = 1
        wait_for_ever()
    elif MODE == "answers-twice":
        answer = json.dumps({"id": request["id"], "ok": fit(request)}) + "\n"
        send(answer + answer)
    elif MODE == "ends-after-a-task":
        print("process %d" % os.getpid(), flush=True)
        send(json.dumps({"id": request["id"], "ok": fit(request)}) + "\n")
        os._exit(0)
    elif MODE == "error":
        send(json.dumps({"id": request["id"], "error": {"message": "cam-7 has no rows"}}) + "\n")
    else:
        return True
    return False


def await_cancel(lines, request):
    """A task that lasts until it is cancelled."""
    for line in lines:
        message = json.loads(line)
        if message == {"op": "cancel", "id": request["id"]}:
            return {"id": request["id"], "error": {"code": "stopped", "message": "as asked"}}
    sys.exit(0)


def start():
    if MODE == "dies-at-start" and first_time("started"):
        sys.exit("ModuleNotFoundError: No module named 'torch'")
    if MODE == "does-not-serve" and first_time("started"):
        sys.exit(0)
    if MODE == "prints-and-does-not-serve" and first_time("started"):
        print("accuracy 0.8")
        sys.exit(0)
    if MODE == "does-not-read":
        wait_for_ever()
    if MODE == "starts-when-told":
        print("starting", flush=True)
        with open(os.path.join(MEMORY, "gate")):  # a fifo: until the other end is opened
            pass
    if MODE == "leaves-a-child":
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", MEMORY])
    if MODE == "floods-output":
        for i in range(5000):
            print("line %d" % i)
        print("\x1b[31mred\rprogress 100 %" + "." * 10000, flush=True)
    if MODE == "environment":
        names = sorted(name for name in os.environ if name.startswith("STARLING_"))
        print("environment %s, descriptors %s" % (names, sorted(os.listdir("/proc/self/fd"))[:6]), flush=True)
        print("threads", os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"], flush=True)


def main():
    start()
    lines = os.fdopen(3)
    for line in lines:
        request = json.loads(line)
        if request["op"] == "stop":
            if MODE == "does-not-stop":
                wait_for_ever()
            return
        if request["op"] == "cancel":
            continue
        if request["op"] == "describe":
            answer = {"id": request["id"], **describe(request)}
        elif WHEN not in ("", request["op"]):
            answer = {"id": request["id"], "ok": OPERATIONS[request["op"]](request)}
        elif MODE in ("cancellable", "ignores-cancel") and first_time("cancel"):
            print("waits for a cancel", flush=True)
            answer = wait_for_ever() if MODE == "ignores-cancel" else await_cancel(lines, request)
        elif MODE not in ("error", "ends-after-a-task") and not DIES_ALWAYS and not first_time("misbehaved"):
            answer = {"id": request["id"], "ok": OPERATIONS[request["op"]](request)}
        elif misbehave(request):
            answer = {"id": request["id"], "ok": OPERATIONS[request["op"]](request)}
        else:
            continue
        send(json.dumps(answer) + "\n")


main()
