"""Tiny worlds, in SimPy's manner: a few coroutines, and exactly what happens when.

One simulated second is ``1 / SPEED`` real ones in real time, where only the order of what happens is asserted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from patient_loop import PatientWorld

from vflsim.codecs import Codec
from vflsim.codecs.frame import Spec
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, ImmediateExecutor, Operation
from vflsim.streams import SHARED, party_name
from vflsim.timing.activation import ActivationProcess
from vflsim.timing.capacity import Link
from vflsim.timing.delays import Constant, Delay
from vflsim.timing.profile import Profile
from vflsim.world.kernel import World
from vflsim.world.messages import Message
from vflsim.world.networks import FLUID, Dedicated, Fair, Fifo, TransportLayer
from vflsim.world.node import Node
from vflsim.world.outages import Outages
from vflsim.world.party import Draws, Party, PartyClock, RunContext
from vflsim.world.realtime import RealTimeWorld
from vflsim.world.record import OUTCOMES, Recorder
from vflsim.world.task import Task
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld
from vflsim.world.wire import Wires

SPEED = 25.0
WORLDS: dict[str, Callable[[ImmediateExecutor], World]] = {
    "virtual": VirtualWorld,
    "real": partial(PatientWorld, speed=SPEED),
    "clock": partial(RealTimeWorld, speed=SPEED),
}
"""``real`` is for what has to come in its order however loaded the machine is, ``clock`` has the machine's own."""
Main = Callable[[Node], Coroutine[Any, Any, Any]]
Entry = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Ball(Message):
    """A message kind of the test's own."""

    kind: ClassVar[str] = "ball"


@dataclass(slots=True, eq=False)
class Halt(Message):
    """Another."""

    kind: ClassVar[str] = "halt"


