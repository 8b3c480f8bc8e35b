# SPDX-License-Identifier: Apache-2.0
"""starling.torch against loops written by hand."""

import os

import numpy as np
import pytest
from conftest import simulates_trainers

torch = pytest.importorskip("torch", reason="PyTorch is not installed (apt: python3-torch)")

import starling  # noqa: E402
from starling.torch import TorchTrainer  # noqa: E402
from starling.trainer import Task  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Subset, TensorDataset  # noqa: E402

GENERATOR = torch.Generator().manual_seed(3)
ROWS = TensorDataset(torch.randn(50, 6, generator=GENERATOR),
                     torch.randint(0, 3, (50,), generator=GENERATOR))
LOSS = nn.CrossEntropyLoss()
TRAIN = {"learning-rate": 0.1, "local-epochs": 2, "local-steps": 0, "batch-size": 8,
         "optimizer": "sgd", "momentum": 0.9, "weight-decay": 0, "beta1": 0.9, "beta2": 0.999,
         "epsilon": 1e-8, "clip-norm": 0}


def net(settings=None):
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def loader_of(task):
    return DataLoader(ROWS, task.batch_size, shuffle=True)


def task(seed=11, **train):
    return Task(client="cam-1", round=1, rounds=1, seed=seed, train={**TRAIN, **train})


def copied(tensors):
    return {name: np.array(array) for name, array in tensors.items()}


def by_hand(parameters, loader, optimizer_of, epochs=1, steps=None, seed=11):
    model = net()
    model.load_state_dict({name: torch.from_numpy(a) for name, a in copied(parameters).items()})
    optimizer = optimizer_of(model.parameters())
    torch.manual_seed(seed)
    taken = 0
    for _ in range(epochs):
        for inputs, targets in loader:
            if taken == steps:
                break
            optimizer.zero_grad()
            LOSS(model(inputs), targets).backward()
            optimizer.step()
            taken += 1
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert np.array_equal(array, other[name]), name


def test_buffers_are_what_no_optimizer_changes():
    trainer = TorchTrainer(net, LOSS, loader_of)
    tensors = trainer.initialize(task())
    assert set(tensors) == set(net().state_dict())
    assert trainer.buffers == {"1.running_mean": "mean", "1.running_var": "mean",
                               "1.num_batches_tracked": "maximum"}
    frozen = net()
    frozen[0].weight.requires_grad = False
    trainer = TorchTrainer(frozen, LOSS, loader_of)
    trainer.initialize(task())
    assert "0.weight" in trainer.buffers and "0.bias" not in trainer.buffers


def test_initial_weights_follow_from_the_seed():
    trainer = TorchTrainer(net, LOSS, loader_of)
    first, second, third = (copied(trainer.initialize(task(seed))) for seed in (1, 2, 1))
    assert_equal(first, third)
    assert not np.array_equal(first["0.weight"], second["0.weight"])


def test_a_given_module_begins_as_it_was_given():
    model = net()
    given = {name: tensor.clone().numpy() for name, tensor in model.state_dict().items()}
    trainer = TorchTrainer(model, LOSS, loader_of)
    trainer.fit(copied(trainer.initialize(task())), task())
    assert_equal(trainer.initialize(task()), given)


@pytest.mark.parametrize("train, optimizer_of", [
    ({}, lambda p: torch.optim.SGD(p, 0.1)),
    ({"weight-decay": 0.01}, lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01)),
    ({"optimizer": "momentum", "momentum": 0.8}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.8)),
    ({"optimizer": "nesterov"}, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)),
    ({"optimizer": "adam", "epsilon": 1e-4}, lambda p: torch.optim.Adam(p, 0.1, eps=1e-4)),
    ({"optimizer": "adamw", "beta1": 0.5, "weight-decay": 0.1},
     lambda p: torch.optim.AdamW(p, 0.1, betas=(0.5, 0.999), weight_decay=0.1)),
])
def test_fits_as_the_jobs_optimizer(train, optimizer_of):
    trainer = TorchTrainer(net, LOSS, loader_of)
    parameters = copied(trainer.initialize(task()))
    fit = trainer.fit(copied(parameters), task(**train))
    expected = by_hand(parameters, loader_of(task()), optimizer_of, epochs=2)
    assert_equal(dict(fit.parameters), expected)
    assert fit.weight == 50 and fit.metrics["steps"] == 14 and 0 < fit.metrics["loss"] < 3
    assert fit.parameters["1.num_batches_tracked"] == 14


