"""One live run, as a client's process plays it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from vflsim.errors import RunError
from vflsim.protocol import SERVER, SHARED, Message, Operation, party_name, torch_seed
from vflsim.remote.channel import Channel
from vflsim.remote.client_files import StateFiles, write_part
from vflsim.remote.control import (
    Away,
    Back,
    CameUp,
    Control,
    ControlError,
    Counted,
    Done,
    Dropped,
    EvaluateNow,
    IsDue,
    Prepare,
    Ready,
    Spent,
    Start,
    Stopped,
    Voucher,
    WentDown,
)
from vflsim.remote.frames import pack_message
from vflsim.remote.keys import VouchedRun, checked, vouch
from vflsim.remote.mesh import Mesh
from vflsim.remote.message_checks import telling
from vflsim.remote.orders import RunOrders, StudyOrders
from vflsim.remote.outages import ClientOutages
from vflsim.remote.party import LiveParty, LocalBox, LocalParty, Public, RemoteBox, emulated, local_party
from vflsim.remote.private_data import PrivateData, digest_of
from vflsim.remote.transport import Outbox, PeerMail, unconnected
from vflsim.remote.world import LiveWorld
from vflsim.scenario import Scenario, setting
from vflsim.worlds import Execution, Recorder, Task, coroutine_of, drawing_from, interruptible_of, public_key


class ClientHost(Protocol):
    """What a run asks of the client's process."""

    scenario: Scenario
    orders: StudyOrders
    party: int
    identity: Path
    data: PrivateData
    loop: asyncio.AbstractEventLoop
    channel: Channel
    mesh: Mesh | None
    never_returns: bool
    unreached: frozenset[int]


