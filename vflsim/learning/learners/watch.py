"""Watch over code from outside the package: what it draws can be repeated, and what it changes is kept."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from functools import cached_property, partial
from hashlib import sha256
from itertools import count
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias

from vflsim.errors import UnkeptStateError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.embedding_table import EmbeddingTable
from vflsim.learning.learners.graphs import KeptGraph
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.party_model import PartyModel
from vflsim.learning.models.build import draw_from, generators_of
from vflsim.learning.states import ALLOWED
from vflsim.streams import party_name, torch_seed
from vflsim.vocabulary.on_demand import Tensor, nn, torch

Unkept: TypeAlias = dict[str, str]
"""Digests of attributes that checkpoints do not keep, by class and name, and by the model of a module."""
_KEPT = {"kept", "graphs", "models", "releases", "blinder", "stack", "held"}
"""The attributes of every learner that its state has, or that are looked at by themselves."""
_IN = " in the model "
_LOOKED_INTO = PartyModel, KeptGraph, EmbeddingTable
_NAMED = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)


def from_outside(thing: Any) -> bool:
    """Return whether the class of ``thing`` (or ``thing``, a class) is none of vflsim's."""
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__.partition(".")[0] != "vflsim"


class Watch:
    """Watches over the operations of one party, so that a run repeats itself to the byte, resumed or not.

    While an operation runs, the global random generators of PyTorch, NumPy and Python are seeded with the run's seed,
    the party, the operation's kind, and how many of that kind the party has done before. A checkpoint notes what the
    learner and the modules of its models are like beside their states: a resumed run has to be like that again. A
    learner with a ``state`` of its own answers for itself.
    """

    def __init__(self, learner: PartyLearner, seed: int) -> None:
        self._learner, self._seed = learner, seed
        self._looks = from_outside(learner) and not _has_own_state(type(learner))
        self._done: Counter[str] = Counter()
        self._began = self._changes()

    def over(self, operation: Operation[Any], free: bool = False) -> None:
        """Watch over an operation that its party has done in virtual time; ``free``: outside time."""
        if operation.kernel is None:
            purpose = f"{'free' if free else 'run'}.{operation.kind}"
            operation.run = partial(self._run, operation.run, f"{purpose}/{self._done[purpose]}")
            self._done[purpose] += 1

    def _run(self, run: Callable[[], None], purpose: str) -> None:
        learner = self._learner
        for name, graph in learner.graphs.items():
            graph.seed = partial(torch_seed, self._seed, learner.party, f"{purpose}/{name}")
        draw_from(torch_seed(self._seed, learner.party, purpose), self._generators)
        run()

    @cached_property
    def _generators(self) -> list[torch.Generator]:
        return generators_of(self._learner.held.device)

    def unkept(self) -> Unkept:
        """Return what operations may have changed, and checkpoints do not keep."""
        learner, seen = self._learner, Unkept()
        if self._looks:
            kept = _Kept(learner)
            seen |= _attributes(learner, vars(learner).keys() - _KEPT, kept)
            since = [now - then for now, then in zip(self._changes(), self._began, strict=True)]
            seen[f"{type(learner).__name__}.held"] = str(since)
        for model in learner.models.values():
            for path, module in model.module.named_modules() if model.made else ():
                if from_outside(module) and not type(module).__module__.startswith("torch."):
                    names = vars(module).keys() - vars(nn.Module()).keys()
                    looked_at = {name for name in names if isinstance(getattr(module, name), Tensor | None)}
                    place = f"{_IN}{model.name}{path and '.'}{path}"
                    attributes = _attributes(module, names - looked_at, None)
                    seen |= {f"{name}{place}": content for name, content in attributes.items()} | {place: ""}
        return seen

    def compare(self, before: Unkept) -> None:
        """Refuse a resumed run that is unlike what it was ``before``. Raises ``UnkeptStateError``."""
        now, party = self.unkept(), party_name(self._learner.party)
        models = {name.partition(_IN)[2] for name in before.keys() & now.keys()}
        for name in sorted(before.keys() | now.keys()):
            model, attribute = name.partition(_IN)[2], name.partition(_IN)[0].partition(".")[2]
            if before.get(name) != now.get(name) and (not model or model in models):
                remedy = f'keep it as self.kept["{attribute}"] ({ALLOWED})'
                if model:
                    remedy = "register it as a buffer (register_buffer), or do without it"
                elif attribute == "held":
                    remedy = "copy features and labels before you change them"
                what = f"operations of {party} changed {name}, which checkpoints do not keep: a resumed run loses it"
                raise UnkeptStateError(what, "", "changes of models and of what `kept` holds", remedy)

    def _changes(self) -> list[int]:
        """Return how often each tensor of features and labels has been changed."""
        held = self._learner.held
        tensors = (*(held.features or {}).values(), *(held.labels or {}).values())
        made = [each for each in tensors if isinstance(each, Tensor)]  # before PyTorch is there, none is
        return [0 if each.is_inference() else each._version for each in made]


