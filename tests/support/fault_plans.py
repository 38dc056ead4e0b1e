"""Random plans of what goes wrong in a live run, and how such a run must end. Imported by the tests that need it."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from protocols_by_kind import KINDS
from tiny_worlds import RANDOM_TIMING, raw

from vflsim.errors import VflsimError
from vflsim.remote.client import LiveClient
from vflsim.remote.keys import make_identities
from vflsim.remote.server import LiveServer
from vflsim.results.verify import verify_run
from vflsim.scenario import load
from vflsim.simulation.run import Outcome
from vflsim.streams import party_name
from vflsim.studies.engines.handover import without_main_module

PATIENT_S, SHORT_S, SLOW_S = 60.0, 8.0, 1.5
"""Time-outs of runs that end in a result, and of those that end by theirs; and how long a slow client stands still."""
LONG_S = 120.0
"""More than any end takes on a busy machine."""
ROUNDS = 60
PROTOCOLS = ("synchronous", "asynchronous", "fedbcd", "c_vfl", "vimadmm")
"""Kinds of ``protocols_by_kind``."""


@dataclass(frozen=True)
class Plan:
    """``fault`` happens to client ``victim`` after round ``after``.

    ``crashes``: the scenario has it crash; ``returns``: another process takes its place, where the fault ends one.
    """

    protocol: str
    victim: int
    fault: str
    after: int
    crashes: bool
    returns: bool

    @property
    def timeout(self) -> float:
        """The time-out of its parties (s)."""
        return SHORT_S if self.end else PATIENT_S

    @property
    def end(self) -> str:
        """What the run must end with: a pattern of its error, empty if it ends in a result."""
        name = f"client-{self.victim}"
        if self.fault == "slow":
            return ""
        if self.fault == "freeze":
            return f"{name} gave no sign of life for"
        gone = f"the connection to {name} (ended|broke: .*), and {name} "
        if not self.crashes:
            return gone + "cannot come back: no availability of it in this scenario has interrupted: lost"
        return "" if self.returns else gone + "has not come back within 8 s"


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    pick = random.Random(seed)
    return Plan(
        protocol=pick.choice(PROTOCOLS),
        victim=pick.choice([1, 2]),
        fault=pick.choice(["kill", "kill", "cut", "cut", "freeze", "slow"]),
        after=pick.randint(0, 40),
        crashes=pick.random() < 0.8,
        returns=pick.random() < 0.5,
    )


def play(client: int, scenario: str, port: int, timeout: float) -> None:
    """Play a client, as ``vflsim party`` does."""
    folder = Path(scenario).parent
    sys.stdout = sys.stderr = log = (folder / f"client-{client}.log").open("a")
    faulthandler.dump_traceback_later(PATIENT_S / 2, file=log)  # where it hangs, if it does
    try:
        keys = folder / "keys" / f"client-{client}"
        LiveClient(load(scenario), client, "127.0.0.1", port, keys, folder / "parts", timeout).play()
    except VflsimError as error:
        print(f"error: {error}", flush=True)
        os._exit(1)
    os._exit(0)


class Played:
    """A server in this process, and clients in theirs, forked from one that has imported what they need."""

    def __init__(
        self,
        folder: Path,
        protocol: str,
        crashing: tuple[int, ...],
        timeout: float = PATIENT_S,
        slow: dict[str, Any] | None = None,
        rounds: int = ROUNDS,
        clients: int = 2,
    ) -> None:
        """``slow``: more of client 2's timing."""
        away = {"kind": "failure", "at": "1 h", "repair": "1 h", "interrupted": "lost"}
        timed = [*RANDOM_TIMING["clients"], *({"select": str(each), "availability": away} for each in crashing)]
        timed += [{"select": "2", **slow}] if slow else []
        timing = {**RANDOM_TIMING, "clients": timed}
        said = raw({"it": KINDS[protocol]}, timing=timing, stop={"rounds": rounds}, record="events", seeds=[0, 1, 2])
        said["partition"]["clients"] = clients
        folder.mkdir()
        self.timeout = timeout
        self.file = folder / "scenario.yaml"
        self.file.write_text(json.dumps(said))
        make_identities(folder / "keys", clients)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["vflsim.remote.forkserver"])
        self.server = LiveServer(load(self.file), folder / "keys" / "server", folder / "parts", timeout)
        self.port = self.server.open("127.0.0.1", 0)
        self.processes: dict[int, list[BaseProcess]] = {client: [] for client in range(1, clients + 1)}
        for client in self.processes:
            self.start(client)
        self.server.wait(within=LONG_S)

    def start(self, client: int) -> None:
        with without_main_module():
            process = self.context.Process(target=play, args=(client, str(self.file), self.port, self.timeout))
            process.start()
        self.processes[client].append(process)

    def send(self, client: int, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.processes[client][-1].pid or 0, what)

    def cut(self, client: int) -> None:
        self.server.connected[client]._writer.transport.abort()

    def run(self, when: Callable[[Any], bool], call: Callable[[], None], seed: int = 0) -> Outcome:
        """Play, and make a call once, as soon as the progress is so."""
        done = False

        def report(progress: Any) -> None:
            nonlocal done
            if not done and when(progress):
                done = True
                call()

        outcome = self.server.run("it", seed, report)
        assert done
        return outcome

    def end(self) -> None:
        """Say goodbye: whoever is not frozen ends by itself."""
        with suppress(VflsimError):
            self.server.close()

    def statuses(self, client: int) -> list[int | None]:
        """The exit statuses of a client's processes, which have ended by themselves."""
        for process in self.processes[client]:
            process.join(LONG_S)
        return [process.exitcode for process in self.processes[client]]

    def said(self, client: int) -> str:
        """What a client's processes have said."""
        return (self.file.parent / f"client-{client}.log").read_text()

    def kill(self) -> None:
        self.end()
        for process in [each for several in self.processes.values() for each in several]:
            process.kill()
            process.join()


