"""Energy on both paths: the same bytes in random worlds, and reasons where the vectorised path cannot count it."""

import random
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from both_paths import assert_same_bytes, quick
from recurrent_worlds import world
from thorough import is_thorough

from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.vectorised import UndecidedError, obstacles

WORLDS = 1000 if is_thorough() else 30
ENERGY = {"idle": "2 W", "compute": "6 W", "radio": "1.2 W"}
EACH = {"per_byte": "0.1 uJ", "per_flop": "50 nJ"}


def metered(number: int) -> Scenario:
    """A random world whose parties say what they draw, some of them nothing."""
    pick, said = random.Random(number), deepcopy(world(number).document.raw)
    timing: dict[str, Any] = said["timing"]
    timing["clients"] = timing["clients"] if isinstance(timing["clients"], list) else [timing["clients"]]
    for entry in timing["clients"]:
        entry.pop("availability", None)
    powers = [{"select": "all", "power": {"idle": 0.1, "compute": "(0.3*m) W"}}, {"select": "N", "power": ENERGY}]
    timing["clients"] += [power for power in powers if pick.random() < 0.8]
    if pick.random() < 0.7:
        timing.setdefault("server", {})["power"] = {"idle": "7 W", "compute": "20 W", "radio": "3 W"}
    for entry in (*timing["clients"][-len(powers) :], timing.get("server", {})):
        if "power" in entry:
            entry["power"] = entry["power"] | pick.choice(
                [{}, EACH, EACH, {"per_byte": "0.3 uJ", "per_flop": "0.3 uJ"}]
            )
    return load(said)


def test_random_worlds_have_the_same_energy_on_both_paths() -> None:
    told = Counter[str]()
    for number in range(WORLDS):
        scenario = metered(number)
        if obstacles(scenario, "it"):
            told["refused"] += 1
            continue
        try:
            outcome = assert_same_bytes(scenario, number)
        except UndecidedError:
            told["undecided"] += 1
        except AssertionError as difference:
            raise AssertionError(f"world {number} differs") from difference
        else:
            told["counted" if "energy_by_party" in outcome.extra else "silent"] += 1
    assert told["counted"] > 0.5 * WORLDS, told


def test_a_message_sent_rounds_before_the_end_of_the_run_counts_as_far_as_it_got() -> None:
    slow: dict[str, Any] = {"link": {"down": "8 kbps"}, "compute": "1 ms", "power": EACH}
    clients = [{"select": "all", "compute": "1 ms", "upload_delay": "(7*m) us"}, {"select": 1, **slow}]
    timing = {"server": {"compute": "1.3 ms", "power": EACH}, "clients": clients}
    assert_same_bytes(quick({"kind": "asynchronous"}, timing=timing, stop={"rounds": 70}))


def test_what_goes_on_from_one_chunk_of_rounds_to_the_next_counts_once() -> None:
    delay = {"kind": "exponential", "mean": "3 ms"}
    clients = {"select": "all", "compute": delay, "upload_delay": delay, "link": {"up": "1 Mbps"}, "power": ENERGY}
    timing = {"server": {"compute": "1 ms", "power": ENERGY}, "clients": clients}
    assert_same_bytes(quick({"kind": "asynchronous"}, timing=timing, stop={"rounds": 300}))


AWAY = {"kind": "alternating", "up": "9 ms", "down": "3 ms", "interrupted": "resumed"}


@pytest.mark.parametrize(
    ("kind", "clients", "key", "what"),
    [
        ("synchronous", {"power": ENERGY, "availability": AWAY}, "availability", "says what it draws, and pauses"),
        ("ignore", {"power": ENERGY}, "power", "work is abandoned, or clients are passed over"),
    ],
)
def test_what_the_vectorised_path_cannot_count(kind: str, clients: dict[str, Any], key: str, what: str) -> None:
    protocol = {"kind": kind, **({"fastest": 2} if kind == "ignore" else {})}
    (problem,) = obstacles(quick(protocol, timing={"clients": {"select": "all", **clients}}), "it")
    assert problem.key == f"timing.clients.{key}"
    assert what in problem.what


def test_outages_of_a_party_that_draws_nothing_are_no_obstacle() -> None:
    clients = [{"select": "all", "compute": "2 ms"}, {"select": 1, "availability": AWAY}]
    timing = {"server": {"compute": "1 ms", "power": ENERGY}, "clients": clients}
    outcome = assert_same_bytes(quick({"kind": "synchronous"}, timing=timing))
    assert outcome.extra["energy_by_party"]["party"].to_pylist() == 3 * ["server"]
