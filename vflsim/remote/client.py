"""A client in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from typing_extensions import override

from vflsim.errors import RunError, VflsimError
from vflsim.learning.randomness import drawing_from
from vflsim.protocols.defaults import evaluation_of
from vflsim.protocols.made import coroutine_of
from vflsim.remote.built import OwnParty, RemoteBox, own_party, own_setting
from vflsim.remote.channel import Channel, LostError, connected
from vflsim.remote.control import (
    Bye,
    Control,
    Counted,
    Done,
    EvaluateNow,
    Failed,
    Hello,
    Prepare,
    Ready,
    Start,
    Stopped,
    Withdrawn,
    Written,
)
from vflsim.remote.frames import pack_message
from vflsim.remote.machine import digest_of, largest_frame, machine, version, warm_up
from vflsim.remote.parts import write_part
from vflsim.remote.world import LiveWorld, precise_loop
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import Execution
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.world.messages import Message
from vflsim.world.record import Recorder
from vflsim.world.transfers import Transfer
from vflsim.world.transport import Transport


class Outbox(Transport):
    """A client's end of the network: messages leave at once, and the server's process emulates their way.

    Invariant: the n-th message sent here is the n-th that the server counts.
    """

    def __init__(self, channel: Channel, pack: Callable[[Message], bytes]) -> None:
        self._channel, self._pack = channel, pack
        self._sent = 0

    @override
    def send(self, message: Message, size: int, deliver: Callable[[Message], None]) -> Transfer:
        transfer = Transfer()
        transfer.message, transfer.size, transfer.state = message, size, "moving"
        transfer.place = self._sent
        self._sent += 1
        self._channel.message(self._pack(message), timed=True)
        return transfer

    @override
    def abandon(self, transfer: Transfer) -> None:
        if transfer.under_way:
            transfer.state = "abandoned"
            self._channel.control(Withdrawn(number=transfer.place))

    @override
    def close(self) -> None:
        """Do nothing: the server accounts for what the end of the run cuts short."""

    @override
    def under_way(self) -> Iterator[Message]:
        return iter(())


class _ClientRun:
    """One run of a client: what it makes of the frames that come."""

    def __init__(self, client: LiveClient, prepare: Prepare) -> None:
        self._client, self._name, self._seed = client, prepare.protocol, prepare.seed
        scenario, channel = client.scenario, client.channel
        self._protocol = scenario.protocols[prepare.protocol].protocol
        self._world = LiveWorld(client.loop)
        data = client.data.of(scenario.training_of(self._name))
        resolved = own_setting(scenario, self._name, data, client.party)
        made: list[OwnParty] = []

        def pack(message: Message) -> bytes:
            return pack_message(message, made[0].wires)

        box = RemoteBox(self._world, lambda message: channel.message(pack(message), timed=False))
        with drawing_from(torch_seed(self._seed, SHARED, "learners")):
            made.append(
                own_party(
                    scenario,
                    self._name,
                    self._seed,
                    resolved,
                    client.party,
                    self._world,
                    lambda _: box,
                    lambda _: Outbox(channel, pack),
                )
            )
        self._made = made[0]
        self._counted = 0
        self._ended = self._world.signal("the server to end the run")
        self._made.shared.progressed = self._count
        channel.attend(
            self._on_control,
            lambda error: self._world.deliver(lambda: self._world.fail(error, "the connection")),
            self._on_message,
        )

    def play(self) -> None:
        """Take part in the run until the server has ended it. Raises what ended it otherwise."""
        with Execution(eager=True).settings(), drawing_from(torch_seed(self._seed, SHARED, "protocol"), alone=False):
            self._client.channel.control(Ready())
            self._world.run()
            self._world.conclude(self._until_done())

    def written(self, folder: Path) -> None:
        """Write this client's part of the results."""
        write_part(folder, self._made)

    async def _until_done(self) -> None:
        await self._ended

    def _count(self) -> None:
        recorder: Recorder = self._made.shared.recorder
        more, self._counted = recorder.updates - self._counted, recorder.updates
        if more:
            self._client.channel.control(Counted(updates=more))

    def _on_message(self, timed: bool, body: bytes) -> None:
        message = self._made.reader.message(body, SERVER, self._client.party)
        self._world.deliver(lambda: self._made.node.state.mailbox.deliver(message))

    def _on_control(self, message: Control) -> None:
        match message:
            case EvaluateNow():
                self._world.deliver(lambda: self._answer(message))
            case Start():
                loop = self._client.loop
                same = message.machine == machine()
                self._world.begin_at(message.at if same else loop.time() + message.in_s, self._begin)
            case Stopped():
                self._world.deliver(lambda: self._world.finish(message.reason))
            case Done():
                self._world.deliver(self._ended.set)
            case _:
                raise RunError(f"the server sent a {message.kind!r} message in a run")

    def _begin(self) -> None:
        party = self._client.party
        self._world.spawn(coroutine_of(self._protocol, "client", party, self._made.node), party_name(party), party)

    def _answer(self, asked: EvaluateNow) -> None:
        node = self._made.node.free(wired=asked.wired) if asked.free else self._made.node
        answering = coroutine_of(
            evaluation_of(self._protocol), "answer_evaluation", node.party, node, asked.splits, asked.number
        )
        self._world.spawn(answering, f"{party_name(node.party)} (evaluation)", node.party, observer=asked.free)