class ClientRun:
    """One run of a client: what it makes of the frames that come.

    ``public``: the facts that all clients have told; None where they are connected to the server alone.
    """

    def __init__(self, client: ClientHost, prepare: Prepare, public: Public | None) -> None:
        self._client, self._name, self._seed, self._prepare = client, prepare.protocol, prepare.seed, prepare
        scenario, channel = client.scenario, client.channel
        self._protocol = scenario.protocols[prepare.protocol].protocol
        resolved = replace(setting(scenario, self._name, client.data.of(self._name)), public=public)
        self._orders = RunOrders(scenario, resolved, prepare, client.loop.time)
        waits = emulated(resolved)
        self._world = LiveWorld(client.loop, waits)
        self._mail = PeerMail(self._read, self._deliver, self._deliver_free, waits)
        mesh = None if public is None else client.mesh
        self._peering = mesh is not None
        made: list[LocalParty] = []

        def pack(message: Message) -> bytes:
            return pack_message(message, made[0].wires, self._world.instant)

        def hand_over(message: Message) -> None:
            if message.receiver == SERVER:
                channel.message(pack(message), timed=False)
            elif mesh is None:
                raise unconnected(message)
            else:
                mesh.send(message.receiver, pack(message), timed=False)

        interruptible, party = interruptible_of(resolved), client.party
        self._outages = (
            ClientOutages(interruptible, self._seed, party, self._crashed, prepare.again) if interruptible else None
        )
        if self._outages is not None:
            self._world.crash_at = self._outages.next_crash
        to_peer = None if mesh is None else partial(mesh.send, timed=True)
        box = RemoteBox(self._world, hand_over)
        with drawing_from(torch_seed(self._seed, SHARED, "learners")):
            made.append(
                local_party(
                    scenario,
                    self._name,
                    self._seed,
                    resolved,
                    client.party,
                    self._world,
                    lambda _: box,
                    lambda _: Outbox(channel, pack, to_peer, prepare.first),
                    hand_over,
                    self._outages,
                )
            )
        self._made = made[0]
        if (releases := self._made.node.learner.releases) is not None:
            client.orders.release(prepare)
            releases.reporter = telling(self._tell)
            for rule in scenario.stop_of(self._name).each():
                rule.guard(releases, self._spent)
        self._counted, self._folder = 0, client.orders.folder(prepare)
        self._thread = threading.current_thread()
        self._kept: StateFiles | None = None
        loses = self._outages is not None and party in self._outages.losing
        if loses and not self._made.stays_away and not client.never_returns:
            self._keep()
        elif prepare.again:
            raise ControlError("the server has this client go on with a run", allowed="where it keeps what it learns")
        self._ended = self._world.signal("the server to end the run")
        self._made.shared.progressed = self._count
        channel.attend(self._on_control, self._fail, self._on_message)
        if mesh is not None:
            mesh.attend(self._mail.came, self._fail)

    def _keep(self) -> None:
        """Keep what the client learns, from where its former process has been if there was one."""
        state, learner = self._made.node.state, self._made.node.learner
        assert isinstance(state, LiveParty), "it has been made so"
        kept = self._kept = StateFiles(self._folder, self._prepare.run, state, learner)
        if self._prepare.again:
            kept.read()
        else:
            kept.write()

        def computed(operation: Operation[Any]) -> None:
            if operation.kind != "evaluate":
                kept.write()

        self._made.shared.computed = computed

    def _tell(self, message: Control) -> None:
        """Send a control message from whatever thread: a release is counted where it is computed."""
        if threading.current_thread() is self._thread:
            self._client.channel.control(message)
        else:
            self._client.loop.call_soon_threadsafe(self._client.channel.control, message)

    def _spent(self) -> None:
        """End the run: this client would release more than it may."""
        self._client.channel.control(Spent(at=self._world.instant))
        self._world.finish("epsilon")

    def _fail(self, error: RunError) -> None:
        self._world.deliver(lambda: self._world.fail(error, "the connection"))

    def play(self) -> None:
        """Take part in the run until the server has ended it. Raises what ended it otherwise."""
        client, blinder = self._client, self._made.node.learner.blinder
        self._run = VouchedRun(digest_of(client.scenario), self._name, self._seed)
        voucher = None
        if blinder is not None:
            blinder.vouched = {}
            voucher = vouch(client.identity, self._run, client.party, public_key(blinder.private))
        with Execution(eager=True).settings(), drawing_from(torch_seed(self._seed, SHARED, "protocol"), alone=False):
            unreached = tuple(sorted(client.unreached)) if self._prepare.again else ()
            client.channel.control(Ready(voucher=voucher, unreached=unreached))
            self._world.run()
            self._made.shared.close()
            self._world.conclude(self._until_done())

    def written(self, over: bool = True) -> None:
        """Write this client's part of the results; unless the run is ``over``, another process may go on with it."""
        write_part(self._folder, self._made, self._prepare.run, over)
        if self._kept is not None and over:
            self._kept.remove()

    async def _until_done(self) -> None:
        await self._ended

    def _count(self) -> None:
        recorder: Recorder = self._made.shared.recorder
        more, self._counted = recorder.updates - self._counted, recorder.updates
        if more:
            self._client.channel.control(Counted(updates=more))

    def _on_message(self, timed: bool, body: bytes) -> None:
        (self._deliver if timed else self._deliver_free)(*self._read(SERVER, body))

    def _read(self, sender: int, body: bytes) -> tuple[Message, float]:
        return self._made.reader.message(body, sender, self._client.party)

    def _deliver(self, message: Message, at: float) -> None:
        def arrive() -> None:
            if self._outages is None or not self._outages.crashed(self._client.party):
                self._made.recorder.order.arrived(message)
                self._made.node.state.mailbox.deliver(message)

        self._world.deliver(arrive, at)

    def _deliver_free(self, message: Message, at: float) -> None:
        box = self._made.shared.mailboxes[self._client.party]
        assert isinstance(box, LocalBox), "it has been made so"
        self._world.deliver(partial(box.deliver_free, message), at)

    def _crashed(self) -> None:
        self._mail.crash()
        self._client.channel.control(WentDown())

    def _other(self, word: Away | Back) -> None:
        """Take the server's word that the process of another client is gone, or that it has one again."""
        outages, mesh = self._outages, self._client.mesh
        if outages is None or mesh is None:
            raise RunError(f"the server sent a {word.kind!r} message in a run without connections between clients")
        (mesh.away if isinstance(word, Away) else mesh.back)(word.party)
        self._world.deliver(partial(outages.away if isinstance(word, Away) else outages.here, word.party), word.at)

    def _called_back(self, word: CameUp) -> None:
        if self._outages is None:
            raise RunError("the server says that an outage is over, in a run without any")
        self._world.deliver(partial(self._outages.called_back, word), word.at)

    def _on_control(self, message: Control) -> None:
        match message:
            case EvaluateNow():
                self._orders.evaluate(message)
                self._world.deliver(lambda: self._answer(message))
            case Start():
                self._world.begin_at(self._orders.start(message), self._begin, message.since_s)
            case Voucher():
                self._trust(message)
            case Stopped():
                self._world.deliver(lambda: self._world.finish(message.reason))
            case IsDue() | Dropped() if self._peering:
                self._mail.take(message)
            case CameUp():
                self._called_back(message)
            case Away() | Back():
                self._other(message)
            case Done():
                if self._world.over:  # what comes at once after it is for others
                    self._client.channel.detach()
                self._world.deliver(self._ended.set)
            case _:
                raise RunError(f"the server sent a {message.kind!r} message in a run")

    def _trust(self, voucher: Voucher) -> None:
        """Note the key of another client, once its signature has been checked."""
        blinder = self._made.node.learner.blinder
        if blinder is not None and blinder.vouched is not None:
            blinder.vouched[voucher.party] = checked(voucher, self._client.identity, self._run)

    def _begin(self) -> None:
        if self._outages is None:
            self._start()
        else:
            starts = {client: _nothing for client in self._made.shared.clients if client != self._client.party}
            self._outages.begin(self._made.shared, {**starts, self._client.party: self._start})

    def _start(self) -> Task:
        party = self._client.party
        made_of = coroutine_of(self._protocol, "client", party, self._made.node)
        return self._world.spawn(made_of, party_name(party), party)

    def _answer(self, asked: EvaluateNow) -> None:
        node = self._made.node.free(wired=asked.wired) if asked.free else self._made.node
        answering = coroutine_of(self._protocol, "answer_evaluation", node.party, node, asked.splits, asked.number)
        self._world.spawn(answering, f"{party_name(node.party)} (evaluation)", node.party, observer=asked.free)


def _nothing() -> None:
    """Start nothing: the party is another process's."""
