"""CheckpointManager: steps, policies, background saves, resumes of torch optimizers."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, equal_bits, run_python

import stele
import stele.checkpoints


def tensors(step: int) -> dict[str, Any]:
    return {"w": np.full((3, 4), step, np.float32), "b": np.full(2, -step, np.float64)}


@pytest.mark.parametrize("format", ["stele", "safetensors"])
def test_a_step_comes_back_with_everything(format: str, tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path / "run", format=format)
    assert manager.steps() == [] and manager.open() is None and manager.best("loss") is None
    state = {"exp_avg": tensors(5), "exp_avg_sq": {"w": np.ones((3, 4), np.float32)}}
    saved = manager.save(
        3, tensors(3), state, metrics={"loss": 0.5, "n": 7}, state={"epoch": 1, "name": "x", "list": [1, [2]]}
    )
    assert saved is not None and saved.info.step == 3 and saved.removed == [] and isinstance(saved.report, stele.Report)
    (info,) = manager.steps()
    assert (info.step, info.metrics, info.format) == (3, {"loss": 0.5, "n": 7.0}, format)
    assert info.state == {"epoch": 1, "name": "x", "list": [1, [2]]} and info.bytes > 0 and info.time_ms > 1.6e12
    opened = stele.CheckpointManager(tmp_path / "run", format=format).open(3)
    assert opened is not None and opened.info == info and opened.skipped == []
    assert all(equal_bits(opened.model[name].numpy(), array) for name, array in tensors(3).items())
    assert set(opened.optimizer) == set(state)
    assert all(equal_bits(opened.optimizer["exp_avg"][name].numpy(), array) for name, array in tensors(5).items())


def members(header: str, struct: str) -> set[str]:
    """Returns the names of the members of a struct of C++."""
    text = re.sub(r"//.*", "", (ROOT / "include/stele" / header).read_text())
    body = re.findall(rf"^struct {struct} {{\n(.*?)^}};", text, re.MULTILINE | re.DOTALL)[0]
    return {match for match in re.findall(r"(\w+)(?:\{[^;]*\}| = [^;]+)?;", body)}


@pytest.mark.parametrize(
    ("header", "struct", "others"),
    [
        ("checkpoints/policies.hpp", "StepInfo", {}),
        ("checkpoints/manager.hpp", "SavedStep", {}),
        (
            "checkpoints/manager.hpp",
            "OpenedStep",
            {"checkpoint": {"model", "optimizer", "training", "has_graph", "left_out"}},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_results_have_all_members_of_those_of_cpp(header: str, struct: str, others: dict[str, set[str]]) -> None:
    expected: set[str] = set()
    for name in members(header, struct):
        expected |= others.get(name, {name})
    assert {field.name for field in dataclasses.fields(getattr(stele.checkpoints, struct))} == expected
    assert members("checkpoint.hpp", "Checkpoint") == {"parameters", "graph", "training", "optimizer", "left_out"}


@pytest.mark.parametrize("background", [False, True])
def test_a_step_that_cannot_be_removed_is_said(background: bool, tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path, keep={"latest": 1})
    first = manager.save(1, tensors(1))
    assert first is not None and first.not_removed is None
    (tmp_path / "step-00000001" / "mine.txt").write_text("x")
    with pytest.warns(RuntimeWarning, match=r"mine\.txt"):
        second = manager.save(2, tensors(2), background=background)
        if background:
            (second,) = manager.wait()
    assert second is not None and second.removed == [] and isinstance(second.not_removed, stele.ExistsError)
    assert "step-00000001" in second.not_removed.file
    assert [info.step for info in manager.steps()] == [1, 2]


def test_broken_steps_are_listed(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, tensors(step))
    assert manager.broken() == []
    next((tmp_path / "step-00000001").glob("*.stele")).unlink()
    ((step, why),) = manager.broken()
    assert step == 1 and "step-00000001" in why and [info.step for info in manager.steps()] == [2]


def test_the_training_configuration_of_a_step(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path)
    manager.save(1, tensors(1))
    opened = manager.open()
    assert opened is not None and opened.training is None and not opened.has_graph and len(opened.left_out) == 0
    assert opened.info.signal == 0 and opened.info.deltas == 0


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (None, [1, 2, 3, 4, 5, 6]),
        ({"latest": 2}, [5, 6]),
        ({"every_steps": 3}, [3, 6]),
        ({"latest": 1, "every_steps": 4}, [4, 6]),
        ({"best": (2, "loss", "lower"), "latest": 1}, [2, 3, 6]),
        ({"best": (1, "loss", "higher"), "latest": 1}, [1, 6]),
    ],
)
def test_policies_keep_steps(keep: Any, left: list[int], tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path, keep=keep)
    loss = {1: 9.0, 2: 1.0, 3: 2.0, 4: 7.0, 5: 8.0, 6: 6.0}
    removed: list[int] = []
    for step in loss:
        saved = manager.save(step, tensors(step), metrics={"loss": loss[step]})
        removed += saved.removed  # type: ignore[union-attr]
    assert [info.step for info in manager.steps()] == left
    assert sorted(removed + left) == list(loss)
    best = manager.best("loss")
    assert best is not None and best.step == min(left, key=lambda step: loss[step])
    assert manager.best("loss", "higher").step == max(left, key=lambda step: loss[step])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"keep": {"word": 1}}, ValueError),
        ({"keep": {"best": (1, "loss", "word")}}, ValueError),
        ({"keep": {"best": (1, "loss")}}, ValueError),
        ({"keep": {"latest": "x"}}, TypeError),
        ({"keep": {"latest": -1}}, ValueError),
        ({"format": "word"}, ValueError),
        ({"format": 5}, TypeError),
        ({"every": "x"}, TypeError),
        ({"max_bytes": -1}, (TypeError, ValueError, OverflowError)),
        ({"deltas": -1}, (TypeError, ValueError, OverflowError)),
        ({"deltas": 101}, ValueError),
        ({"deltas": 2, "format": "npz"}, ValueError),
    ],
    ids=str,
)
def test_a_wrong_option_is_an_error(options: Any, error: Any, tmp_path: Path) -> None:
    with pytest.raises(error):
        stele.CheckpointManager(tmp_path, **options)


def test_steps_as_deltas(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path, deltas=2)
    frozen = np.arange(20_000, dtype=np.float32) * 1.37
    for step in range(1, 5):
        manager.save(step, {"frozen": frozen, "trained": np.full(10, step, np.float32)})
    assert [info.base for info in manager.steps()] == [None, 1, 2, None]
    assert [info.deltas for info in manager.steps()] == [0, 1, 2, 0]
    sizes = [info.bytes for info in manager.steps()]
    assert sizes[1] * 10 < sizes[0] and sizes[3] == sizes[0]
    opened = manager.open(3)
    assert opened is not None and np.array_equal(opened.model["frozen"].numpy(), frozen) and opened.model["trained"].numpy()[0] == 3
    manager = stele.CheckpointManager(tmp_path / "compact", deltas=5, compact=True, keep={"latest": 1})
    for step in range(1, 5):
        manager.save(step, {"frozen": frozen, "trained": np.full(10, step, np.float32)})
    assert [(info.step, info.base) for info in manager.steps()] == [(1, None), (4, 1)]


def test_due_steps_and_removal(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path, every=10)
    assert [step for step in range(1, 31) if manager.due(step)] == [10, 20, 30]
    for step in (10, 20):
        manager.save(step, tensors(step))
    manager.verify(10)
    manager.remove(10)
    assert [info.step for info in manager.steps()] == [20]
    with pytest.raises(FileNotFoundError):
        manager.open(10)
    with pytest.raises(stele.Error):
        manager.verify(10)
    with pytest.raises(ValueError, match="lower"):
        manager.best("loss", "highest")


def test_a_damaged_step_is_skipped(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, tensors(step))
    folder = tmp_path / manager.steps()[1].folder
    (file,) = [path for path in folder.rglob("*.stele")]
    data = bytearray(file.read_bytes())
    data[80] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError):
        manager.verify(2)
    opened = manager.open()
    assert opened is not None and opened.info.step == 1 and [step for step, _ in opened.skipped] == [2]
    assert "::" not in opened.skipped[0][1]


def test_a_background_save_copies_the_tensors_first(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path, keep={"latest": 3})
    model = {"w": np.zeros(1 << 20, np.float32)}
    for step in range(1, 6):
        model["w"][:] = step
        assert manager.save(step, model, {"m": model}, background=True) is None
        model["w"][:] = -1
    finished = manager.wait()
    assert [saved.info.step for saved in finished] == [1, 2, 3, 4, 5] and manager.wait() == []
    for info in manager.steps():
        opened = manager.open(info.step)
        assert opened is not None
        assert (opened.model["w"].numpy() == info.step).all() and (
            opened.optimizer["m"]["w"].numpy() == info.step
        ).all()


def test_an_error_of_a_background_save_is_raised_by_wait(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path / "run")
    manager.save(1, tensors(1), background=True)
    manager.wait()
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("a file")
    with pytest.raises(stele.Error):
        manager.save(2, tensors(2), background=True)
        manager.wait()


def test_a_manager_that_is_dropped_finishes_its_background_saves(tmp_path: Path) -> None:
    run_python(
        """