class LiveClient:
    """A client's process: connects, takes part in every run that the server announces, and writes its parts.

    Example::

        with asyncio.Runner() as runner:
            LiveClient(scenario, 3, "127.0.0.1", 7000, Path("identities/client-3"), Path("parts")).play(runner)
    """

    def __init__(
        self, scenario: Scenario, party: int, host: str, port: int, identity: Path, parts: Path, timeout: float
    ) -> None:
        self.scenario, self.party = scenario, party
        self._place, self._identity, self._parts, self._timeout = (host, port), identity, parts, timeout
        self.data = ScenarioData(scenario)
        self.loop = precise_loop()
        self.channel: Channel

    def play(self) -> None:
        """Play until the server says goodbye. Raises ``LostError`` if it goes away, and errors of the own data."""
        training = self.scenario.training
        self.data.of(training)  # before it says that it is here
        warm_up()
        hello = Hello(party=self.party, scenario=digest_of(self.scenario), version=version(), machine=machine())
        most = largest_frame(self.scenario, self.data)
        try:
            self.channel = self.loop.run_until_complete(
                connected(*self._place, self._identity, hello, most, self._timeout)
            )
            while isinstance(prepare := self._next(), Prepare):
                self._take_part(prepare)
        finally:
            if hasattr(self, "channel"):
                self.loop.run_until_complete(self.channel.close())
            self.loop.close()

    def _take_part(self, prepare: Prepare) -> None:
        try:
            run = _ClientRun(self, prepare)
            run.play()
            run.written(self._parts / prepare.protocol / f"seed-{prepare.seed}")
        except LostError:
            raise
        except VflsimError as error:
            self.channel.control(Failed(what=error.what[:8_000], where=str(error.where)[:8_000]))
            if self._next_of(Done) is None:
                return
        self.channel.control(Written())

    def _next(self) -> Control:
        """Wait for the next control message between runs."""
        return self.loop.run_until_complete(self._awaited(lambda message: isinstance(message, Prepare | Bye)))

    def _next_of(self, kind: type[Control]) -> Control | None:
        return self.loop.run_until_complete(self._awaited(lambda message: isinstance(message, kind)))

    async def _awaited(self, wanted: Callable[[Control], bool]) -> Control:
        found: asyncio.Future[Control] = self.loop.create_future()

        def take(message: Control) -> None:
            if wanted(message) and not found.done():
                found.set_result(message)

        def lose(error: LostError) -> None:
            if not found.done():
                found.set_exception(error)

        self.channel.attend(take, lose)
        return await found
