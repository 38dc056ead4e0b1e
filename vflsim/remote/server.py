"""The server of a live study, in its own process."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from vflsim.errors import RunError
from vflsim.protocol import SERVER, Peering
from vflsim.remote.admission import Admission
from vflsim.remote.channel import Channel, LostError
from vflsim.remote.client_files import without_energy
from vflsim.remote.control import Bye, Control, Failed, Introduced, Peer, Prepare, Ready, Written
from vflsim.remote.party import checked_facts
from vflsim.remote.private_data import PrivateData, common, largest_frame
from vflsim.remote.server_run import ServerRun
from vflsim.remote.world import precise_loop, warm_up
from vflsim.scenario import Scenario
from vflsim.worlds import Outcome, Progress


class LiveServer:
    """The server's process: lets all clients connect, runs one run after the other, and says goodbye.

    ``parts`` is the folder into which clients of this machine write what they record. ``returns``: where the scenario
    has a client crash, another process may take the place of its own. Errors name the party.

    Example::

        server = LiveServer(scenario, Path("identities/server"), Path("parts"), timeout=30.0)
        port = server.open("127.0.0.1", 0)
        server.wait(within=60.0)
        outcome = server.run("wait", seed=0)
        server.close()
    """

    def __init__(self, scenario: Scenario, identity: Path, parts: Path, timeout: float, returns: bool = True) -> None:
        self.scenario, self._parts, self.timeout, self.returns = scenario, parts, timeout, returns
        self.data = PrivateData(scenario, SERVER)
        self.loop = precise_loop()
        self._beside: threading.Thread | None = None
        most = largest_frame(scenario, self.data)
        warm_up()
        clients = frozenset(range(1, scenario.clients + 1))
        self.admission = Admission(identity, clients, common(scenario, self.data), most, timeout)

    @property
    def connected(self) -> Mapping[int, Channel]:
        """The connections to clients, by their numbers."""
        return self.admission.channels

    def open(self, host: str, port: int) -> int:
        """Listen at an address; port 0 chooses a free one. Returns the port. Raises ``RunError``."""
        return self.loop.run_until_complete(self.admission.open(host, port))

    def wait(self, within: float) -> None:
        """Wait until all clients are here. Raises ``LostError`` that names those who are not."""
        self.loop.run_until_complete(self.admission.all_here(within))

    def run(self, name: str, seed: int, report: Callable[[Progress], None] | None = None) -> Outcome:
        """Run a protocol with a seed, and merge what the clients have recorded.

        Raises ``LostError`` if a client is lost before the run begins; errors of the run itself are in the outcome.
        """
        self._attend()
        scenario = self.scenario
        protocol = scenario.protocols[name].protocol
        clients = tuple(scenario.participants_of(name))
        first = self._answers(clients, Introduced if isinstance(protocol, Peering) else Ready)
        announced = Prepare(protocol=name, seed=seed, run=secrets.token_hex(8))
        for client in clients:
            self.connected[client].control(announced)
        public, asked, peers = None, first, tuple[Peer, ...]()
        if isinstance(protocol, Peering):
            introduced = self.loop.run_until_complete(first)
            asked = self._answers(clients, Ready)
            peers = self._introduced(protocol, introduced)
            public = {peer.party: peer.facts for peer in peers}
        ready = self.loop.run_until_complete(asked)
        vouchers = [each.voucher for each in ready.values() if isinstance(each, Ready) and each.voucher is not None]
        for client in clients:
            for voucher in vouchers:
                if voucher.party != client:
                    self.connected[client].control(voucher)
        run = ServerRun(self, announced, public, vouchers, peers)
        outcome = run.play(report)
        here = tuple(client for client in clients if self.connected[client].lost is None)
        self.loop.run_until_complete(self._answers(here, Written, forgoing=True))
        if outcome.error is not None:
            return without_energy(outcome)
        return run.merged(outcome, self._parts / name / f"seed-{seed}")

    def _introduced(self, protocol: Peering, introduced: Mapping[int, Control]) -> tuple[Peer, ...]:
        """Tell every client where the others are, and all facts. Raises ``ControlError`` for other facts."""
        peers = list[Peer]()
        for client, said in sorted(introduced.items()):
            assert isinstance(said, Introduced), "asked for"
            facts = dict(checked_facts(protocol, said.facts))
            peers.append(Peer(party=client, host=self.connected[client].hosts[1], port=said.port, facts=facts))
            for other in introduced.keys() - {client}:
                self.connected[other].control(peers[-1])
        return tuple(peers)

    def idle(self) -> None:
        """Give signs of life, and read those of clients, in a thread beside what comes now, until the next call."""
        if self._beside is None:
            self._beside = threading.Thread(target=self.loop.run_forever, name="connections", daemon=True)
            self._beside.start()

    def _attend(self) -> None:
        """End ``idle``."""
        thread, self._beside = self._beside, None
        if thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join()

    def close(self) -> None:
        """Say goodbye to all clients, and end; nothing if it has ended."""
        if self.loop.is_closed():
            return
        self._attend()
        for channel in self.connected.values():
            channel.control(Bye())
        self.loop.run_until_complete(self.admission.close())
        self.loop.close()

    def _answers(
        self, clients: tuple[int, ...], kind: type[Control], forgoing: bool = False
    ) -> asyncio.Future[dict[int, Control]]:
        """Return a future of a control message of a kind from each of these clients.

        ``forgoing``: not from one whose connection ends, of which the next run will tell.
        """
        missing, came = set(clients), dict[int, Control]()
        ended: asyncio.Future[dict[int, Control]] = self.loop.create_future()
        if not missing:
            ended.set_result(came)

        def came_from(client: int) -> None:
            missing.discard(client)
            if not missing and not ended.done():
                ended.set_result(came)

        def take(client: int, message: Control) -> None:
            if isinstance(message, kind) and client in missing:
                came[client] = message
                came_from(client)
            elif isinstance(message, Failed) and not ended.done():
                ended.set_exception(RunError(message.what, message.where or f"client {client}"))

        def lose(client: int, error: LostError) -> None:
            if forgoing:
                came_from(client)
            elif not ended.done():
                ended.set_exception(error)

        for client in clients:
            self.connected[client].attend(partial(take, client), partial(lose, client), lambda _timed, _body: None)
        return ended