def carry_out(plan: Plan, folder: Path) -> None:
    """Carry out a plan, and assert that the run ends as it must, and that nobody is left."""
    clients = 3 if plan.protocol == "fedvs" else 2
    played = Played(folder, plan.protocol, (plan.victim,) if plan.crashes else (), plan.timeout, clients=clients)
    victim, timers = plan.victim, list[threading.Timer]()

    def strike() -> None:
        match plan.fault:
            case "kill":
                played.send(victim, signal.SIGKILL)
            case "cut":
                played.cut(victim)
            case _:
                played.send(victim, signal.SIGSTOP)
        if plan.fault == "slow":
            timers.append(threading.Timer(SLOW_S, played.send, (victim, signal.SIGCONT)))
            timers[-1].start()
        elif plan.fault != "freeze" and plan.crashes and plan.returns:
            played.start(victim)

    try:
        outcome = played.run(lambda progress: progress.rounds >= plan.after, strike)
        assert len(outcome.tables.metrics["time_s"]) >= 1, "what had been recorded is kept"
        if plan.end:
            assert outcome.error is not None
            assert re.search(plan.end, str(outcome.error)), str(outcome.error)
        else:
            assert outcome.error is None, f"{outcome.error}\n{played.said(victim)}"
            assert outcome.info.counts["rounds"] == ROUNDS
            assert verify_run(outcome.tables, outcome.info) == []
            parties = {"server", *map(party_name, played.processes)}
            assert {name.partition(".")[0] for name in outcome.weights} == parties
        played.end()
        for other in played.processes.keys() - {victim}:
            assert played.statuses(other) == [0], played.said(other)
        if not plan.end:
            assert played.statuses(victim)[-1] == 0, played.said(victim)
    finally:
        for timer in timers:
            timer.cancel()
        played.kill()