import sys, numpy as np, stele
manager = stele.CheckpointManager(sys.argv[1])
manager.save(1, {"w": np.ones(1 << 21)}, background=True)
""",
        str(tmp_path),
    )
    assert [info.step for info in stele.CheckpointManager(tmp_path).steps()] == [1]


def test_a_manager_can_be_dropped_during_a_background_save(tmp_path: Path) -> None:
    run_python(
        """
import sys, numpy as np, stele
for step in range(3):
    manager = stele.CheckpointManager(sys.argv[1])
    manager.save(step, {"w": np.ones(1 << 20)}, background=True)
    del manager
print([info.step for info in stele.CheckpointManager(sys.argv[1]).steps()])
""",
        str(tmp_path),
        timeout=30,
    )


@pytest.mark.parametrize("background", ["i % 2 == 0", "True", "False"])
def test_threads_share_a_manager(background: str, tmp_path: Path) -> None:
    run_python(
        f"""
import sys, threading, numpy as np, stele
manager = stele.CheckpointManager(sys.argv[1])
model, errors = {{"w": np.ones(1 << 18, "f4")}}, []
def work(number):
    try:
        for i in range(12):
            manager.save(100 * number + i + 1, model, background={background})
            manager.due(i), manager.steps(), manager.open()
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
manager.wait()
assert errors == [] and len(manager.steps()) == 60, (errors, len(manager.steps()))
""",
        str(tmp_path),
    )


def test_the_same_step_twice_and_wrong_arguments(tmp_path: Path) -> None:
    manager = stele.CheckpointManager(tmp_path)
    manager.save(1, tensors(1))
    try:
        manager.save(1, tensors(2))
    except stele.Error:
        pass
    opened = manager.open(1)
    assert opened is not None and opened.model["w"][0, 0] in (1, 2)
    for work in (
        lambda: manager.save(2, {"w": object()}),
        lambda: manager.save(2, tensors(2), state={"x": object()}),
        lambda: manager.save(2, tensors(2), state={"x": [{1, 2}]}),
        lambda: manager.save(2, tensors(2), state={"x": {object(): 1}}),
        lambda: manager.save("2", tensors(2)),
        lambda: manager.save(2, tensors(2), metrics={"x": "y"}),
    ):
        with pytest.raises((TypeError, ValueError)):
            work()
    assert [info.step for info in manager.steps()] == [1]


# --- torch ---


def trained(make: Any, steps: int = 3) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizer = make(torch, model)
    train(torch, model, optimizer, steps)
    return model, optimizer


def train(torch: Any, model: Any, optimizer: Any, steps: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.rand(16, 4, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()


def groups(torch: Any, model: Any) -> Any:
    return torch.optim.AdamW(
        [
            {"params": model[0].parameters(), "lr": 0.01, "betas": (0.8, 0.99)},
            {"params": model[2].parameters(), "weight_decay": 0.1},
            {"params": model[1].parameters(), "amsgrad": True},
        ],
        lr=1e-3,
    )


OPTIMIZERS = {
    "adam": lambda torch, model: torch.optim.Adam(model.parameters(), lr=0.1),
    "sgd": lambda torch, model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda torch, model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adamw with groups": groups,
    "adagrad": lambda torch, model: torch.optim.Adagrad(model.parameters(), lr=0.1),
    "rmsprop": lambda torch, model: torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5, centered=True),
    "adadelta": lambda torch, model: torch.optim.Adadelta(model.parameters()),
    "rprop": lambda torch, model: torch.optim.Rprop(model.parameters()),
    "nadam": lambda torch, model: torch.optim.NAdam(model.parameters()),
    "radam": lambda torch, model: torch.optim.RAdam(model.parameters()),
    "adamax": lambda torch, model: torch.optim.Adamax(model.parameters()),
    "asgd": lambda torch, model: torch.optim.ASGD(model.parameters()),
    "adafactor": lambda torch, model: torch.optim.Adafactor(model.parameters()),
    "lr tensor": lambda torch, model: torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False),
    "named": lambda torch, model: torch.optim.Adam(list(model.named_parameters()), lr=0.1),
}


FAST = ("adam", "sgd", "momentum", "adamw with groups", "lr tensor", "named")


def equal_states(torch: Any, a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal_states(torch, a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(lambda x, y: equal_states(torch, x, y), a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in OPTIMIZERS])
def test_a_resumed_optimizer_has_the_state_of_torch_and_trains_on_equally(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, optimizer = trained(OPTIMIZERS[name])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    manager = stele.CheckpointManager(tmp_path / "run")
    manager.save(3, model, optimizer, background=True)
    train(torch, model, optimizer, 2)
    manager.wait()
    before = torch.load(tmp_path / "a.pt")
    other, resumed = trained(OPTIMIZERS[name], steps=0)
    opened = manager.resume(other, resumed)
    assert opened is not None and opened.info.step == 3
    assert equal_states(torch, dict(other.state_dict()), dict(before["model"]))
    assert equal_states(torch, resumed.state_dict(), before["optimizer"]), (resumed.state_dict(), before["optimizer"])
    expected, expected_optimizer = trained(OPTIMIZERS[name], steps=0)
    expected.load_state_dict(before["model"])
    expected_optimizer.load_state_dict(before["optimizer"])
    train(torch, other, resumed, 2)
    train(torch, expected, expected_optimizer, 2)
    assert equal_states(torch, dict(other.state_dict()), dict(expected.state_dict()))


def test_a_resume_without_a_step_or_with_another_optimizer(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, optimizer = trained(OPTIMIZERS["adam"])
    manager = stele.CheckpointManager(tmp_path)
    assert manager.resume(model, optimizer) is None
    manager.save(1, model)
    assert manager.resume(model) is not None
    with pytest.raises(ValueError, match="no state of a torch optimizer"):
        manager.resume(model, optimizer)
    manager.save(2, model, optimizer)
    with pytest.raises(ValueError, match="groups"):
        manager.resume(model, torch.optim.Adam([{"params": model[0].parameters()}, {"params": model[2].parameters()}]))
    with pytest.raises(ValueError, match="groups"):
        manager.resume(model, torch.optim.Adam(list(model.parameters())[1:]))
    with pytest.raises(ValueError, match="not in the model"):
        manager.save(3, model, torch.optim.Adam([torch.nn.Parameter(torch.ones(1))]))
    with pytest.raises(RuntimeError, match="missing|shape"):
        manager.resume(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="torch_optimizer"):
        manager.save(3, model, state={"torch_optimizer": 1})
    assert [info.step for info in manager.steps()] == [1, 2]


@pytest.mark.parametrize("saved", ["adam", "momentum", "adagrad"])
@pytest.mark.parametrize("resumed", ["adam", "momentum", "rmsprop", "adamw"])
def test_an_optimizer_of_another_class_is_refused_before_anything_changes(saved: str, resumed: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if saved == resumed:
        return
    model, optimizer = trained(OPTIMIZERS[saved])
    manager = stele.CheckpointManager(tmp_path)
    manager.save(1, model, optimizer)
    made = {**OPTIMIZERS, "adamw": lambda torch, model: torch.optim.AdamW(model.parameters(), lr=0.5)}[resumed]
    other, another = trained(made)
    train(torch, other, another, 1)
    before = [torch.clone(tensor) for tensor in other.state_dict().values()]
    lr = another.param_groups[0]["lr"]
    with pytest.raises(ValueError, match=f"{type(optimizer).__name__}.*{type(another).__name__}"):
        manager.resume(other, another)
    assert all(map(torch.equal, before, other.state_dict().values())) and another.param_groups[0]["lr"] == lr


def test_a_module_resumes_by_its_own_load_state_dict(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]
        _version = 7
        versions: list[Any] = []

        def __init__(self, count: int) -> None:
            super().__init__()
            self.layer, self.count, self.loads = torch.nn.Linear(2, 2), count, 0
            self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "loads", module.loads + 1))

        def get_extra_state(self) -> Any:
            return {"count": self.count, "history": [1, [None, 2.5, "x"]], "empty": {}, "bytes": b"\0"}

        def set_extra_state(self, state: Any) -> None:
            self.count, self.restored = state["count"], state

        def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *rest: Any) -> None:
            self.versions.append(metadata.get("version"))
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    model = torch.nn.Sequential(Counting(42), torch.nn.BatchNorm1d(2))
    manager = stele.CheckpointManager(tmp_path)
    manager.save(1, model, background=True)
    manager.wait()
    other = torch.nn.Sequential(Counting(0), torch.nn.BatchNorm1d(2))
    torch.nn.init.zeros_(other[0].layer.weight)
    assert manager.resume(other) is not None
    assert other[0].count == 42 and other[0].restored == model[0].get_extra_state() and other[0].loads == 1
    assert Counting.versions == [7] and torch.equal(other[0].layer.weight, model[0].layer.weight)
    with pytest.raises(ValueError, match="torch_module"):
        manager.save(3, model, state={"torch_module": 1})


def test_parameters_without_gradients_and_frozen_ones_resume(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model[0].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    train(torch, model, optimizer, 2)
    manager = stele.CheckpointManager(tmp_path)
    manager.save(1, model, optimizer)
    other = torch.optim.Adam(model.parameters())
    manager.resume(model, other)
    assert equal_states(torch, other.state_dict(), optimizer.state_dict())


def test_a_scheduler_and_other_state_go_with_the_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, optimizer = trained(OPTIMIZERS["momentum"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    train(torch, model, optimizer, 1)
    scheduler.step()
    manager = stele.CheckpointManager(tmp_path)
    manager.save(1, model, optimizer, state={"scheduler": scheduler.state_dict()})
    other, resumed = trained(OPTIMIZERS["momentum"], steps=0)
    second = torch.optim.lr_scheduler.CosineAnnealingLR(resumed, 10)
    opened = manager.resume(other, resumed)
    second.load_state_dict(opened.info.state["scheduler"])  # type: ignore[union-attr]
    assert second.state_dict() == scheduler.state_dict()
    assert equal_states(torch, resumed.state_dict(), optimizer.state_dict())


PLAIN = [None, True, -3, 2**64 - 1, 0.5, "text", b"\x00\xff", [], {}, [1, [2, {"a": None}]], {"__python": 1}]
OTHERS = [
    (), (1, (2, [3])), {1: 2, "1": 3}, {(1, None): {0.5: b"x"}}, 2**64, -(2**200), Counter([1, 1, 2]), Counter("aab"),
    OrderedDict([(2, 1), (1, 2)]), {"__python__": "tuple", "items": 3},
]  # fmt: skip
SCALARS = [np.float32(0.5), np.int64(-7), np.bool_(True), np.uint8(3), np.float64(2), np.str_("x"), np.float16(0.25)]


@pytest.mark.parametrize("value", [*PLAIN, *OTHERS, *SCALARS], ids=repr)
def test_state_comes_back_as_it_was(value: Any, inside: Path) -> None:
    manager = stele.CheckpointManager("run")
    saved = manager.save(1, tensors(1), state={"x": value, "y": [value]})
    opened = manager.open()
    assert saved is not None and opened is not None
    expected = value.item() if isinstance(value, np.generic) else value
    for info in (saved.info, opened.info, manager.steps()[0]):
        for found in (info.state["x"], info.state["y"][0]):
            assert found == expected and type(found) is type(expected)
            assert repr(found) == repr(expected)


def test_random_generators_go_on_after_a_resume(inside: Path) -> None:
    torch = pytest.importorskip("torch")
    own, other = random.Random(1), np.random.RandomState(2)
    generator, third = np.random.default_rng(3), torch.Generator().manual_seed(4)
    state = {
        "random": own.getstate(), "numpy": other.get_state(), "generator": generator.bit_generator.state,
        "torch": third.get_state(), "array": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    }  # fmt: skip
    stele.CheckpointManager("run").save(1, tensors(1), state=state)
    expected = [own.random(), other.random(), generator.random(), torch.rand(1, generator=third).item()]
    opened = stele.CheckpointManager("run").open()
    assert opened is not None
    found = opened.info.state
    own.setstate(found["random"])
    other.set_state(found["numpy"])
    generator.bit_generator.state = found["generator"]
    third.set_state(found["torch"])
    assert [own.random(), other.random(), generator.random(), torch.rand(1, generator=third).item()] == expected
    assert equal_bits(found["array"], state["array"])


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_on_bit_by_bit(steps: int, background: bool, search: str | None, inside: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    inputs = torch.randn(9, 4)

    def trained(net: Any, optimizer: Any, count: int) -> list[Any]:
        def loss() -> Any:
            optimizer.zero_grad()
            result = (net(inputs) ** 2).mean() + net(inputs).sum().sin()
            result.backward()
            return result

        for _ in range(count):
            optimizer.step(loss)
        return [parameter.detach().clone() for parameter in net.parameters()]

    def fresh() -> tuple[Any, Any]:
        net = torch.nn.Linear(4, 3)
        return net, torch.optim.LBFGS(net.parameters(), lr=0.3, max_iter=3, history_size=4, line_search_fn=search)

    net, optimizer = fresh()
    trained(net, optimizer, steps)
    manager = stele.CheckpointManager("run")
    manager.save(1, net, optimizer, background=background)
    manager.wait()
    other, resumed = fresh()
    assert manager.resume(other, resumed) is not None
    a, b = optimizer.state_dict(), resumed.state_dict()
    assert a["state"].keys() == b["state"].keys()
    for number, entries in a["state"].items():
        assert entries.keys() == b["state"][number].keys()
        assert all(repr(entries[kind]) == repr(b["state"][number][kind]) for kind in entries)
    expected, found = trained(net, optimizer, 2), trained(other, resumed, 2)
    assert all(torch.equal(x, y) for x, y in zip(expected, found))
