"""Synchronous training whose clients scale each gradient by something that they remember, in many ways."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import count
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from vflsim.protocol import (
    Batch,
    ClientLearner,
    Gradient,
    Learners,
    Operation,
    Received,
    Setting,
    Synchronous,
    client_parts,
    split_learners,
)


class Way(NamedTuple):
    """A way to remember: what there is at first, the change by a gradient, and the factor of the step."""

    first: Callable[[], dict[str, Any]]
    change: Callable[[Any, Tensor], object]
    factor: Callable[[Any], float]


class Memory:
    """An object of one's own, which holds another."""

    def __init__(self) -> None:
        self.inner = SimpleNamespace(steps=0)

    def step(self) -> None:
        self.inner.steps += 1


class Slotted:
    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


def add(learner: Any, name: str, by: Any = 1) -> None:
    setattr(learner, name, getattr(learner, name) + by)


def norm(gradient: Tensor) -> float:
    return float(gradient.square().sum())


def decay(steps: float) -> float:
    return 1 / (1 + steps / 4)


LOST: dict[str, Way] = {
    "counter": Way(lambda: {"mine": 0}, lambda me, _: add(me, "mine"), lambda me: decay(me.mine)),
    "list": Way(lambda: {"mine": []}, lambda me, g: me.mine.append(g), lambda me: decay(len(me.mine))),
    "long list": Way(
        lambda: {"mine": [0.0] * 1_500}, lambda me, g: me.mine.__setitem__(7, norm(g)), lambda me: decay(me.mine[7])
    ),
    "nested list": Way(
        lambda: {"mine": [[0]]}, lambda me, _: me.mine[0].__setitem__(0, me.mine[0][0] + 1),
        lambda me: decay(me.mine[0][0]),
    ),
    "mapping": Way(
        lambda: {"mine": {}}, lambda me, g: me.mine.update({len(me.mine): g}), lambda me: decay(len(me.mine))
    ),
    "set": Way(lambda: {"mine": set()}, lambda me, _: me.mine.add(len(me.mine)), lambda me: decay(len(me.mine))),
    "deque": Way(lambda: {"mine": deque()}, lambda me, _: me.mine.append(1), lambda me: decay(len(me.mine))),
    "tensor": Way(
        lambda: {"mine": torch.zeros(1)}, lambda me, g: add(me, "mine", g.square().sum()),
        lambda me: decay(float(me.mine)),
    ),
    "tensor in place": Way(
        lambda: {"mine": torch.zeros(1)}, lambda me, _: me.mine.add_(1), lambda me: decay(float(me.mine))
    ),
    "large tensor in place": Way(
        lambda: {"mine": torch.zeros(9_000)}, lambda me, _: me.mine[:1].add_(1), lambda me: decay(float(me.mine[0]))
    ),
    "array in place": Way(
        lambda: {"mine": np.zeros(3)}, lambda me, _: me.mine.__iadd__(1), lambda me: decay(float(me.mine[0]))
    ),
    "object": Way(lambda: {"mine": Memory()}, lambda me, _: me.mine.step(), lambda me: decay(me.mine.inner.steps)),
    "slots": Way(lambda: {"mine": Slotted()}, lambda me, _: add(me.mine, "steps"), lambda me: decay(me.mine.steps)),
    "new attribute": Way(
        dict, lambda me, _: setattr(me, "mine", getattr(me, "mine", 0) + 1), lambda me: decay(getattr(me, "mine", 0))
    ),
    "numbers to come": Way(
        lambda: {"mine": count()}, lambda me, _: next(me.mine), lambda me: decay(int(repr(me.mine)[6:-1]))
    ),
    "generator of its own": Way(
        lambda: {"mine": np.random.default_rng(0)}, lambda _me, _g: None, lambda me: decay(me.mine.random())
    ),
    "torch generator": Way(
        lambda: {"mine": torch.Generator().manual_seed(0)}, lambda _me, _g: None,
        lambda me: decay(float(torch.rand((), generator=me.mine))),
    ),
    "Python generator": Way(
        lambda: {"mine": random.Random(0)}, lambda _me, _g: None, lambda me: decay(me.mine.random())
    ),
    "features in place": Way(
        dict, lambda me, _: me.features("train").mul_(0.9), lambda me: float(me.features("train").abs().max())
    ),
    "batch": Way(
        lambda: {"mine": [Batch(0, np.array([0, 1]))]},
        lambda me, _: me.mine.append(Batch(len(me.mine), np.array([0, 1]))), lambda me: decay(len(me.mine)),
    ),
    "what only Python keeps": Way(
        lambda: {"mine": Fraction(1)}, lambda me, _: add(me, "mine", Fraction(1, 2)), lambda me: decay(float(me.mine))
    ),
    "module of its own": Way(
        lambda: {"mine": nn.Linear(1, 1)}, lambda me, _: me.mine.weight.data.add_(1),
        lambda me: decay(abs(me.mine.weight.item())),
    ),
}  # fmt: skip
"""What a checkpoint does not keep."""


