"""What it costs that code from outside is watched: its random numbers are seeded.

The tiny digits scenario of the tests, with protocols and a tower named by path; evaluated every 10 rounds. Each case
runs with and without the watch, in turns, in one process with one thread. Printed are medians of processor time, and
the median and the quartiles of the ratio of neighbours.
Run: python benchmarks/own_code.py [REPEATS [ROUNDS]]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

TESTS = Path(__file__).parents[1] / "tests" / "support"
sys.path.insert(0, str(TESTS))

from outside_worlds import outside  # noqa: E402
from tiny_worlds import raw, run  # noqa: E402

from vflsim.scenario import load  # noqa: E402
from vflsim.scenario.models import Scenario  # noqa: E402
from vflsim.simulation import build  # noqa: E402

REMEMBERING = "outside_protocols.remembering"


def cases(rounds: int) -> dict[str, Scenario]:
    """The scenarios, by what is the user's own in them."""
    cut: dict[str, Any] = {"stop": {"rounds": rounds}, "evaluate": {"every": "10 rounds"}}
    remember = {"kind": "module", "path": f"{REMEMBERING}:Remember", "way": "kept counter"}
    noise = {"kind": "module", "path": f"{REMEMBERING}:DrawNoise", "source": "torch"}
    tower = {"kind": "module", "path": f"{REMEMBERING}:Dropping", "embedding": 6}
    return {
        "remember": load(raw({"it": remember}, **cut)),
        "two_trip": load(outside("two_trip", **cut)),
        "three_tensors": load(outside("three_tensors", **cut)),
        "draw_noise": load(raw({"it": noise}, **cut)),
        "tower": load(raw("synchronous", models__client=tower, **cut)),
    }


def seconds(scenario: Scenario, watched: bool) -> float:
    """Processor seconds of one run."""
    with patch.object(build, "brings_code", build.brings_code if watched else lambda *_: False):
        began = time.process_time()
        run(scenario)
        return time.process_time() - began


def main(repeats: int, rounds: int) -> None:
    for name, scenario in cases(rounds).items():
        seconds(scenario, True)
        pairs = [(seconds(scenario, True), seconds(scenario, False)) for _ in range(repeats)]
        with_it, without = (statistics.median(column) for column in zip(*pairs, strict=True))
        low, middle, high = statistics.quantiles([one / other for one, other in pairs])
        print(f"{name:<14} {with_it:6.3f} s, {without:6.3f} s unwatched: {middle:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(11, 300)[len(given) :])