def test_counts_local_steps_over_passes():
    trainer = TorchTrainer(net, LOSS, loader_of)
    parameters = copied(trainer.initialize(task()))
    fit = trainer.fit(copied(parameters), task(**{"local-steps": 9}))
    expected = by_hand(parameters, loader_of(task()), lambda p: torch.optim.SGD(p, 0.1), 2, 9)
    assert_equal(dict(fit.parameters), expected)
    assert fit.weight == 50 and fit.metrics["steps"] == 9


def test_clips_gradients():
    trainer = TorchTrainer(nn.Linear(6, 3), LOSS,
                           lambda task: DataLoader(ROWS, len(ROWS)))
    before = copied(trainer.initialize(task()))
    after = trainer.fit(copied(before), task(**{"local-epochs": 1, "clip-norm": 0.01})).parameters
    moved = np.sqrt(sum(((after[name] - before[name]) ** 2).sum() for name in before))
    assert moved == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_takes_an_optimizer_of_ones_own():
    trainer = TorchTrainer(net, LOSS, loader_of, optimizer=lambda parameters, task:
                           torch.optim.RMSprop(parameters, lr=task.learning_rate / 10))
    parameters = copied(trainer.initialize(task()))
    fit = trainer.fit(copied(parameters), task())
    expected = by_hand(parameters, loader_of(task()), lambda p: torch.optim.RMSprop(p, 0.01), 2)
    assert_equal(dict(fit.parameters), expected)


def test_counts_rows_of_any_iterable():
    batches = [(ROWS.tensors[0][i:i + 20], ROWS.tensors[1][i:i + 20]) for i in (0, 20)]
    for loader in (batches, DataLoader(ROWS, 20, sampler=torch.utils.data.SubsetRandomSampler(
            range(40))), DataLoader(Subset(ROWS, range(40)), 20), _Endless(batches)):
        trainer = TorchTrainer(net, LOSS, lambda task, loader=loader: loader)
        fit = trainer.fit(copied(trainer.initialize(task())), task())
        assert fit.weight == 40


class _Endless:
    def __init__(self, batches):
        self._batches = batches

    def __iter__(self):
        return iter(self._batches)


def test_evaluates_as_by_hand():
    trainer = TorchTrainer(net, LOSS, loader_of, evaluate_loader_of=lambda task:
                           DataLoader(ROWS, 7))
    assert trainer.operations() == ["initialize", "fit", "evaluate", "gradient"]
    assert trainer.rows(task()) == (50, 50)
    parameters = copied(trainer.initialize(task()))
    metrics = trainer.evaluate(parameters, task())
    model = net().eval()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in parameters.items()})
    outputs = model(ROWS.tensors[0])
    assert metrics.rows == 50
    assert metrics.loss == pytest.approx(LOSS(outputs, ROWS.tensors[1]).item(), rel=1e-5)
    right = (outputs.argmax(1) == ROWS.tensors[1]).float().mean()
    assert metrics.accuracy == pytest.approx(float(right), rel=1e-5)
    assert "evaluate" not in TorchTrainer(net, LOSS, loader_of).operations()


def test_a_regression_has_metrics_and_no_accuracy():
    rows = TensorDataset(ROWS.tensors[0], ROWS.tensors[0].sum(1, keepdim=True))
    trainer = TorchTrainer(nn.Linear(6, 1), nn.MSELoss(), lambda task: DataLoader(rows, 8),
                           evaluate_loader_of=lambda task: DataLoader(rows, 20), metric=None,
                           metrics={"mae": nn.functional.l1_loss})
    parameters = copied(trainer.initialize(task()))
    found = trainer.evaluate(parameters, task())
    outputs = rows.tensors[0].numpy() @ parameters["weight"].T + parameters["bias"]
    errors = outputs - rows.tensors[1].numpy()
    assert found.accuracy is None and found.rows == 50
    assert found.loss == pytest.approx((errors ** 2).mean(), rel=1e-5)
    assert found.metrics == {"mae": pytest.approx(abs(errors).mean(), rel=1e-5)}


