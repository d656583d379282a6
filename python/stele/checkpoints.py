"""The steps of a training run in one folder: each is saved whole or not at all, and a run resumes from a step that
verifies."""

from __future__ import annotations

import operator
import os
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _stele
from ._errors import Error, Report
from ._file import File
from ._save import model_of
from ._state import decoded, encoded, reference

if TYPE_CHECKING:
    import torch

# Parts of a step's state that save() adds for torch; the rest is the caller's.
_TORCH_STATE = ("torch_optimizer", "torch_module")

__all__ = ["CheckpointManager", "OpenedStep", "SavedStep", "StepInfo"]


@dataclass(frozen=True)
class StepInfo:
    """A saved step: its number, folder, metrics, time (milliseconds since 1970), writer, format, bytes and state.

    `signal`: the signal that triggered the save; 0: none. `base`: the step that it is a delta of; None: it is whole.
    `deltas`: the number of steps since the last whole one.
    """

    step: int
    folder: str
    metrics: dict[str, float]
    time_ms: int
    library: str
    format: str
    signal: int
    bytes: int
    base: int | None
    deltas: int
    state: dict[str, Any]


@dataclass(frozen=True)
class SavedStep:
    """The result of a save.

    `removed`: the steps that the policy did not keep. `not_removed`: why one of these could not be removed, or None; the
    save itself succeeded, and a RuntimeWarning has the reason, too.
    """

    info: StepInfo
    report: Report
    removed: list[int]
    not_removed: Error | None


@dataclass(frozen=True)
class OpenedStep:
    """An opened step. `optimizer`: ``{kind: File}``; `skipped`: newer steps that did not verify, and why.

    `training`: the training configuration, as DL4J's JSON, or None; `has_graph`: True if the step has a computation
    graph; `left_out`: parts of the step's files that are in none of these.
    """

    info: StepInfo
    model: File
    optimizer: dict[str, File]
    skipped: list[tuple[int, str]]
    training: dict[str, Any] | None
    has_graph: bool
    left_out: Report