def late(me: Any) -> None:
    """Change an attribute from the fifth step on."""
    me.kept["steps"] = me.kept.get("steps", 0) + 1
    if me.kept["steps"] > 4:
        me.mine += 1


LATE = Way(lambda: {"mine": 0}, lambda me, _: late(me), lambda me: decay(me.mine))
"""What a checkpoint loses only after a while."""


def _kept(name: str, first: Any, change: Callable[[Any], Any]) -> Callable[[Any, Tensor], None]:
    def changed(me: Any, _: Tensor) -> None:
        me.kept[name] = change(me.kept.get(name, first))

    return changed


SOUND: dict[str, Way] = {
    "nothing": Way(dict, lambda _me, _g: None, lambda _: 1.0),
    "kept tensor": Way(
        dict, lambda me, g: me.kept.update(mine=me.kept.get("mine", 0) + g.square().sum()),
        lambda me: decay(float(me.kept.get("mine", 0))),
    ),
    "kept counter": Way(dict, _kept("mine", 0, lambda n: n + 1), lambda me: decay(me.kept.get("mine", 0))),
    "kept list": Way(
        dict, lambda me, g: me.kept.setdefault("mine", []).append((norm(g), g, {"rows": len(g), 3: None})),
        lambda me: decay(sum(each[0] + each[2]["rows"] for each in me.kept.get("mine", []))),
    ),
    "state of its own": Way(
        lambda: {"own": torch.zeros(2)}, lambda me, _: me.own.add_(1), lambda me: decay(float(me.own[0]))
    ),
    "cached property": Way(dict, lambda me, _: me.pure, lambda me: me.pure),
    "same again": Way(
        lambda: {"mine": torch.ones(2), "words": ["a"]},
        lambda me, _: (setattr(me, "mine", torch.ones(2)), setattr(me, "words", ["a"])),
        lambda me: float(me.mine[0]),
    ),
    "timing plane": Way(lambda: {"made": 0}, lambda _me, _g: None, lambda _: 1.0),
}  # fmt: skip
"""What a resumed run has again."""
WAYS = LOST | SOUND | {"late": LATE}


class Remembering(ClientLearner):
    """Steps along the gradient times a factor."""

    way: Way
    made: int

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        operation = super().client_step(batch, gradient)
        if hasattr(self, "made"):  # a replay repeats it
            self.made += 1

        def run() -> None:
            value = gradient.value.value
            self._uploaded.backward(batch, value * self.way.factor(self))
            self.way.change(self, value)

        operation.run = run
        return operation

    @cached_property
    def pure(self) -> float:
        return 1 / len(self.features("train"))


class WithState(Remembering):
    """Adds a tensor to its state."""

    own: Tensor

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"own": self.own}

    def load(self, state: Any) -> None:
        super().load(state)
        self.own.copy_(state["own"])


class Remember(Synchronous):
    """Synchronous, with clients that remember."""

    kind: Literal["remember"] = "remember"  # type: ignore[assignment]
    way: str = "nothing"

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        kind = WithState if self.way == "state of its own" else Remembering
        clients = {client: kind(client_parts(setting, client, seed)) for client in setting.clients}
        for learner in clients.values():
            learner.way = WAYS[self.way]
            vars(learner).update(learner.way.first())
        return Learners(split_learners(setting, seed).server, clients)