def test_gradient_steps_are_those_of_fit():
    """SGD by hand with the gradients of steps 0, 1, ... is fit, over more than one pass."""
    trainer = TorchTrainer(net, LOSS, loader_of)
    given = copied(trainer.initialize(task()))
    expected = copied(trainer.fit(copied(given), task(**{"local-steps": 6})).parameters)
    moving = copied(given)
    for step in range(6):
        gradient = trainer.gradient(copied(moving), task(), step)
        assert gradient.rows == 8
        assert set(gradient.gradient) == set(given)
        for name, values in gradient.gradient.items():
            is_buffer = name in trainer.buffers  # whose values these are
            moving[name] = values if is_buffer else moving[name] - np.float32(0.1) * values
    for name in gradient.gradient:
        assert np.allclose(moving[name], expected[name], atol=1e-6), name


def test_a_gradient_step_is_the_same_whatever_came_before():
    trainer = TorchTrainer(net, LOSS, loader_of)
    given = copied(trainer.initialize(task()))
    inorder = [copied(trainer.gradient(copied(given), task(), step).gradient)
               for step in range(16)]  # two passes of seven batches, and on
    for step in (15, 7, 0):
        trainer.gradient(copied(given), task(seed=12), 2)
        assert_equal(copied(trainer.gradient(copied(given), task(), step).gradient), inorder[step])


def test_the_gradient_over_all_rows_is_their_mean():
    trainer = TorchTrainer(lambda settings: nn.Linear(6, 3), LOSS, loader_of)
    given = copied(trainer.initialize(task()))
    gradient = trainer.gradient(copied(given), task(), None)
    model = nn.Linear(6, 3)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in given.items()})
    loss = LOSS(model(ROWS.tensors[0]), ROWS.tensors[1])
    loss.backward()
    assert gradient.rows == 50
    assert gradient.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    assert np.allclose(gradient.gradient["weight"], model.weight.grad.numpy(), atol=1e-6)


def kept_in(file):
    """The private tensors after the last fit."""
    return {name[len("after."):]: array for name, array in starling.load(file).items()
            if name.startswith("after.")}


def test_private_tensors_stay(tmp_path):
    trainer = TorchTrainer(net, LOSS, loader_of, private=("3.",))
    assert "gradient" not in trainer.operations()
    here = Task(client="../cam", seed=1, train=TRAIN, directory=tmp_path)
    given = copied(trainer.initialize(here))
    assert not [name for name in given if name.startswith("3.")]
    fit = trainer.fit(copied(given), here)
    assert set(fit.parameters) == set(given)
    files = list(tmp_path.iterdir())
    assert len(files) == 1 and files[0].name.startswith("private-..%2Fcam-")
    kept = kept_in(files[0])
    assert set(kept) == {"3.weight", "3.bias"}
    # After a restart the head goes on from there: with no rate it stays.
    again = TorchTrainer(net, LOSS, loader_of, private=("3.",))
    again.fit(copied(given), Task(client="../cam", seed=2, directory=tmp_path,
                                  train={**TRAIN, "learning-rate": 0}))
    assert_equal(kept_in(files[0]), kept)
    # Another client has its own.
    again.fit(copied(given), Task(client="b", seed=2, train=TRAIN, directory=tmp_path))
    assert_equal(kept_in(files[0]), kept)
    assert len(list(tmp_path.iterdir())) == 2


def test_no_private_value_is_in_the_shared_memory(host, tmp_path):
    program = """
import torch, starling
from starling.torch import TorchTrainer
from torch import nn
rows = [(torch.randn(8, 6), torch.arange(8) % 3)]
starling.serve(TorchTrainer(lambda settings: nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)),
                            nn.CrossEntropyLoss(), lambda task: rows, private="1."))
"""
    kept = []
    for round_ in (1, 2):  # each in a process of its own
        trainer = host(program)
        tensors = trainer.describe()["ok"]["tensors"]
        assert [t["name"] for t in tensors if t["role"] == "private"] == ["1.bias", "1.weight"]
        answer = trainer.fit(np.linspace(0.1, 0.9, 35), round=round_)
        assert set(answer["ok"]) == {"weight", "loss", "steps"}
        (file,) = tmp_path.glob("private-*")
        kept.append(kept_in(file))
        memory = os.pread(trainer.memory, trainer.size, 0)
        assert trainer.result()[0].tobytes() in memory
        for array in kept[-1].values():
            for value in array.reshape(-1):
                assert value.tobytes() not in memory
        trainer.send("stop")
    assert not np.array_equal(kept[0]["1.weight"], kept[1]["1.weight"])


