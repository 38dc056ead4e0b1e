"""Arrays made from a trace leave the bytes that events leave: for rounds of any script, in any world."""

import random
from typing import Any

import pytest
from both_paths import assert_same_bytes, quick
from scripted_rounds import script
from thorough import is_thorough

from vflsim.simulation.vectorised import UndecidedError

WORLDS, THOROUGH, GROUP = 100, 2000, 20
FEWEST_DECIDED = 0.5


def _party(pick: random.Random) -> dict[str, Any]:
    mean = pick.choice(["1 ms", "3 ms"])
    delay = {"kind": "exponential", "mean": mean}
    flops = {"kind": "flops", "rate": "50 MFLOPS", "jitter": {"kind": "lognormal", "median": 1, "sigma": 0.3}}
    return {
        "compute": pick.choice([delay, flops, "2 ms"]),
        "link": pick.choice([{}, {"up": "2 Mbps", "down": "3 Mbps", "latency": delay}]),
    }


def world(number: int) -> dict[str, Any]:
    pick = random.Random(number)
    clients: dict[str, Any] = {"select": "all", **_party(pick), "upload_delay": {"kind": "exponential", "mean": "4 ms"}}
    if pick.random() < 0.2:
        clients["activation"] = {"kind": "poisson", "rate": "300 /s"}
    if pick.random() < 0.2:
        clients["availability"] = {
            "kind": "alternating",
            "up": {"kind": "exponential", "mean": "200 ms"},
            "down": {"kind": "exponential", "mean": "9 ms"},
            "interrupted": "resumed",
        }
    server = _party(pick)
    if "availability" not in clients and pick.random() < 0.3:  # arrays know no energy where clients pause
        server["power"] = {"idle": "7 W", "compute": "20 W", "radio": "3 W", "per_byte": 1e-6}
        clients["power"] = {"idle": 0.1, "compute": "(0.3*m) W"}
    stop = pick.choice([{"rounds": 40}, {"time": "0.4 s"}, {"updates": 61}, {"epochs": 7}])
    every = pick.choice(["5 rounds", "20 ms", "7 updates"])
    return {
        "protocol": script(pick),
        "timing": {"server": server, "clients": clients},
        "partition": {"clients": pick.randint(1, 5), "by": "columns"},
        "training__batch": pick.choice([16, 20]),
        "stop": stop if "updates" not in stop else {**stop, "rounds": 40},
        "evaluate": {"every": every},
        "codec": pick.choice(["plain", "float16"]),
    }


@pytest.mark.parametrize("first", range(0, THOROUGH if is_thorough() else WORLDS, GROUP))
def test_both_paths_leave_the_same_bytes(first: int) -> None:
    decided = 0
    for number in range(first, first + GROUP):
        try:
            assert_same_bytes(quick(**world(number)))
        except UndecidedError:
            continue
        except AssertionError as error:
            raise AssertionError(f"world {number}: {world(number)}") from error
        decided += 1
    assert decided >= FEWEST_DECIDED * GROUP