class CheckpointManager:
    """Saves the steps of a training run into a folder, and finds the step to resume from.

    The folder is the same as that of the C++ class of this name: either program resumes what the other saved. Only one
    process may write to it; its threads may share a manager. A process that is forked after a background save can read
    the steps, but not save with the manager of its parent.

    Args:
        folder: is created if it is missing.
        format: of the parts, as ``"safetensors"`` or ``"stele"``.
        keep: the policy, as ``{"latest": 3, "best": (2, "loss", "lower"), "every_steps": 1000}``; a step stays if one
            of its rules keeps it. Without rules, all stay.
        every: :meth:`due` selects the multiples of it.
        max_bytes: the most that all steps may take; 0: no maximum.
        deltas: how many steps in a row store only what changed since the step before; 0: none. At most 100; for the
            format ``"stele"``, which is compressed then, and ``"json"``.
        compact: joins the deltas of steps that are not kept with those of the steps after them, after each save, so that
            only whole steps stay in addition to the kept ones.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        format: str = "stele",  # noqa: A002
        keep: Mapping[str, Any] | None = None,
        every: int = 1,
        max_bytes: int = 0,
        deltas: int = 0,
        compact: bool = False,
    ) -> None:
        rules = dict(keep or {})
        unknown = set(rules) - {"latest", "best", "every_steps", "every_seconds"}
        if unknown:
            raise ValueError(f"keep: unknown rules: {', '.join(sorted(unknown))}")
        for rule in set(rules) & {"latest", "every_steps"}:
            if operator.index(rules[rule]) < 0:
                raise ValueError(f"keep: {rule} is negative: {rules[rule]}")
        if "best" in rules:
            try:
                number, metric, better = rules["best"]
            except (TypeError, ValueError):
                raise ValueError("keep: best is (number, metric, 'lower' or 'higher')") from None
            _check_direction(better)
            rules["best"] = (operator.index(number), str(metric), better)
        self._manager = _stele.Manager(os.fsdecode(folder), format, rules, every, max_bytes, deltas, compact)
        # Before the interpreter ends: the thread of a background save cannot outlive it.
        weakref.finalize(self, _finish, self._manager, os.getpid())

    def due(self, step: int) -> bool:
        """Returns True if the step is to be saved."""
        due: bool = self._manager.due(step)
        return due

    def save(
        self,
        step: int,
        model: Any,
        optimizer: Any = None,
        *,
        metrics: Mapping[str, float] | None = None,
        state: Mapping[str, Any] | None = None,
        background: bool = False,
    ) -> SavedStep | None:
        """Saves a step, and removes those that the policy does not keep.

        Args:
            model: a dict of tensors, or a torch module.
            optimizer: a torch optimizer of that module's parameters, or ``{kind: {name: tensor}}``.
            metrics: numbers for the policy, as ``{"loss": 0.5}``.
            state: other state of the run: numbers, strings, bytes, None, scalars of NumPy (which become numbers), lists,
                tuples, dicts with any keys of these, and tensors of NumPy and torch, as random generators have. It comes
                back as it was, in main memory.
            background: returns after all tensors are copied; :meth:`wait` returns the result.
        """
        extra = encoded(dict(state or {}), "state")
        for name in _TORCH_STATE:
            if name in extra:
                raise ValueError(f"save: the name {name} of the state is that of torch's state")
        kinds: Mapping[str, Mapping[str, Any]] = {}
        if optimizer is not None and not isinstance(optimizer, Mapping):
            kinds, extra["torch_optimizer"] = _kinds_of(model, optimizer)
        elif optimizer is not None:
            kinds = optimizer
        values: dict[str, Any] = {}
        entries = model
        if not isinstance(model, (Mapping, File)):
            from . import _modules

            entries, values, versions = _modules.state_of(model)
            extra["torch_module"] = {"versions": versions}
        tensors, kept = model_of(entries, values=values)
        states = {kind: model_of(entries) for kind, entries in kinds.items()}
        numbers = {name: float(value) for name, value in (metrics or {}).items()}
        arguments = (operator.index(step), tensors, {kind: entry[0] for kind, entry in states.items()}, numbers, extra)
        if background:
            self._manager.save_async(*arguments)
            return None
        saved = _saved(self._manager.save(*arguments))
        del kept, states
        return saved

    def wait(self) -> list[SavedStep]:
        """Waits for the background saves. Returns those that have finished since the last call."""
        return [_saved(row) for row in self._manager.wait()]

    def steps(self) -> list[StepInfo]:
        """Returns the whole steps, sorted."""
        return [_info(row) for row in self._manager.steps()]

    def broken(self) -> list[tuple[int, str]]:
        """Returns the steps that :meth:`steps` leaves out, and why."""
        broken: list[tuple[int, str]] = self._manager.broken()
        return broken

    def best(self, metric: str, better: str = "lower") -> StepInfo | None:
        """Returns the best step by a metric. `better`: ``"lower"`` or ``"higher"``."""
        _check_direction(better)
        found: Any = self._manager.best(metric, better)
        return None if found is None else _info(found)

    def verify(self, step: int) -> None:
        """Compares the checksum of every file of a step; a difference is an error."""
        self._manager.verify(step)

    def remove(self, step: int) -> None:
        """Removes a step."""
        self._manager.remove(step)

    def open(self, step: int | None = None) -> OpenedStep | None:
        """Opens a step after verifying it; by default the newest that verifies. None: there is no step."""
        found: Any = self._manager.open(step)
        if found is None:
            return None
        found["info"] = _info(found["info"])
        found["model"] = File(found["model"])
        found["optimizer"] = {kind: File(model) for kind, model in found["optimizer"].items()}
        return OpenedStep(**found)

    def resume(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> OpenedStep | None:
        """Loads the newest step that verifies into a torch module, by its ``load_state_dict``, and its optimizer. None:
        there is no step.

        Raises:
            ValueError: the step has no optimizer, one of another class, or other parameter groups.
            RuntimeError: the module has other names or shapes. Both change nothing.
        """
        opened = self.open()
        if opened is None:
            return None
        from . import _modules

        state = None if optimizer is None else _optimizer_state(model, optimizer, opened)
        saved = opened.info.state.get("torch_module")
        _modules.load(model, opened.model, True, versions=None if saved is None else saved["versions"])
        if optimizer is not None and state is not None:
            optimizer.load_state_dict(state)
        return opened


def _finish(manager: Any, process: int) -> None:
    """Waits for the background saves of the process that started them."""
    if os.getpid() == process:
        manager.wait()


def _saved(row: tuple[Any, ...]) -> SavedStep:
    info, report, removed, not_removed = row
    if not_removed is not None:
        warnings.warn(f"CheckpointManager: a step could not be removed: {not_removed}", RuntimeWarning, stacklevel=3)
    return SavedStep(_info(info), report, removed, not_removed)


def _info(row: dict[str, Any]) -> StepInfo:
    own = {name: row["state"].pop(name) for name in _TORCH_STATE if name in row["state"]}
    return StepInfo(**{**row, "state": {**decoded(row["state"]), **own}})


def _check_direction(better: str) -> None:
    if better not in ("lower", "higher"):
        raise ValueError(f"the better metric is 'lower' or 'higher', not {better!r}")


def _names_of(model: torch.nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


def _kinds_of(model: Any, optimizer: torch.optim.Optimizer) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Returns an optimizer's arrays by kind and parameter, and its settings."""
    names = _names_of(model)
    if any(id(parameter) not in names for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError("the optimizer has a parameter that is not in the model")
    kinds: dict[str, dict[str, Any]] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, state in optimizer.state.items():
        name = names[id(parameter)]
        for kind, value in state.items():
            if hasattr(value, "shape"):
                kinds.setdefault(kind, {})[name] = value
            else:
                numbers.setdefault(kind, {})[name] = _with_tensors_apart(kind, name, value, kinds)
    groups = []
    for group in optimizer.param_groups:
        settings = {key: _plain(value) for key, value in group.items() if key != "params"}
        groups.append({"settings": settings, "params": [names[id(parameter)] for parameter in group["params"]]})
    return kinds, {"class": type(optimizer).__name__, "groups": groups, "state": numbers}


def _with_tensors_apart(kind: str, name: str, value: Any, kinds: dict[str, dict[str, Any]]) -> Any:
    """Returns state of a parameter that is no tensor, as a plain value. Tensors in its lists and dicts, which LBFGS has,
    become arrays of the kind."""
    count = 0

    def apart(tensor: Any) -> dict[str, Any]:
        nonlocal count
        key = f"{name}.{count}"
        count += 1
        if key in kinds.setdefault(kind, {}):
            raise ValueError(f"the optimizer's state {kind} has two tensors of the name {key}")
        kinds[kind][key] = tensor
        return reference("array", key)

    return encoded(value, f"{kind} of {name}", apart)


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        return value.item()
    return value


def _as_in(present: Any, value: Any) -> Any:
    """Returns a plain value in the type that a setting of an optimizer has at present: list, tensor, or other."""
    if isinstance(value, list):
        presents = present if isinstance(present, (list, tuple)) and len(present) == len(value) else [None] * len(value)
        items = [_as_in(p, v) for p, v in zip(presents, value)]
        return items if isinstance(present, list) else tuple(items)
    if hasattr(present, "new_tensor"):
        return present.new_tensor(value)
    return value


def _optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, opened: OpenedStep) -> dict[str, Any]:
    """Returns what ``optimizer.load_state_dict`` loads for a step."""
    saved = opened.info.state.get("torch_optimizer")
    if saved is None:
        raise ValueError(f"step {opened.info.step} has no state of a torch optimizer")
    if saved["class"] != type(optimizer).__name__:
        raise ValueError(f"the step has the state of {saved['class']}, but the optimizer is {type(optimizer).__name__}")
    names = _names_of(model)
    if len(saved["groups"]) != len(optimizer.param_groups):
        raise ValueError(f"the step has {len(saved['groups'])} parameter groups, the optimizer {len(optimizer.param_groups)}")
    numbers: dict[str, int] = {}
    groups: list[dict[str, Any]] = []
    for group, now in zip(saved["groups"], optimizer.param_groups):
        here = [names.get(id(parameter), "") for parameter in now["params"]]
        if sorted(here) != sorted(group["params"]):
            raise ValueError("the parameter groups of the step and of the optimizer have other parameters")
        for name in here:
            numbers.setdefault(name, len(numbers))
        settings = {name: _as_in(now.get(name), value) for name, value in group["settings"].items()}
        groups.append({**settings, "params": [numbers[name] for name in here]})
    state: dict[int, dict[str, Any]] = {}
    apart: set[tuple[str, str]] = set()
    for kind, values in saved["state"].items():

        def array(value: Any, kind: str = kind) -> Any:
            apart.add((kind, value["name"]))
            return opened.optimizer[kind][value["name"]].torch(copy=True)

        for name, value in values.items():
            state.setdefault(numbers[name], {})[kind] = decoded(value, array)
    for kind, file in opened.optimizer.items():
        for name, tensor in file.items():
            if (kind, name) not in apart:
                state.setdefault(numbers[name], {})[kind] = tensor.torch(copy=True)
    return {"state": state, "param_groups": groups}