# As where its process is killed behind a fit whose answer is lost.
def test_a_task_that_is_repeated_gives_the_same_private_tensors(tmp_path):
    given = copied(TorchTrainer(net, LOSS, loader_of, private="3.").initialize(task()))
    fits, heads = [], []
    for seed in (1, 2, 2, 3):  # each in a new process
        trainer = TorchTrainer(net, LOSS, loader_of, private="3.")
        here = Task(client="cam", seed=seed, train=TRAIN, directory=tmp_path)
        fits.append(copied(trainer.fit(copied(given), here).parameters))
        (file,) = tmp_path.iterdir()
        heads.append(kept_in(file))
    assert_equal(fits[1], fits[2])
    assert_equal(heads[1], heads[2])
    assert not np.array_equal(heads[2]["3.weight"], heads[3]["3.weight"])


def test_private_may_be_one_prefix():
    trainer = TorchTrainer(net, LOSS, loader_of, private="3.")
    assert {name[:2] for name in trainer.initialize(task())} == {"0.", "1."}


@pytest.mark.parametrize("private", ["head.", ("3.", "head.")])
def test_a_private_prefix_of_no_tensor_is_named(private):
    for model in (net, net()):
        trainer = TorchTrainer(model, LOSS, loader_of, private=private)
        with pytest.raises(ValueError, match='private names "head.", .* 0.weight, 0.bias, '):
            trainer.initialize(task())


def test_private_tensors_of_other_shapes_have_a_file_of_their_own(tmp_path):
    def model(settings):
        return nn.Sequential(nn.Linear(6, 4), nn.Linear(4, settings["classes"]))

    trainer = TorchTrainer(model, LOSS, loader_of, private="1.")

    def fit(classes, rate, seed=1):
        here = Task(client="a", seed=seed, train={**TRAIN, "learning-rate": rate},
                    directory=tmp_path, settings={"classes": classes})
        trainer.fit(copied(trainer.initialize(here)), here)
        return {file: kept_in(file) for file in tmp_path.iterdir()}

    (first, three), = fit(3, 0.1).items()
    assert three["1.weight"].shape == (3, 4)
    both = fit(5, 0.1)
    assert len(both) == 2
    assert_equal(both[first], three)
    # A run of the same shapes goes on with what the one before has left.
    assert_equal(fit(3, 0, seed=2)[first], three)


def test_half_precision_travels(tmp_path):
    for dtype in (torch.bfloat16, torch.float64):
        trainer = TorchTrainer(lambda settings: nn.Linear(6, 3).to(dtype), LOSS, lambda task: [
            (ROWS.tensors[0].to(dtype), ROWS.tensors[1])])
        given = copied(trainer.initialize(task()))
        fit = trainer.fit(copied(given), task())
        assert fit.parameters["weight"].dtype == given["weight"].dtype
        assert not np.array_equal(fit.parameters["weight"], given["weight"])