def _noise(source: str) -> Callable[[Sequence[int]], Tensor]:
    return {
        "torch": lambda shape: torch.randn(*shape, dtype=torch.float64),
        "numpy": lambda shape: torch.from_numpy(np.random.randn(*shape)),
        "python": lambda shape: torch.full(tuple(shape), random.gauss(), dtype=torch.float64),
    }[source]


class Noisy(ClientLearner):
    """Adds noise of a global generator to each gradient."""

    source: str

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        operation = super().client_step(batch, gradient)

        def run() -> None:
            value = gradient.value.value
            self._uploaded.backward(batch, value + 0.01 * _noise(self.source)(value.shape))

        operation.run = run
        return operation


class DrawNoise(Synchronous):
    """Synchronous, with clients that draw from a global generator."""

    kind: Literal["draw_noise"] = "draw_noise"  # type: ignore[assignment]
    source: str = "torch"

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        clients = {client: Noisy(client_parts(setting, client, seed)) for client in setting.clients}
        for learner in clients.values():
            learner.source = self.source
        return Learners(split_learners(setting, seed).server, clients)


class Dropping(nn.Module):
    """A tower, or top, that drops inputs at random, and counts how often it has been applied."""

    def __init__(
        self, feature_shape: tuple[int, ...] = (), embedding: int = 0, inputs: int = 0, outputs: int = 0,
        counts: bool = False, buffer: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(inputs or int(np.prod(feature_shape)), outputs or embedding)
        self.counts, self.buffer, self.applied, self.seen = counts, buffer, 0, None
        self.register_buffer("times", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(x.flatten(1))
        if self.counts and self.training:
            self.applied += 1
        if self.buffer and self.training:
            self.times += 1
        output: Tensor = self.last(x) * decay(self.applied + float(self.times))
        self.seen = output.detach()  # to look at
        return output


class Draws(Synchronous):
    """Synchronous, whose server waits for random times of Python's own generator."""

    kind: Literal["draws"] = "draws"  # type: ignore[assignment]

    async def server(self, node: Any) -> None:
        for k in node.rounds():
            await node.sleep(random.random() / 100)
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            for each in embeddings:
                await node.send(each.sender, Gradient(value=step.gradient_for(each), round=k))


class Forgetful(WithState):
    """Has a state of its own that it does not load."""

    def load(self, state: Any) -> None:
        ClientLearner.load(self, state)


class Hidden(ClientLearner):
    """Remembers where nobody looks: in a closure."""

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        operation, steps = super().client_step(batch, gradient), STEPS.setdefault(id(self), [])

        def run() -> None:
            self._uploaded.backward(batch, gradient.value.value * decay(len(steps)))
            steps.append(batch)

        operation.run = run
        return operation


STEPS: dict[int, list[Batch]] = {}


class Unseeded(ClientLearner):
    """Draws from the system."""

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        operation = super().client_step(batch, gradient)
        operation.run = lambda: self._uploaded.backward(batch, gradient.value.value * np.random.default_rng().random())
        return operation


class Keeping(ClientLearner):
    """Keeps what no file can hold."""

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        operation, run = super().client_step(batch, gradient), None
        run = operation.run
        operation.run = lambda: (run(), self.kept.update(seen={3}))[0]
        return operation


BROKEN: dict[str, type[ClientLearner]] = {
    "forgetful": Forgetful, "hidden": Hidden, "unseeded": Unseeded, "keeping": Keeping
}  # fmt: skip


class Broken(Synchronous):
    """Synchronous, with clients that do not repeat themselves."""

    kind: Literal["broken"] = "broken"  # type: ignore[assignment]
    how: str

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        clients = {client: BROKEN[self.how](client_parts(setting, client, seed)) for client in setting.clients}
        for learner in clients.values():
            if isinstance(learner, Forgetful):
                learner.way, learner.own = WAYS["state of its own"], torch.zeros(2)
        return Learners(split_learners(setting, seed).server, clients)
