"""The engines of live runs, the server in this process, and of their replays, in the order of a live run."""

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError, RunError, ScenarioError, VflsimError
from vflsim.remote.channel import LostError
from vflsim.remote.client import LocalClient, play
from vflsim.remote.keys import make_identities
from vflsim.remote.private_data import PrivateData
from vflsim.remote.server import LiveServer
from vflsim.results import Results
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.answers import later_answers, not_answerable
from vflsim.simulation.replay import ORDER, orders_of, refuse_unreplayable, replayed
from vflsim.simulation.run import Outcome
from vflsim.streams import SERVER, party_name
from vflsim.studies.engines import OneByOne, Reports, Unit, reporting, singly
from vflsim.studies.engines.handover import forking, pickled, without_main_module
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report
from vflsim.world.messages import InputOrder

START_S = 120.0
"""Seconds within which all clients must have connected: each imports PyTorch and reads its data first."""
_POLL_S = 0.5
_GOODBYE_S = 5.0
_UNASKED = "evaluate.deadline: no queries were answered"


@dataclass(frozen=True, slots=True)
class Hosting:
    """A server that waits for clients which others start: where it listens, and as whom.

    ``parts`` is the folder in which the clients' parts of the results are to be found.
    """

    host: str
    port: int
    identity: Path
    parts: Path


class LivePool:
    """Executes units one by one, live.

    Without ``hosting`` it starts the clients, too, and gives each its own data: keys and the clients' parts of the
    results then lie in a folder of this user, removed at the end. Parties part after the last run, before what is
    computed from it. Invariant: no process that it has started outlives the ``with`` block.
    """

    def __init__(self, scenario: Scenario, timeout: float, hosting: Hosting | None = None) -> None:
        self._scenario, self._timeout, self._hosting = scenario, timeout, hosting
        self._folder = Path(mkdtemp(prefix=f"vflsim-live-{os.getpid()}-"))
        self._processes: dict[int, BaseProcess] = {}
        self._server: LiveServer | None = None
        self._data = ScenarioData(scenario)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._part()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Start all parties, then execute units in the given order. Raises ``RunError`` if a party is lost."""
        for unit in singly(units):
            interrupt.check()
            server = self._server or (self._started() if self._hosting is None else self._hosted(self._hosting))
            unit.watcher.began(unit.run)
            name, seed = unit.run.protocol, unit.run.seed
            try:
                outcome = server.run(name, seed, reporting(partial(unit.watcher.progressed, unit.run), interrupt))
            except LostError as error:
                raise self._explained(error) from None
            server.idle()  # what is computed from the run may take longer than parties wait for a sign of life
            outcome = self._with_answers(outcome, name, seed)
            yield unit, unit.spec.write(unit.run, outcome, self._data.of(self._scenario.training_of(name)))
        self._part()

    def _with_answers(self, outcome: Outcome, name: str, seed: int) -> Outcome:
        """Add what the server answers under deadlines with the weights of all parties, or why it does not."""
        scenario, asked = self._scenario, self._scenario.evaluate_of(name)
        if asked.deadline is None or outcome.error is not None:
            return outcome
        data = self._data.of(scenario.training_of(name))
        clients = tuple(scenario.protocols[name].protocol.participants(scenario.clients, scenario.symbols))
        if why := not_answerable(data, clients, outcome.weights):
            return replace(outcome, note="; ".join(filter(None, [outcome.note, f"{_UNASKED}: {why}"])))
        try:
            answers = later_answers(scenario, name, seed, data, outcome.weights)
        except VflsimError as error:
            return replace(outcome, note="; ".join(filter(None, [outcome.note, f"{_UNASKED}: {error}"])))
        return replace(outcome, extra={**outcome.extra, **answers})

    def _part(self) -> None:
        """Say goodbye to all parties, and see that their processes end."""
        server, self._server = self._server, None
        if server is not None:
            with suppress(LostError):
                server.close()
        self._end_processes()

    def _hosted(self, place: Hosting) -> LiveServer:
        """Start the server, and wait for clients as long as it takes."""
        server = self._server = LiveServer(self._scenario, place.identity, place.parts, self._timeout)
        server.open(place.host, place.port)
        while True:
            with suppress(LostError):
                server.wait(_POLL_S)
                return server

    def _started(self) -> LiveServer:
        """Start the server and all clients, and wait until they are connected."""
        identities, parts = self._folder / "identities", self._folder / "parts"
        make_identities(identities, self._scenario.clients)
        identity = identities / party_name(SERVER)
        server = self._server = LiveServer(self._scenario, identity, parts, self._timeout, returns=False)
        port = server.open("127.0.0.1", 0)
        whole, context = self._data, forking("vflsim.remote.forkserver")
        with without_main_module():
            for client in range(1, self._scenario.clients + 1):
                name = party_name(client)
                who = LocalClient(client, "127.0.0.1", port, identities / name, parts, self._timeout, self._log(client))
                payload = pickled((self._scenario, PrivateData.cut(whole, self._scenario, client)))
                process = self._processes[client] = context.Process(target=play, args=(who, payload), name=name)
                process.start()
        self._data = ScenarioData(self._scenario)  # let go of what has been read
        begun = time.monotonic()
        while True:
            try:
                server.wait(_POLL_S)
                return server
            except LostError:
                if self._ended():
                    raise self._explained(LostError("a client ended before the first run")) from None
                if time.monotonic() - begun > START_S:
                    raise

    def _ended(self) -> list[int]:
        """Return the clients whose processes have ended."""
        return [client for client, process in self._processes.items() if not process.is_alive()]

    def _explained(self, error: LostError) -> RunError:
        """Return the error with what clients' processes have said."""
        last = time.monotonic() + _GOODBYE_S
        while not (logs := self._last_words()) and time.monotonic() < last:
            time.sleep(_POLL_S)  # a process may take a moment to speak
        words = [f"{party_name(client)}: {text}" for client, text in list(logs.items())[:3]]
        return RunError("; ".join([error.what, *words]), remedy=error.remedy)

    def _end_processes(self) -> None:
        last = time.monotonic() + _GOODBYE_S
        for process in self._processes.values():
            process.join(max(0.1, last - time.monotonic()))
            process.kill()
            process.join()

    def _log(self, client: int) -> Path:
        return self._folder / f"{party_name(client)}.log"

    def _last_words(self) -> dict[int, str]:
        logs = {client: self._log(client) for client in self._processes}
        texts = {
            client: log.read_text(encoding="utf-8", errors="replace") for client, log in logs.items() if log.is_file()
        }
        return {client: " ".join(text.split("\n")[-4:]).strip() for client, text in texts.items() if text.strip()}