def test_serves_a_resnet_over_the_protocol(host):
    trainer = host("""
import torch, starling
from starling.torch import TorchTrainer
from torch import nn
rows = [(torch.ones(4, 1, 8, 8) * torch.arange(4).reshape(4, 1, 1, 1), torch.arange(4))]
def model(settings):
    return nn.Sequential(nn.Conv2d(1, settings["width"], 3), nn.BatchNorm2d(settings["width"]),
                         nn.Flatten(), nn.Linear(36 * settings["width"], 4))
starling.serve(TorchTrainer(model, nn.CrossEntropyLoss(), lambda task: rows,
                            evaluate_loader_of=lambda task: rows))
""")
    settings = {"width": 2}
    answer = trainer.describe(settings)["ok"]
    assert answer["operations"] == ["initialize", "fit", "evaluate", "gradient"]
    assert [t["name"] for t in answer["tensors"] if t["role"] == "buffer"] == [
        "1.num_batches_tracked", "1.running_mean", "1.running_var"]
    assert (answer["rows"], answer["held-out"]) == (4, 4)
    places = trainer.places()
    del places["parameters"]
    assert "ok" in trainer.ask("initialize", task=trainer.task(settings=settings), **places)
    model = trainer.result()
    for round_ in range(1, 4):
        answer = trainer.fit(model, round=round_, settings=settings)
        assert answer["ok"]["steps"] == 1
        model = trainer.result()
    counter = next(i for i, t in enumerate(trainer.tensors) if t["name"] == "1.num_batches_tracked")
    before = sum(int(np.prod(t["shape"])) for t in trainer.tensors[:counter])
    assert model[before] == 3
    places = trainer.places(model)
    answer = trainer.ask("evaluate", task=trainer.task(settings=settings), **places)
    assert answer["ok"]["rows"] == 4


def test_a_cancel_ends_between_batches(host):
    trainer = host("""
import torch, starling
from starling.torch import TorchTrainer
class Forever:
    def __iter__(self):
        while True: yield torch.ones(1, 2), torch.zeros(1, dtype=torch.int64)
starling.serve(TorchTrainer(torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss(),
                            lambda task: Forever()))
""")
    trainer.describe()
    number = trainer.send("fit", task=trainer.task(), **trainer.places([0] * 6))
    trainer.write({"op": "cancel", "id": number})
    assert trainer.answer()["error"]["code"] == "stopped"


@pytest.mark.skipif(not simulates_trainers(),
                    reason="there is no starling-coordinator that simulates trainers")
def test_steps_over_all_rows_are_those_of_the_built_in_trainer(tmp_path):
    """The 2NN, five rounds of one step each: within 1e-5 of the model that the coordinator knows."""
    rows = np.random.default_rng(5)
    inputs, classes = rows.normal(size=(60, 6)).astype(np.float32), np.arange(60) % 3
    lines = [",".join([*(repr(float(x)) for x in row), str(c)]) for row, c in zip(inputs, classes)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,e,f,label", *lines]) + "\n")
    np.savez(tmp_path / "rows.npz", inputs=inputs, classes=classes)
    (tmp_path / "train.py").write_text("""
from collections import OrderedDict
from pathlib import Path
import numpy as np, starling, torch
from starling.torch import TorchTrainer
from torch import nn
rows = np.load(Path(__file__).parent / "rows.npz")
batch = torch.from_numpy(rows["inputs"]), torch.from_numpy(rows["classes"])
starling.serve(TorchTrainer(lambda settings: nn.Sequential(OrderedDict(
    fc1=nn.Linear(6, 200), relu1=nn.ReLU(), fc2=nn.Linear(200, 200), relu2=nn.ReLU(),
    fc3=nn.Linear(200, 3))), nn.CrossEntropyLoss(), lambda task: [batch]))
""")
    job = {"rounds": 5, "train": {"local-steps": 1, "batch-size": 60, "learning-rate": 0.2},
           "round": {"cohort": 1, "min-updates": 1, "wait-for": 1}, "checkpoint": {"keep": 0}}
    starling.simulate({**job, "model": {"kind": "mlp", "hidden": [200, 200]},
                       "data": {"dataset": f"csv:{tmp_path / 'rows.csv'}"}},
                      clients=1, out=tmp_path / "built-in", progress=False)
    models = tmp_path / "built-in" / "models"
    starling.simulate({**job, "model": {"kind": "external",
                                        "initial": str(models / "0.safetensors")}},
                      clients=1, trainer=tmp_path / "train.py", out=tmp_path / "own",
                      progress=False)
    for round_ in range(6):
        expected = starling.load(models / f"{round_}.safetensors")
        found = starling.load(tmp_path / "own" / "models" / f"{round_}.safetensors")
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert np.abs(found[name] - values).max() < 1e-5, (round_, name)
    first, last = (starling.load(models / f"{r}.safetensors")["fc1.weight"] for r in (0, 5))
    assert np.abs(last - first).max() > 1e-3
