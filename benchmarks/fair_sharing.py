"""How fast fair links are: flow changes a second, and the time of one solution with everybody sending to everybody.

One process, one thread; processor time, the best of a few. Run: python benchmarks/fair_sharing.py
"""

from __future__ import annotations

import time

import numpy as np

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.timing.capacity import Link
from vflsim.world.hub import max_min
from vflsim.world.messages import Message
from vflsim.world.networks import Fair
from vflsim.world.record import Recorder
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld

REPEATS = 3


def fair_flow_changes(flows: int, changes: int = 4_000) -> float:
    """Beginnings and ends of flows a second, each followed by a solution for the rates of all.

    ``flows`` clients with links of different rates send to the server, each its next message as the one before arrives.
    """
    generator = np.random.default_rng(0)
    sizes = generator.integers(10_000, 1_000_000, changes + 2 * flows).tolist()
    links = [Link(down=1e7 * flows), *(Link(up=rate) for rate in generator.uniform(1e6, 1e8, flows))]
    world = VirtualWorld(TimingOnlyExecutor())
    transport = Transport(world, Fair(), links, 0, Recorder("summary"))
    ended = 0

    def send(client: int) -> None:
        message = Message()
        message.sender, message.receiver, message.sent = client, 0, world.now()
        transport.send(message, sizes.pop(), arrived)

    def arrived(message: Message) -> None:
        nonlocal ended
        ended += 1
        if 2 * ended >= changes:
            world.finish("enough")
        else:
            send(message.sender)

    for client in range(1, flows + 1):
        send(client)
    began = time.process_time()
    world.run()
    seconds = time.process_time() - began
    return 2 * ended / seconds


def solution(parties: int) -> tuple[int, float]:
    """Flows, and milliseconds of one solution: everybody sends to everybody over links of different rates."""
    first, second = np.array([(a, parties + b) for a in range(parties) for b in range(parties) if a != b]).T
    capacity = np.random.default_rng(0).uniform(1e6, 1e9, 2 * parties)
    times = []
    for _ in range(10 * REPEATS):
        began = time.perf_counter()
        max_min(first, second, capacity)
        times.append(time.perf_counter() - began)
    return len(first), 1e3 * min(times)


def main() -> None:
    for flows in (10, 100, 1000):
        best = max(fair_flow_changes(flows) for _ in range(REPEATS))
        print(f"{flows:>5} concurrent flows to one server: {best:>9,.0f} flow changes/s")
    for parties in (28, 100):
        flows, milliseconds = solution(parties)
        print(f"{parties:>5} parties, everybody to everybody ({flows:,} flows): {milliseconds:.2f} ms a solution")


if __name__ == "__main__":
    main()
