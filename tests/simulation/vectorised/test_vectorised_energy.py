"""Energy on both paths: the same bytes in random worlds, and reasons where the vectorised path cannot count it."""

from typing import Any

import pytest
from both_paths import assert_same_bytes, quick

from vflsim.simulation.vectorised import obstacles

ENERGY = {"idle": "2 W", "compute": "6 W", "radio": "1.2 W"}
EACH = {"per_byte": "0.1 uJ", "per_flop": "50 nJ"}


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
