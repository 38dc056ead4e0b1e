"""The energy of runs against sums by hand: times are dyadic, so that every float is exact."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_worlds import events, metrics, rounds, run, tiny

from vflsim.simulation.run import Outcome

LINK = {"up": "8160 bps", "down": "8160 bps"}
"""An embedding of 20 rows, 1020 bytes, moves in 1 s."""
SERVER = {"compute": "1 s", "link": LINK, "power": {"idle": "8 W", "compute": "16 W", "radio": "4 W"}}
CLIENTS = {
    "select": "all",
    "compute": "(2*m) s",
    "upload_delay": "0.5 s",
    "power": {"idle": "(2*m) W", "compute": "(8*m) W", "radio": "1 W"},
}


def timed(protocol: str | dict[str, Any], clients: Any = CLIENTS, server: Any = SERVER, **changes: Any) -> Outcome:
    """A timing-only run of two clients, by default of two rounds."""
    said = {"kind": protocol} if isinstance(protocol, str) else protocol
    timing = {"network": changes.pop("network", "dedicated"), "server": server, "clients": clients}
    changes = {"stop": {"rounds": 2}, "evaluate": {"every": "1 rounds"}, **changes}
    scenario = tiny({"it": said}, partition={"clients": 2, "by": "columns"}, timing=timing, **changes)
    return run(scenario, timing_only=True)


def seconds(outcome: Outcome) -> dict[str, list[float]]:
    """By party, the seconds of idle, compute and radio."""
    table = outcome.extra["energy_by_party"].to_pandas()
    return {str(party): own["seconds"].tolist() for party, own in table.groupby("party")}


def test_a_synchronous_round_by_hand() -> None:
    outcome = timed("synchronous")
    # Client 1 computes 0–2 s, and its radio is on 2–3.5 s; client 2 0–4 and 4–5.5 s; the server hears them 2.5–3.5 and
    # 4.5–5.5 s, and computes 5.5–6.5 s.
    server = 5.5 * 8 + 1 * 16 + 2 * 4
    one, two = 4.5 * 2 + 2 * 8 + 1.5 * 1, 2.5 * 4 + 4 * 16 + 1.5 * 1
    assert rounds(outcome)["energy_j"].tolist()[0] == server + one + two == 170
    # The second: gradients 6.5–7.5 s, both at once; steps and embeddings until 11.5 and 15.5 s; uploads as before.
    server = 10.5 * 8 + 1 * 16 + 3 * 4
    one, two = 7.5 * 2 + 4 * 8 + 2.5 * 1, 3.5 * 4 + 8 * 16 + 2.5 * 1
    assert rounds(outcome)["energy_j"].tolist()[1] == server + one + two == 306
    assert metrics(outcome)["energy_j"].tolist() == [0, 170, 476]
    assert seconds(outcome) == {"server": [16, 2, 5], "client-1": [12, 6, 4], "client-2": [6, 12, 4]}


def test_a_round_of_fedbcd_by_hand() -> None:
    outcome = timed({"kind": "fedbcd", "local_steps": 2})
    # As above, but the server's local step 6.5–7.5 s, and a second step of each client: 2 and 4 s more.
    server = 13.5 * 8 + 2 * 16 + 3 * 4
    one, two = 9.5 * 2 + 6 * 8 + 2.5 * 1, 3.5 * 4 + 12 * 16 + 2.5 * 1
    assert rounds(outcome)["energy_j"].tolist() == [170, server + one + two]
    assert seconds(outcome) == {"server": [19, 3, 5], "client-1": [14, 8, 4], "client-2": [6, 16, 4]}


def test_asynchronous_steps_by_hand() -> None:
    outcome = timed("asynchronous")
    # The server steps 3.5–4.5 s on client 1 (heard 2.5–3.5 s), while client 2 embeds until 4 s and waits to upload.
    server, one, two = 3.5 * 8 + 16 + 4, 2.5 * 2 + 2 * 8 + 1.5, 0.5 * 4 + 4 * 16 + 0.5
    assert rounds(outcome)["energy_j"].tolist()[0] == server + one + two == 137
    # It steps 5.5–6.5 s on client 2 (4.5–5.5 s), and client 1 (gradient 4.5–5.5 s) is in its own step when all ends.
    server, one, two = 8 + 16 + 4, 2 + 8 + 1, 2 * 4 + 1
    assert rounds(outcome)["energy_j"].tolist()[1] == server + one + two == 48


def test_bytes_and_operations_count_where_they_have_an_energy() -> None:
    each = {"per_byte": "1 uJ", "per_flop": "2 nJ"}
    outcome = timed("synchronous", {"compute": "1 s", "power": each}, {"compute": "1 s"})
    table = outcome.extra["energy_by_party"].to_pandas()
    assert table["party"].unique().tolist() == ["client-1", "client-2"]
    # Two embeddings up and one gradient down; 20 rows of 32 features to 6 values: 2 · 20 · 32 · 6 operations forward,
    # as many for the gradient of the weights.
    flops = 2 * 20 * 32 * 6
    amounts = table.set_index(["party", "state"])["amount"]
    assert amounts["client-1"].to_dict() == {"idle": 0, "compute": 3 * flops, "radio": 3 * 1020}
    expected = 2 * (3 * 1020 * 1e-6 + 3 * flops * 2e-9)
    assert metrics(outcome)["energy_j"].iloc[-1] == pytest.approx(expected, rel=1e-12)


def test_work_that_is_cut_short_counts_as_far_as_it_got() -> None:
    energy = {"idle": "1 W", "compute": "2 W", "per_flop": "1 J"}
    protocol = {"kind": "t_synchronous", "t": 1, "cancel": True}
    clients = [{"select": "all", "compute": "1 s"}, {"select": 2, "compute": "100 s", "power": energy}]
    outcome = timed(protocol, clients, {"compute": "0 s"}, network="fifo", stop={"rounds": 1})
    (cut,) = events(outcome, "compute.embed", "client-2").itertuples()
    assert cut.end_s == 1
    assert cut.outcome in ("abandoned", "unfinished")
    rows = outcome.extra["energy_by_party"].to_pandas().set_index("state")
    assert rows["seconds"].to_dict() == {"idle": 0, "compute": 1, "radio": 0}
    assert rows["amount"]["compute"] == 2 * 20 * 32 * 6 // 100


@pytest.mark.parametrize("interrupted", ["resumed", "lost"])
def test_a_party_that_is_down_draws_nothing(interrupted: str) -> None:
    away = {"kind": "intervals", "down": [["1 s", "4 s"]], "interrupted": interrupted}
    clients = {**CLIENTS, "compute": "2 s"}
    outcome = timed("synchronous", [clients, {"select": 1, "availability": away}], stop={"rounds": 1})
    # It is up for 1 s of its work; then for the rest of it, or for all of it anew.
    again = 1 if interrupted == "resumed" else 2
    end = 4 + again + 0.5 + 1 + 1
    assert rounds(outcome)["end_s"].tolist() == [end]
    assert seconds(outcome)["client-1"] == [end - 3 - (1 + again), 1 + again, 1.5]


def test_energy_that_nobody_states_leaves_no_trace() -> None:
    silent = {key: value for key, value in CLIENTS.items() if key != "power"}
    outcome = timed("synchronous", silent, {"compute": "1 s", "link": LINK})
    assert outcome.extra == {}
    assert "energy_j" not in metrics(outcome)
    assert "energy_j" not in rounds(outcome)


def test_the_sum_over_parties_is_the_last_row() -> None:
    timing = {"kind": "exponential", "mean": "0.3 s"}
    clients = {**CLIENTS, "compute": timing, "upload_delay": timing}
    outcome = timed("asynchronous", clients, stop={"rounds": 30}, network="fair")
    table = outcome.extra["energy_by_party"].to_pandas()
    assert table["joules"].sum() == pytest.approx(metrics(outcome)["energy_j"].iloc[-1], rel=1e-12)
    assert rounds(outcome)["energy_j"].sum() == pytest.approx(metrics(outcome)["energy_j"].iloc[-1], rel=1e-12)
