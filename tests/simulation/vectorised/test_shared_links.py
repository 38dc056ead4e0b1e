"""Messages that share the server's link: arrays leave the bytes of events in worlds drawn at random."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from both_paths import assert_same_bytes, quick
from protocols_by_kind import KEYS, KINDS
from thorough import is_thorough

from vflsim.simulation.vectorised import UndecidedError, obstacles

IN_ROUNDS = ("synchronous", "ignore-exclude", "fedbcd", "fedbcd-sequential", "vimadmm", "easter", "c_vfl", "local")
AT_THEIR_OWN_PACE = (
    *("asynchronous", "asynchronous-own", "asynchronous-upload", "t-synchronous", "t-synchronous-upload"),
    *("celu_vfl", "celu_vfl-often"),  # in the steps that they take while they wait
)
PROTOCOLS = {name: {**KINDS, **KEYS}[name] for name in (*IN_ROUNDS, *AT_THEIR_OWN_PACE)}
RATES: list[Any] = ["unlimited", "1 Mbps", "2 Mbps", "2 Mbps", "5 Mbps", "(1 + m/3) Mbps", "(6/m) Mbps"]
DELAYS: list[Any] = ["1 ms", "2 ms", "(m*m) ms", *({"kind": "exponential", "mean": mean} for mean in ("1 ms", "m ms"))]


def drawn(name: str, seed: int) -> dict[str, Any]:
    """A world in which a protocol shares links."""
    pick = random.Random(seed)
    power = {"idle": "2 W", "radio": "1 W", "per_byte": "1 uJ"} if pick.random() < 0.3 else None
    link = {"up": pick.choice(RATES), "down": pick.choice(RATES), "latency": pick.choice([0, *DELAYS])}
    client = {"select": "all", "compute": pick.choice(DELAYS), "upload_delay": pick.choice([0, *DELAYS]), "link": link}
    if name in AT_THEIR_OWN_PACE:
        client["activation"] = pick.choice(["immediate", "immediate", {"kind": "poisson", "rate": "300 /s"}])
    server = {
        "up": pick.choice(["unlimited", "1 Mbps", "3 Mbps"]),
        "down": pick.choice(["unlimited", "2 Mbps", "8 Mbps"]),
    }
    timing = {
        "network": pick.choice(["fair", "fifo"]),
        "server": {"compute": "1 ms", "link": server, **({"power": power} if power else {})},
        "clients": client | ({"power": power} if power else {}),
    }
    stop = pick.choice([{"rounds": 40}, {"time": f"{pick.uniform(0.02, 0.4):.4f} s"}, {"updates": 60, "rounds": 40}])
    every = pick.choice(["3 rounds", "7 ms", "5 updates"])
    batch = pick.choice([7, 20, 40])
    return {
        "timing": timing,
        "stop": stop,
        "evaluate": {"every": every},
        "training__batch": batch,
    }


@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", range(200 if is_thorough() else 2))
@pytest.mark.parametrize("name", PROTOCOLS)
def test_arrays_equal_events_where_messages_share_links(name: str, seed: int) -> None:
    scenario = quick(PROTOCOLS[name], **drawn(name, seed))
    assert obstacles(scenario, "it") == []
    with suppress(*([UndecidedError] if name in AT_THEIR_OWN_PACE else [])):  # ties
        assert_same_bytes(scenario)


@pytest.mark.parametrize("name", ["asynchronous", "synchronous"])
@pytest.mark.parametrize("network", ["fair", "fifo"])
def test_clients_that_pause_are_an_obstacle_on_shared_links(name: str, network: str) -> None:
    pauses = {"kind": "alternating", "up": "9 ms", "down": "3 ms", "interrupted": "resumed"}
    clients = {"select": "all", "link": {"up": "1 Mbps"}, "availability": pauses}
    (problem,) = obstacles(quick(name, timing={"network": network, "clients": clients}), "it")
    assert problem.key == "timing.network"
    assert "pause stand aside" in problem.what


@pytest.mark.parametrize("stop", [{"time": "35 ms", "rounds": 20}, {"rounds": 20}], ids=["cut short", "many rounds"])
@pytest.mark.parametrize("name", ["synchronous", "asynchronous"])
def test_what_began_first_is_sent_first_of_what_ends_at_one_instant(name: str, stop: dict[str, Any]) -> None:
    """Client 1 computes and waits for 1 ms each; the computations of the others, of 2 ms, began before its wait."""
    link = {"up": "(1 + m/3) Mbps", "latency": "1 ms"}
    clients = [
        {"select": "all", "compute": "1 ms", "upload_delay": "1 ms", "link": link},
        {"select": "2..N", "compute": "2 ms", "upload_delay": 0},
    ]
    timing = {"network": "fifo", "server": {"compute": "1 ms"}, "clients": clients}
    assert_same_bytes(
        quick(PROTOCOLS[name], timing=timing, stop=stop, models__client={"kind": "linear", "embedding": 40})
    )


def test_a_message_without_a_limit_changes_no_bit_of_those_under_way() -> None:
    clients = [
        {"select": "all", "compute": "1 ms", "upload_delay": "1 ms", "link": {"up": "1 Mbps", "down": "1 Mbps"}},
        {"select": 2, "upload_delay": 0},
        {"select": 4, "upload_delay": "2 ms", "link": {"down": "unlimited", "latency": "1 ms"}},
    ]
    server = {"compute": "1 ms", "link": {"down": "2 Mbps", "latency": "1 ms"}}
    timing = {"network": "fair", "server": server, "clients": clients}
    assert_same_bytes(
        quick(PROTOCOLS["c_vfl"], timing=timing, stop={"rounds": 9}, partition={"clients": 5, "by": "columns"})
    )
