"""A client in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from vflsim.errors import RunError, VflsimError
from vflsim.learning.privacy.blinding.keys import public_key
from vflsim.learning.randomness import drawing_from
from vflsim.protocols.defaults import evaluation_of
from vflsim.protocols.made import coroutine_of
from vflsim.remote.built import OwnParty, RemoteBox, emulated, own_party
from vflsim.remote.channel import Channel, LostError, connected
from vflsim.remote.control import (
    Bye,
    Control,
    ControlError,
    Counted,
    Done,
    EvaluateNow,
    Failed,
    Hello,
    Prepare,
    Ready,
    Start,
    Stopped,
    Voucher,
    Written,
)
from vflsim.remote.frames import pack_message
from vflsim.remote.machine import digest_of, largest_frame, machine, version, warm_up
from vflsim.remote.outbox import Outbox
from vflsim.remote.own_data import OwnData
from vflsim.remote.parts import write_part
from vflsim.remote.vouchers import VouchedRun, checked, vouch
from vflsim.remote.world import LiveWorld, precise_loop
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.execution import Execution
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.world.messages import Message
from vflsim.world.record import Recorder


class _ClientRun:
    """One run of a client: what it makes of the frames that come."""

    def __init__(self, client: LiveClient, prepare: Prepare) -> None:
        self._client, self._name, self._seed = client, prepare.protocol, prepare.seed
        scenario, channel = client.scenario, client.channel
        self._protocol = scenario.protocols[prepare.protocol].protocol
        resolved = setting(scenario, self._name, client.data.of(self._name))
        self._world = LiveWorld(client.loop, emulated(resolved))
        made: list[OwnParty] = []

        def pack(message: Message) -> bytes:
            return pack_message(message, made[0].wires, self._world.instant)

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
        client, blinder = self._client, self._made.node.learner.blinder
        self._run = VouchedRun(digest_of(client.scenario), self._name, self._seed)
        voucher = None
        if blinder is not None:
            blinder.vouched = {}
            voucher = vouch(client.identity, self._run, client.party, public_key(blinder.private))
        with Execution(eager=True).settings(), drawing_from(torch_seed(self._seed, SHARED, "protocol"), alone=False):
            client.channel.control(Ready(voucher=voucher))
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
        message, at = self._made.reader.message(body, SERVER, self._client.party)

        def arrive() -> None:
            self._made.recorder.order.arrived(message)
            self._made.node.state.mailbox.deliver(message)

        self._world.deliver(arrive, at)

    def _on_control(self, message: Control) -> None:
        match message:
            case EvaluateNow():
                self._world.deliver(lambda: self._answer(message))
            case Start():
                loop = self._client.loop
                same = message.machine == machine()
                self._world.begin_at(message.at if same else loop.time() + message.in_s, self._begin)
            case Voucher():
                self._trust(message)
            case Stopped():
                self._world.deliver(lambda: self._world.finish(message.reason))
            case Done():
                self._world.deliver(self._ended.set)
            case _:
                raise RunError(f"the server sent a {message.kind!r} message in a run")

    def _trust(self, voucher: Voucher) -> None:
        """Note the key of another client, once its signature has been checked."""
        blinder = self._made.node.learner.blinder
        if blinder is not None and blinder.vouched is not None:
            blinder.vouched[voucher.party] = checked(voucher, self._client.identity, self._run)

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

    It reads its ``data`` itself unless they are given.

    Example::

        LiveClient(scenario, 3, "127.0.0.1", 7000, Path("identities/client-3"), Path("parts"), timeout=30.0).play()
    """

    def __init__(
        self, scenario: Scenario, party: int, host: str, port: int, identity: Path, parts: Path, timeout: float,
        data: OwnData | None = None,
    ) -> None:  # fmt: skip
        self.scenario, self.party = scenario, party
        self._place, self.identity, self._parts, self._timeout = (host, port), identity, parts, timeout
        self.data = data or OwnData(scenario, party)
        self.loop = precise_loop()
        self.channel: Channel

    def play(self) -> None:
        """Play until the server says goodbye. Raises ``LostError`` if it goes away, and errors of the own data."""
        most = largest_frame(self.scenario, self.data)  # reads the data before it says that it is here
        warm_up()
        hello = Hello(party=self.party, scenario=digest_of(self.scenario), version=version(), machine=machine())
        try:
            self.channel = self.loop.run_until_complete(
                connected(*self._place, self.identity, hello, most, self._timeout)
            )
            while isinstance(announced := self._next(Prepare, Bye), Prepare):
                self._take_part(announced)
        finally:
            if hasattr(self, "channel"):
                self.loop.run_until_complete(self.channel.close())
            self.loop.close()

    def _take_part(self, announced: Prepare) -> None:
        """Play one run. What fails in it is told to the server, which decides what comes next."""
        if announced.protocol not in self.scenario.protocols:
            known = ", ".join(self.scenario.protocols)
            raise ControlError(f"the server announces a run of {announced.protocol!r}", allowed=known)
        try:
            run = _ClientRun(self, announced)
            run.play()
            run.written(self._parts / announced.protocol / f"seed-{announced.seed}")
        except LostError:
            raise
        except VflsimError as error:
            self.channel.control(Failed(what=error.what[:8_000], where=str(error.where)[:8_000]))
            self._next(Done)
        self.channel.control(Written())

    def _next(self, *kinds: type[Control]) -> Control:
        """Wait for a control message of one of these kinds; ignore others, which belong to a run that has ended.

        Raises ``LostError`` if the server says goodbye first.
        """
        return self.loop.run_until_complete(self._awaited(kinds))

    async def _awaited(self, kinds: tuple[type[Control], ...]) -> Control:
        found: asyncio.Future[Control] = self.loop.create_future()

        def take(message: Control) -> None:
            if found.done():
                return
            if isinstance(message, kinds):
                found.set_result(message)
            elif isinstance(message, Bye):
                found.set_exception(LostError("the server has ended the study"))

        def lose(error: LostError) -> None:
            if not found.done():
                found.set_exception(error)

        self.channel.attend(take, lose)
        return await found