def _has_own_state(kind: type[PartyLearner]) -> bool:
    return any("state" in vars(each) and from_outside(each) for each in kind.__mro__)


class _Kept:
    """What a learner's checkpoints keep: the objects of its models and graphs, and the storages of its state."""

    def __init__(self, learner: PartyLearner) -> None:
        self._learner = learner
        self.things = {id(each) for each in (learner, *learner.models.values(), *learner.graphs.values())}

    @cached_property
    def storages(self) -> set[int]:
        """The storages of tensors, by address."""
        return {tensor.untyped_storage().data_ptr() for tensor in self._learner.state().values()}


def _attributes(owner: object, names: set[str], kept: _Kept | None) -> Unkept:
    """Return digests of attributes, but of those that are as the class has them, or follow from others."""
    kind, seen = type(owner), Unkept()
    for name in names:
        usual, content = getattr(kind, name, _NOTHING), digest(getattr(owner, name), kept)
        if not isinstance(usual, cached_property) and (usual is _NOTHING or content != digest(usual, kept)):
            seen[f"{kind.__name__}.{name}"] = content
    return seen


_NOTHING = object()


def digest(value: object, kept: _Kept | None = None) -> str:
    """Return what is equal for equal contents, in another process, too; the class of what no file can hold."""
    for fast in (True, False):
        hasher = sha256()
        writer = _Writer(SimpleNamespace(write=hasher.update), kept)
        writer.fast = fast  # equal contents have equal bytes, whatever they share; not for what contains itself
        try:
            writer.dump(value)
        except Exception:  # such as something of the system
            continue
        return hasher.hexdigest()
    return type(value).__qualname__


class _Writer(pickle.Pickler):
    """Writes contents; of what only changes in the timing plane, which a resumed run repeats, the class alone."""

    def __init__(self, file: Any, kept: _Kept | None) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_id(self, thing: Any) -> Any:
        """Return what stands for a thing; None if its parts are written."""
        if isinstance(thing, Tensor):
            if self._kept is not None and thing.untyped_storage().data_ptr() in self._kept.storages:
                return "kept"
            flat = thing.detach().cpu().contiguous().view(-1)
            content = flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
            return str(thing.dtype), tuple(thing.shape), content
        if isinstance(thing, torch.Generator):
            return thing.get_state().numpy().tobytes()
        if isinstance(thing, count):
            return repr(thing)
        if isinstance(thing, set | frozenset):
            return sorted(digest(each, self._kept) for each in thing)
        if isinstance(thing, Batch):
            return thing.index, thing.origin
        if isinstance(thing, _NAMED):
            return thing.__name__
        known = self._kept is not None and id(thing) in self._kept.things
        others = not (from_outside(thing) or isinstance(thing, (*_LOOKED_INTO, nn.Module)))
        return type(thing).__qualname__ if known or others else None