class BytesAreNumbers(Codec):
    """A codec without header: a message weighs as many bytes as its tensors have numbers, and 8 a sample id."""

    kind: Literal["numbers"] = "numbers"
    lossless: ClassVar[bool] = True

    def size_of(self, specs: Mapping[str, Spec], ids: int = 0) -> int:
        return 8 * ids + sum(int(np.prod(spec.shape)) for spec in specs.values())

    def payload_bytes(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        raise NotImplementedError

    def pack(self, x: torch.Tensor) -> bytes:
        raise NotImplementedError

    def unpack(self, payload: bytes, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        raise NotImplementedError


class Batches:
    """Batch k of four rows."""

    def __init__(self, origin: int) -> None:
        self._origin = origin

    def batch(self, index: int) -> Batch:
        return Batch(index, np.arange(4), self._origin)


class Tiny:
    """The parties of a tiny world without learners, and the log of what they do."""

    def __init__(
        self,
        kind: str,
        clients: int = 2,
        *,
        links: Mapping[int, Link] | None = None,
        network: Fifo | Dedicated | Fair | None = None,
        gates: Mapping[int, Profile] | None = None,
        compute: Any = None,
        upload: Delay | None = None,
        activation: Callable[[int], ActivationProcess | None] = lambda party: None,
        availability: Mapping[int, Any] | None = None,
        own_batches: bool = False,
        codec: Codec | None = None,
        concurrency: int | None = None,
        seed: int = 7,
        layer: TransportLayer = FLUID,
    ) -> None:
        executor = ImmediateExecutor()
        self.real = kind != "virtual"
        self.world: World = WORLDS[kind](executor)
        self.recorder = Recorder()
        everybody = [(links or {}).get(party, Link()) for party in range(clients + 1)]
        self.outages = Outages(availability, seed) if availability else None
        gates = self.outages.gates() if self.outages else gates
        self.transport = Transport(
            self.world, network or Fifo(), everybody, seed, self.recorder, gates, layer, concurrency
        )
        self.shared = RunContext(
            self.world,
            self.transport,
            self.recorder,
            Wires(codec or BytesAreNumbers(), executor),
            tuple(range(1, clients + 1)),
            Batches(SHARED),  # type: ignore[arg-type]
            outages=self.outages,
        )
        clock = compute or Constant(value=1.0), upload or Constant(value=0.0)
        self.nodes = [
            Node(
                Party(
                    party,
                    self.shared,
                    PartyClock(*clock, activation(party)),
                    Draws(seed, party),
                    Batches(party) if own_batches else self.shared.sequence,  # type: ignore[arg-type]
                ),
                None,
            )
            for party in range(clients + 1)
        ]
        self.server = self.nodes[0]
        self.entries: list[tuple[float, Entry]] = []
        self.reason = ""

    def log(self, *what: Any) -> None:
        """Note that ``what`` happens now."""
        self.entries.append((round(self.world.now(), 9), what))

    def run(self, *mains: Main, stop_at: float | None = None, until_all_end: bool = True) -> Tiny:
        """Run the server's coroutine, then the clients', until all have returned (or ``stop_at``)."""
        left = len(mains)

        async def count_down(main: Main, node: Node) -> None:
            nonlocal left
            await main(node)
            left -= 1
            if left == 0 and until_all_end:
                self.world.finish("all have returned")

        def start(node: Node) -> Task:
            return self.world.spawn(count_down(mains[node.party], node), party_name(node.party), node.party)

        start(self.server)
        clients = self.nodes[1 : len(mains)]
        if self.outages is not None:
            self.outages.begin(self.shared, {node.party: partial(start, node) for node in clients})
        for node in clients if self.outages is None else ():
            start(node)
        if stop_at is not None:
            self.world.after(stop_at, lambda: self.world.finish("time"), observer=True)
        self.reason = self.world.run()
        self.world.conclude(self._last())
        return self

    async def _last(self) -> None:
        self.shared.close()

    def happened(self, *expected: Entry) -> None:
        """Assert the whole log: (time, *what) in this order; in real time the order alone."""
        if self.real:
            assert [what for _, what in self.entries] == [tuple(what) for _, *what in expected]
        else:
            assert [(time, *what) for time, what in self.entries] == list(expected)

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The recorded events whose kind starts with ``kind``."""
        events = self.recorder.events
        e, kinds = events.table, list(events.kinds)
        rows = [
            {
                "start": e["start_s"][i],
                "end": e["end_s"][i],
                "party": e["party"][i],
                "kind": kinds[e["kind"][i]],
                "round": e["round"][i],
                "peer": e["peer"][i],
                "bytes": e["bytes"][i],
                "index": e["index"][i],
                "drawn": e["drawn_s"][i],
                "outcome": OUTCOMES[e["outcome"][i]],
            }
            for i in range(len(e))
        ]
        return [row for row in rows if row["kind"].startswith(kind)]


class Toolbox:
    """What the tests make worlds and messages of."""

    Ball, Halt, Link, Fifo, Dedicated, Fair = Ball, Halt, Link, Fifo, Dedicated, Fair

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.made: list[Tiny] = []

    @property
    def real(self) -> bool:
        return self.kind == "real"

    def __call__(self, clients: int = 2, **how: Any) -> Tiny:
        self.made.append(Tiny(self.kind, clients, **how))
        return self.made[-1]

    @staticmethod
    def ball(size: int = 0, round: int = -1, batch: Batch | None = None) -> Ball:
        """A ball of ``size`` bytes."""
        return Ball(batch, Handle((size,)), round)

    @staticmethod
    def work(kind: str = "work", party: int = 0, run: Callable[[], None] = lambda: None, **more: Any) -> Operation[Any]:
        """An operation that takes the party's compute time."""
        return Operation(kind, party, run, more.pop("result", None), **more)

    @staticmethod
    def halt_at(*times: float, round: int = -1) -> Main:
        """A server that sends client 1 a halt at each of the times."""

        async def server(node: Node) -> None:
            for time in times:
                await node.sleep(max(0.0, time - node.now))
                await node.send(1, Halt(round=round))

        return server

    @staticmethod
    async def idle(node: Node) -> None:
        """A party that does nothing."""

    @staticmethod
    def constant(seconds: float) -> Constant:
        return Constant(value=seconds)


@pytest.fixture(params=["virtual", "real"])
def tiny(request: pytest.FixtureRequest) -> Iterator[Toolbox]:
    """Makes tiny worlds, in virtual and in real time; afterwards nothing is left pending in any of them."""
    yield from _toolbox(request.param)


@pytest.fixture
def virtual() -> Iterator[Toolbox]:
    """Makes tiny worlds in virtual time."""
    yield from _toolbox("virtual")


@pytest.fixture
def real() -> Iterator[Toolbox]:
    """Makes tiny worlds in real time, by the machine's own clock."""
    yield from _toolbox("clock")


@pytest.fixture
def patient() -> Iterator[Toolbox]:
    """Makes tiny worlds in real time, by a clock that waits for the machine."""
    yield from _toolbox("real")


def _toolbox(kind: str) -> Iterator[Toolbox]:
    box = Toolbox(kind)
    yield box
    for made in box.made:
        assert not made.world._tasks, "a coroutine was left pending"
        made.world.close()
    gc.collect(1)  # a coroutine that was never awaited warns now, in the test that made it
