"""Watch over code from outside the package: what it draws can be repeated, and what it changes is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from vflsim.errors import UnkeptStateError
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.attribute_changes import Attributes, attributes_of_module
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.randomness import draw_from, drawing_apart, generators_of
from vflsim.learning.states import ALLOWED
from vflsim.streams import torch_seed

_KEPT = ("kept", "graphs", "models", "releases", "blinder", "stack")
"""The attributes of every learner that its state has."""
ALONE = 2
"""How many operations of each kind of a party are looked at one by one, so that an error can name the one."""


def from_outside(thing: Any) -> bool:
    """Return whether the class of ``thing`` (or ``thing``, a class) is none of vflsim's."""
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__.partition(".")[0] != "vflsim"


class Burst:
    """The operations that run one after the other, with nothing of the timing plane in between.

    Code from outside changes a party only during a burst, and checkpoints are taken only between bursts. So it is
    enough to compare the party at the end of a burst with the party at its beginning.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began: dict[Watch, Look] = {}

    @contextmanager
    def around(self) -> Iterator[None]:
        """Seed the global generators for what is inside, and then look at the parties whose operations ran.

        Raises ``UnkeptStateError`` for a change that checkpoints do not keep.
        """
        with drawing_apart(self._device):
            try:
                yield
                for watch, look in self._began.items():
                    watch.end(look)
            finally:
                self._began.clear()

    def begin(self, watch: Watch) -> None:
        """Look at the party of ``watch``, unless that was done in this burst."""
        if watch not in self._began:
            self._began[watch] = watch.look()


@dataclass(frozen=True, slots=True)
class Look:
    """What a party is like at one time, as far as operations can change it and checkpoints do not keep it."""

    attributes: Attributes | None
    held: list[tuple[int, int]]
    modules: dict[nn.Module, Attributes]


class Watch:
    """Watches over the operations of one party, so that a run repeats itself to the byte, resumed or not.

    While an operation runs, the global random generators of PyTorch, NumPy and Python are seeded with the run's seed,
    the party, the operation's kind, and how many of that kind the party has done before. ``refuses``: operations that
    change an attribute of the learner which its ``state`` does not have end in an ``UnkeptStateError``; so do those
    that change a plain attribute of a model's module. The first operations of each kind are looked at one by one, the
    others of a ``burst`` together. A learner with a ``state`` of its own answers for itself.
    """

    def __init__(self, learner: PartyLearner, seed: int, refuses: bool, burst: Burst) -> None:
        self._learner, self._seed, self._refuses, self._burst = learner, seed, refuses, burst
        self._looks = refuses and from_outside(learner) and not _has_own_state(type(learner))
        self._done: Counter[str] = Counter()
        self._modules: dict[str, list[nn.Module]] = {}
        self._alone: Counter[str] = Counter()
        self._together: dict[str, Operation[Any]] = {}

    def over(self, operation: Operation[Any], free: bool = False) -> None:
        """Watch over an operation that its party has done in virtual time; ``free``: outside time."""
        if operation.kernel is None:
            purpose = f"{'free' if free else 'run'}.{operation.kind}"
            operation.run = partial(self._run, operation, operation.run, f"{purpose}/{self._done[purpose]}")
            self._done[purpose] += 1

    def _run(self, operation: Operation[Any], run: Callable[[], None], purpose: str) -> None:
        learner, kind = self._learner, operation.kind
        for name, graph in learner.graphs.items():
            graph.seed = partial(torch_seed, self._seed, learner.party, f"{purpose}/{name}")
        before = None
        if self._refuses and self._alone[kind] < ALONE:
            self._alone[kind] += 1
            before = self.look()
        elif self._refuses:
            self._together.pop(kind, None)  # the latest comes last
            self._together[kind] = operation
            self._burst.begin(self)
        draw_from(torch_seed(self._seed, learner.party, purpose), self._generators)
        run()
        if before is not None:
            self._compare(before, kind, "")

    @cached_property
    def _generators(self) -> list[torch.Generator]:
        return generators_of(self._learner.held.device)

    def look(self) -> Look:
        """Look at the party."""
        attributes, held = (self._attributes(), self._held()) if self._looks else (None, [])
        return Look(attributes, held, {module: attributes_of_module(module) for module in self._own_modules()})

    def end(self, before: Look) -> None:
        """Compare the party with what it was ``before`` a burst. Raises ``UnkeptStateError``."""
        operations, self._together = self._together, {}
        *_, last = operations.values()
        self._compare(before, " or ".join(operations), f"by {last.where}" if last.where else "")

    def _compare(self, before: Look, kind: str, where: str) -> None:
        learner = self._learner
        if before.attributes is not None:
            for name in before.attributes.changed(learner, self._attributes(), self._storages):
                raise _unkept(kind, where, learner, name, f'keep it as self.kept["{name}"] ({ALLOWED})')
            if self._held() != before.held:
                raise _unkept(kind, where, learner, "held", "copy features and labels before you change them")
        for module, content in before.modules.items():
            for name in content.changed(module, attributes_of_module(module)):
                remedy = "register it as a buffer (register_buffer), or do without it"
                raise _unkept(kind, where, module, name, remedy)

    def _attributes(self) -> Attributes:
        learner = self._learner
        return Attributes(learner, _KEPT, [id(each) for each in (*learner.models.values(), *learner.graphs.values())])

    def _held(self) -> list[tuple[int, int]]:
        """Return which tensors the party holds as features and labels, and how often each has been changed."""
        held = self._learner.held
        tensors = [*(held.features or {}).values(), *(held.labels or {}).values()]
        return [(id(each), -1 if each.is_inference() else each._version) for each in tensors]

    def _storages(self) -> set[int]:
        """Return the storages that a checkpoint has, by address."""
        return {tensor.untyped_storage().data_ptr() for tensor in self._learner.state().values()}

    def _own_modules(self) -> list[nn.Module]:
        for name, model in self._learner.models.items():
            if name not in self._modules and model.made:
                self._modules[name] = [each for each in model.module.modules() if _is_own_module(each)]
        return [module for name in self._learner.models for module in self._modules.get(name, ())]


def _is_own_module(module: nn.Module) -> bool:
    return from_outside(module) and not type(module).__module__.startswith("torch.")


def _has_own_state(kind: type[PartyLearner]) -> bool:
    return any("state" in vars(each) and from_outside(each) for each in kind.__mro__)


def _unkept(kind: str, where: str, owner: object, name: str, remedy: str) -> UnkeptStateError:
    what = f"{kind} changed {type(owner).__name__}.{name}, which checkpoints do not keep: a resumed run would lose it"
    return UnkeptStateError(what, where, allowed="changes of models and of what `kept` holds", remedy=remedy)
