"""Where the event path's time goes: calls and microseconds of each verb in a client-round, and client-rounds a second.

A client-round is that of ``benchmarks/timing.py``; ``rates`` takes 300 rounds and leaves out what a run costs once. A
call counts for the innermost part below that it serves; C functions and resumed coroutines count as calls. Shares are
those of samples, as many as the system's clock allows. Run by PYTHONPATH, it measures another revision, too.
``--against TREE`` lets this tree and another take turns, each in a process of its own, and prints ratios.
``growth`` says what a client-round takes without the garbage collector, without a table of events, and if clients come
in client order: the longest upload delay has the last one.
Run: python benchmarks/event_path.py [rates | table | growth …] [--clients N …] [--against TREE]
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from timing import bare_simpy, best, scenario

from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation import collector
from vflsim.simulation.run import run_protocol

ROUNDS, TURNS = 300, 3
SAMPLED = 4.0
"""Seconds of processor time to sample, at least."""
PARTS = {
    "record an event": ("Events.add", "Recorder.transfer"),
    "calendar and loop": (
        "VirtualWorld._deal_with_events", "VirtualWorld.schedule", "VirtualWorld.after", "VirtualWorld.pause",
        "VirtualTimer.ring",
    ),
    "resume a coroutine": ("Task.step", "Signal.wake"),
    "make an operation": ("ClientLearner.embed", "ClientLearner.client_step"),
    "server step, kept books": ("ServerLearner.server_step", "Staleness.complete", "Recorder.step"),
    "count an update": ("Party.count",),
    "draw a time": ("Draws.next",),
    "batch": ("Node.batch",),
    "compute": ("Node.compute",),
    "send (size, latency)": ("Party.send",),
    "upload": ("Node.upload",),
    "message on its way": ("Transport._after_latency", "Queues._finish"),
    "mailbox": ("Mailbox.deliver", "Mailbox._resolve", "Mailbox.want"),
    "recv, gather": ("Node.recv", "Node.gather", "Party.receive"),
    "send, activated": ("Node.send", "Node.activated"),
    "the protocol's own lines": ("Synchronous.client", "Synchronous.server"),
}  # fmt: skip
OF = {name: part for part, names in PARTS.items() for name in names}


def part_of(frame: FrameType | None) -> str:
    """The innermost part that a frame serves."""
    while frame is not None:
        part = OF.get(frame.f_code.co_qualname)
        if part is not None:
            return part
        frame = frame.f_back
    return "the run around it"


class Course:
    """Runs of so many clients, whose scenario has other keys if they are given."""

    def __init__(self, clients: int, most: int = ROUNDS, **keys: Any) -> None:
        self.clients = clients
        with tempfile.TemporaryDirectory() as folder:
            self._of = {rounds: scenario(clients, rounds, Path(folder), **keys) for rounds in (2, 30, most)}
            made = self._of[2]
            self._data = ScenarioData(made).of(made.training)

    def seconds(self, rounds: int) -> float:
        """Processor time of a run."""
        began = time.process_time()
        run_protocol(self._of[rounds], "wait", 0, self._data, timing_only=True)
        return time.process_time() - began

    def rate(self) -> float:
        """Client-rounds a second, without what a run costs once, nor the process's first run, which costs more."""
        self.seconds(2)
        once = self.seconds(2)
        return (ROUNDS - 2) * self.clients / (self.seconds(ROUNDS) - once)


def table(clients: int) -> None:
    """Print calls and microseconds of each part."""
    course, shares, calls = Course(clients), Counter[str](), Counter[str]()
    course.seconds(30)  # warm
    signal.signal(signal.SIGPROF, lambda _, frame: shares.update([part_of(frame)]))
    signal.setitimer(signal.ITIMER_PROF, 0.0005, 0.0005)
    times = 0
    seconds = 0.0
    while seconds < SAMPLED:
        seconds, times = seconds + course.seconds(ROUNDS), times + 1
    signal.setitimer(signal.ITIMER_PROF, 0)

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call"):
            calls[part_of(frame)] += 1

    sys.setprofile(count)
    course.seconds(30)
    sys.setprofile(None)
    micros, total = 1e6 * seconds / (times * ROUNDS * clients), sum(shares.values())
    print(f"{clients} clients: {micros:.1f} µs and {sum(calls.values()) / 30 / clients:.0f} calls a client-round")
    for part, samples in shares.most_common():
        print(f"| {part} | {calls[part] / 30 / clients:.1f} | {micros * samples / total:.1f} |")