# --- replays ---------------------------------------------------------------------------------------------------------


class Replays(OneByOne):
    """Executes units one by one, each in the order of the live run with its protocol and seed.

    Raises ``ScenarioError`` at once for a protocol that cannot be replayed, and for a run without an order.
    """

    def __init__(self, scenario: Scenario, live: Results) -> None:
        refuse_unreplayable(scenario)
        self._scenario, self._data = scenario, ScenarioData(scenario)
        places = {(run.protocol, run.seed): run.folder / f"{ORDER}.parquet" for run in live.runs}
        self._orders: dict[tuple[str, int], dict[int, InputOrder]] = {}
        for key in ((name, seed) for name in scenario.protocols for seed in scenario.seeds):
            place = places.get(key)
            if place is None or not place.is_file():
                what = "{} has no order of {} with seed {}".format(live.folder, *key)
                allowed = "results of `vflsim live` with `record: events`, and with the parts of all clients"
                raise ScenarioError(what, "vflsim replay", allowed)
            try:
                self._orders[key] = orders_of(pq.read_table(place, partitioning=None))
            except (pa.ArrowException, OSError) as error:
                raise ResultsError(f"it cannot be read: {error}", str(place)) from error

    def __exit__(self, *_: object) -> None:
        self._orders.clear()

    def _executed(self, unit: Unit, interrupt: Interrupt) -> Report:
        name, seed = unit.run.protocol, unit.run.seed
        data, order = self._data.of(self._scenario.training_of(name)), self._orders[name, seed]
        outcome = replayed(
            self._scenario, name, seed, data, order, reporting(partial(unit.watcher.progressed, unit.run), interrupt)
        )
        return unit.spec.write(unit.run, outcome, data)
