"""A client in a process of its own, which may have been forked from one that has imported all it needs."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vflsim.errors import RunError, VflsimError
from vflsim.protocol import Peering
from vflsim.remote.channel import Channel, LostError, connected
from vflsim.remote.client_run import ClientRun
from vflsim.remote.control import (
    Bye,
    Control,
    ControlError,
    Done,
    Failed,
    Hello,
    Introduced,
    Joined,
    Peer,
    Prepare,
    Written,
)
from vflsim.remote.mesh import Mesh
from vflsim.remote.orders import StudyOrders
from vflsim.remote.party import Public, checked_facts
from vflsim.remote.private_data import PrivateData, common, largest_between_clients, largest_frame
from vflsim.remote.world import machine, precise_loop, warm_up
from vflsim.scenario import Scenario, setting
from vflsim.worlds import interruptible_of

T = TypeVar("T")


class LiveClient:
    """A client's process: connects, takes part in every run that the server announces, and writes its parts.

    It reads its ``data`` itself unless they are given. For protocols whose clients send each other messages, it listens
    at ``peer_port`` of the address at which the server sees it; 0 chooses a free one. Where the scenario has the client
    crash it keeps what it has learnt in ``parts``, for a process that takes its place, unless it ``never_returns``.

    Example::

        LiveClient(scenario, 3, "127.0.0.1", 7000, Path("identities/client-3"), Path("parts"), timeout=30.0).play()
    """

    def __init__(
        self, scenario: Scenario, party: int, host: str, port: int, identity: Path, parts: Path, timeout: float,
        data: PrivateData | None = None, peer_port: int = 0, never_returns: bool = False,
    ) -> None:  # fmt: skip
        self.scenario, self.party = scenario, party
        self._place, self.identity, self._timeout = (host, port), identity, timeout
        self.orders = StudyOrders(scenario, party, parts)
        self.data = data or PrivateData(scenario, party)
        self.loop = precise_loop()
        self.channel: Channel
        self.mesh: Mesh | None = None
        self._peer_port, self.never_returns = peer_port, never_returns
        self.unreached: frozenset[int] = frozenset()
        """Clients to which this one could not connect when it came back."""

    def play(self) -> None:
        """Play until the server says goodbye. Raises ``LostError`` if it goes away, and errors of the own data."""
        most = largest_frame(self.scenario, self.data)  # reads the data before it says that it is here
        warm_up()
        hello = self._hello = Hello(party=self.party, machine=machine(), **common(self.scenario, self.data)._asdict())
        try:
            self.channel = self.loop.run_until_complete(
                connected(*self._place, self.identity, hello, most, self._timeout)
            )
            while isinstance(announced := self._next(Prepare, Bye), Prepare):
                self._take_part(announced)
        finally:
            if self.mesh is not None:
                self.loop.run_until_complete(self.mesh.close())
            if hasattr(self, "channel"):
                self.loop.run_until_complete(self.channel.close())
            self.loop.close()

    def _take_part(self, announced: Prepare) -> None:
        """Play one run. What fails in it is told to the server, which decides what comes next.

        Raises ``ControlError`` for a run that is not the scenario's, or has been.
        """
        self.orders.begin(announced)
        run = None
        try:
            run = ClientRun(self, announced, self._introduced(announced))
            run.play()
            run.written()
        except LostError:
            if run is not None:  # what it has recorded until then
                run.written(over=False)
            raise
        except VflsimError as error:
            self.channel.control(Failed(what=error.what[:8_000], where=str(error.where)[:8_000]))
            if isinstance(error, ControlError):  # of another process, which this one has nothing more to do with
                raise
            self._next(Done)
        finally:
            if self.mesh is not None:
                self.mesh.leave()
        self.channel.control(Written())

    def _introduced(self, announced: Prepare) -> Public | None:
        """Tell the facts about the own data, learn those of others, and connect to them, if the protocol asks for it.

        Raises ``RunError`` for data about which no facts can be told, and that names a client who cannot be reached.
        """
        name, protocol = announced.protocol, self.scenario.protocols[announced.protocol].protocol
        if not isinstance(protocol, Peering):
            return None
        resolved = setting(self.scenario, name, self.data.of(name))
        try:
            own_facts = {key: float(value) for key, value in protocol.public_facts(resolved, self.party).items()}
        except ValueError as error:
            raise RunError(str(error), f"protocols.{name}") from error
        if self.mesh is None:
            most = largest_between_clients(self.scenario, self.data, self.party)
            self.mesh = Mesh(self.identity, self._hello, self.scenario.clients, most, self._timeout)
            self.loop.run_until_complete(self.mesh.open(self.channel.hosts[0], self._peer_port))
        self.channel.control(Introduced(port=self.mesh.port, facts=own_facts))
        others = len(resolved.clients) - 1
        peers = {
            each.party: each
            for each in self.loop.run_until_complete(self._awaited((Peer,), others))
            if isinstance(each, Peer)
        }
        if peers.keys() != {*resolved.clients} - {self.party}:
            raise ControlError(f"the server introduces {sorted(peers)}", allowed="each other client of the run, once")
        joined = Joined(protocol=name, seed=announced.seed)
        returning = frozenset(
            client for client, each in interruptible_of(resolved).items() if each.interrupted == "lost"
        )
        work = self.mesh.join(peers, joined, returning - {self.party}, announced.again)
        self.unreached = self.loop.run_until_complete(self._unless_ended(work))
        facts = {client: checked_facts(protocol, each.facts) for client, each in peers.items()}
        return dict(sorted({self.party: own_facts, **facts}.items()))

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work, unless the server ends the study or is lost meanwhile: then raise ``LostError``."""
        task, ended = self.loop.create_task(work), self.loop.create_task(self._awaited((), 1))
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        for each in (task, ended):
            each.cancel()
        outcomes = await asyncio.gather(task, ended, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return task.result()

    def _next(self, *kinds: type[Control]) -> Control:
        """Wait for a control message of one of these kinds; ignore others before it, of a run that has ended.

        Raises ``LostError`` if the server says goodbye first.
        """
        return self.loop.run_until_complete(self._awaited(kinds, 1))[0]

    async def _awaited(self, kinds: tuple[type[Control], ...], count: int) -> list[Control]:
        messages: asyncio.Future[list[Control]] = self.loop.create_future()
        came: list[Control] = []

        def take(message: Control) -> None:
            if messages.done():
                self.channel.detach(message)
            elif isinstance(message, kinds):
                came.append(message)
                if len(came) == count:
                    messages.set_result(came)
            elif isinstance(message, Bye):
                messages.set_exception(LostError("the server has ended the study"))

        def lose(error: LostError) -> None:
            if not messages.done():
                messages.set_exception(error)

        self.channel.attend(take, lose)
        return await messages


@dataclass(frozen=True, slots=True)
class LocalClient:
    """Who a client is that a live study starts on its own machine, and where it finds the server."""

    party: int
    host: str
    port: int
    identity: Path
    parts: Path
    timeout: float
    log: Path


def play(who: LocalClient, payload: bytes) -> None:
    """Play a client until the server says goodbye. ``payload``: its pickled scenario and data, of the parent process.

    All that it prints goes to ``who.log``; it ends with status 1 after an error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent to the whole process group: the server decides when it ends
    with who.log.open("wb") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        faulthandler.enable()
        try:
            scenario, data = _read(payload)
            place = who.host, who.port, who.identity, who.parts, who.timeout
            LiveClient(scenario, who.party, *place, data, never_returns=True).play()
        except VflsimError as error:
            print(f"error: {error}", file=sys.stderr)
        except Exception:
            traceback.print_exc()
        else:
            os._exit(0)  # a regular interpreter shutdown with PyTorch takes seconds
        sys.stderr.flush()
        os._exit(1)


def _read(payload: bytes) -> tuple[Scenario, PrivateData]:
    scenario, data = pickle.loads(payload)  # trusted: the parent process sent it over its own pipe
    return scenario, data