def rates(clients: list[int]) -> None:
    """Print client-rounds a second, and their events as a ratio to those of bare SimPy."""
    bare = best(bare_simpy)
    for many in clients:
        rate = Course(many).rate()
        print(f"{many:>5,} clients: {rate:,.0f} client-rounds/s, {7 * rate / bare:.2f} events to one of bare SimPy")


def growth(clients: list[int]) -> None:
    """Print the microseconds of a client-round, and of one without what could make it grow with the clients."""
    in_order = {"upload_delay": "(100 + 0.01 * m) ms"}
    found: dict[tuple[str, int], list[float]] = {}
    for many in clients:
        rounds = 2 + max(6, 20_000 // many)
        kinds = {
            "as it is": Course(many, rounds),
            "no collector": Course(many, rounds),
            "no table of events": Course(many, rounds, record="rounds"),
            "clients in their order": Course(many, rounds, **in_order),
        }
        for _ in range(TURNS):
            for name, course in kinds.items():
                off = name == "no collector"
                with mock.patch.object(collector, "_PATIENCE", (0, 0, 0)) if off else nullcontext():
                    once = course.seconds(2)
                    micros = 1e6 * (course.seconds(rounds) - once) / ((rounds - 2) * many)
                found.setdefault((name, many), []).append(micros)
    for name in dict.fromkeys(name for name, _ in found):
        print(f"| {name} | " + " | ".join(f"{statistics.median(found[name, many]):.1f}" for many in clients) + " |")


def against(tree: str, clients: list[int]) -> None:
    """Let two trees take turns, and print the rates of both and their ratio: medians of a few turns."""
    here = str(Path(__file__).parents[1])
    serving = [sys.executable, __file__, "serve"]
    both = [
        subprocess.Popen(
            serving, env=os.environ | {"PYTHONPATH": each}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for each in (tree, here)
    ]
    for many in clients:
        pairs: list[tuple[float, ...]] = []
        for _ in range(TURNS):
            turn = []
            for process in both:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{many}\n")
                process.stdin.flush()
                turn.append(float(process.stdout.readline()))
            pairs.append(tuple(turn))
        before, now = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(after / first for first, after in pairs)
        print(f"{many:>5,} clients: {before:,.0f} → {now:,.0f} client-rounds/s, ratio {ratio:.2f}", flush=True)
    for process in both:
        process.communicate()


def serve() -> None:
    """Answer numbers of clients by rates, for ``against``."""
    courses: dict[int, Course] = {}
    for line in sys.stdin:
        many = int(line)
        if many not in courses:
            courses[many] = Course(many)
        print(courses[many].rate(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="rates, table (default: both), growth")
    parser.add_argument("--clients", nargs="+", type=int, default=[28, 100, 1000])
    parser.add_argument("--against", metavar="TREE", help="the root of another checkout")
    arguments = parser.parse_args()
    parts = arguments.parts or ["rates", "table"]
    if strange := set(parts) - {"rates", "table", "growth", "serve"}:
        parser.error(f"no part {min(strange)!r}; choose from rates, table, growth")
    if arguments.against:
        if not Path(arguments.against, "vflsim", "__init__.py").is_file():
            parser.error(f"--against {arguments.against}: no checkout of vflsim")
        against(arguments.against, arguments.clients)
        return
    if "serve" in parts:
        serve()
        return
    if "rates" in parts:
        rates(arguments.clients)
    if "growth" in parts:
        growth(arguments.clients)
    if "table" in parts:
        for many in arguments.clients:
            table(many)


if __name__ == "__main__":
    main()
