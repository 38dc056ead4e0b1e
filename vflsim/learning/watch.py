"""Watch over code from outside the package: what it draws can be repeated, and what it changes is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from vflsim.errors import UnkeptStateError
from vflsim.learning.contents import Attributes, attributes_of_module
from vflsim.learning.operations import Operation
from vflsim.learning.party import PartyLearner
from vflsim.learning.randomness import draw_from, generators_of
from vflsim.learning.remembered import ALLOWED
from vflsim.streams import torch_seed

_KEPT = ("kept", "graphs", "models", "releases", "blinder", "stack")
"""The attributes of every learner that its state has."""


def from_outside(thing: Any) -> bool:
    """Return whether the class of ``thing`` (or ``thing``, a class) is none of vflsim's."""
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__.partition(".")[0] != "vflsim"


class Watch:
    """Watches over the operations of one party, so that a run repeats itself to the byte, resumed or not.

    While an operation runs, the global random generators of PyTorch, NumPy and Python are seeded with the run's seed,
    the party, the operation's kind, and how many of that kind the party has done before. ``refuses``: an operation that
    changes an attribute of the learner which its ``state`` does not have raises ``UnkeptStateError``; so does one
    that changes a plain attribute of a model's module. A learner with a ``state`` of its own answers for itself.
    """

    def __init__(self, learner: PartyLearner, seed: int, refuses: bool) -> None:
        self._learner, self._seed, self._refuses = learner, seed, refuses
        self._looks = refuses and from_outside(learner) and not _has_own_state(type(learner))
        self._done: Counter[str] = Counter()
        self._modules: dict[str, list[nn.Module]] = {}

    def over(self, operation: Operation[Any], free: bool = False) -> None:
        """Watch over an operation that its party has done in virtual time; ``free``: outside time."""
        if operation.kernel is None:
            purpose = f"{'free' if free else 'run'}.{operation.kind}"
            operation.run = partial(self._run, operation.kind, operation.run, f"{purpose}/{self._done[purpose]}")
            self._done[purpose] += 1

    def _run(self, kind: str, run: Callable[[], None], purpose: str) -> None:
        learner = self._learner
        for name, graph in learner.graphs.items():
            graph.seed = torch_seed(self._seed, learner.party, f"{purpose}/{name}")
        before = self._attributes() if self._looks else None
        held = self._held() if self._looks else []
        modules = [(each, attributes_of_module(each)) for each in self._own_modules()] if self._refuses else []
        draw_from(torch_seed(self._seed, learner.party, purpose), generators_of(learner.held.device))
        run()
        if before is not None:
            for name in before.changed(learner, self._attributes(), self._storages):
                raise _unkept(kind, learner, name, f'keep it as self.kept["{name}"] ({ALLOWED})')
            if self._held() != held:
                raise _unkept(kind, learner, "held", "copy features and labels before you change them")
        for module, content in modules:
            for name in content.changed(module, attributes_of_module(module)):
                raise _unkept(kind, module, name, "register it as a buffer (register_buffer), or do without it")

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


def _unkept(kind: str, owner: object, name: str, remedy: str) -> UnkeptStateError:
    what = f"{kind} changed {type(owner).__name__}.{name}, which checkpoints do not keep: a resumed run would lose it"
    return UnkeptStateError(what, allowed="changes of models and of what `kept` holds", remedy=remedy)
