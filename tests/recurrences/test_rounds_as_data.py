"""Rounds worked by hand, of protocols whose rounds have several trips, turns, or no rounds at all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_paths import assert_same_bytes, quick
from tiny_worlds import data_of, metrics, rounds

from vflsim.learning.batches import Batch
from vflsim.protocols.synchronous import Synchronous
from vflsim.recurrences import Acts, ClientsWait, ServerWaits, SynchronousRounds, TimedWorld, ToClients
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.vectorised import UndecidedError, run_vectorised
from vflsim.world.messages import Embedding
from vflsim.world.node import ClientNode

# Embedding, predicting or stepping takes a client 2 s, an upload m s, the server's work 1 s; links take no time.
SLOW = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "m s"}}


def test_two_trips_wait_for_the_slowest_client_twice() -> None:
    outcome = assert_same_bytes(quick({"kind": "easter", "blinding": "off"}, timing=SLOW, stop={"rounds": 3}))
    # 2 + 4 s up to the mean, 2 + 4 up to the predictions, 1 for the server's step; then 2 for the clients' steps first
    assert rounds(outcome)["end_s"].tolist() == [13, 28, 43]


def test_a_key_agreement_comes_before_the_first_round() -> None:
    outcome = assert_same_bytes(quick({"kind": "easter"}, timing=SLOW, stop={"rounds": 2}))
    assert rounds(outcome)["end_s"].tolist() == [17, 32]  # 4 s later: the slowest upload of a key
    outcome = assert_same_bytes(quick({"kind": "synchronous", "blinding": "on"}, timing=SLOW, stop={"rounds": 2}))
    assert rounds(outcome)["end_s"].tolist() == [11, 20]


def test_turns_add_up() -> None:
    turns = {"kind": "fedbcd", "local_steps": 3, "order": "sequential"}
    outcome = assert_same_bytes(quick(turns, timing=SLOW, stop={"rounds": 2}))
    # 6 s for the exchange; of each client 1 for its gradient, 3 steps and an embedding of 2 s, m s up; 3 steps of 1 s
    assert rounds(outcome)["end_s"].tolist() == [6 + 4 * 9 + 10 + 3, 2 * (6 + 4 * 9 + 10 + 3)]
    assert metrics(outcome)["updates"].iloc[-1] == 2 * 4 * 3


def test_clients_take_numbers_of_steps_of_their_own() -> None:
    flex = {"kind": "flex_vfl", "local_steps": [2, 4, 1, 2, 1]}
    outcome = assert_same_bytes(quick(flex, timing=SLOW, stop={"rounds": 2}))
    # 2 + 4 s up, 1 for the step; then client 1 steps for 8 s, and comes 2 + 1 s later; client 4 for 2, and 2 + 4 later
    assert rounds(outcome)["end_s"].tolist() == [7, 7 + 11 + 1]
    assert metrics(outcome)["updates"].iloc[-1] == 4 + 1 + 2 + 1


def test_only_the_active_party_steps() -> None:
    outcome = assert_same_bytes(quick({"kind": "local"}, timing=SLOW, stop={"rounds": 3}))
    assert rounds(outcome)["end_s"].tolist() == [1, 2, 3]
    assert rounds(outcome)["missing"].map(len).tolist() == [0, 0, 0]


# FedVS with 4 clients and R = 3. Sharing delays take m/4 s, the work on shares nothing, the server's step 1 s.
CODED = {"kind": "fedvs", "K": 1, "share_delay_factor": 0.25}
AT_ONCE = {"server": {"compute": "1 s"}, "clients": {"select": "all", "upload_delay": "(m*m) s"}}


@pytest.mark.parametrize(("late", "ends"), [("abandoned", [14, 28, 42]), ("finished", [14, 34, 54])])
def test_a_coded_round_waits_for_all_shares_and_the_third_answer(late: str, ends: list[float]) -> None:
    outcome = assert_same_bytes(quick({**CODED, "late": late}, timing=AT_ONCE, stop={"rounds": 3}))
    # The last share is there 4 s after client 4 begins, the third answer 9 s later. Client 4 answers 16 s after that
    # share; if it finishes its answer, it begins the next round at 20 s.
    assert rounds(outcome)["end_s"].tolist() == ends
    assert [list(used) for used in rounds(outcome)["used"]] == [[1, 2, 3]] * 3
    assert [list(fresh) for fresh in rounds(outcome)["fresh"]] == [[1, 2, 3, 4]] * 3
    assert outcome.extra["coding"].to_pylist()[0]["recovery_threshold"] == 3


@pytest.mark.parametrize("late", ["abandoned", "finished"])
def test_shares_that_come_too_late_leave_a_client_out(late: str, tmp_path: Path) -> None:
    """They reach client 4 when the round is over for the others, who take them off the links if they abandon."""
    latencies = np.zeros((5, 5))
    latencies[1:4, 4] = 90
    np.savetxt(tmp_path / "latencies.csv", latencies, delimiter=",")
    delay = {"kind": "exponential", "mean": "2 ms"}
    timing = {
        "network": {"kind": "dedicated", "latency": {"file": str(tmp_path / "latencies.csv"), "unit": "ms"}},
        "server": {"compute": "1 ms"},
        "clients": {
            "select": "all",
            "compute": delay,
            "upload_delay": delay,
            "link": {"latency": delay, "up": "9 Mbps"},
        },
    }
    coded = {**CODED, "late": late}
    outcome = assert_same_bytes(quick(coded, timing=timing, stop={"rounds": 100}, evaluate={"every": "5 ms"}))
    assert not any(4 in used for used in rounds(outcome)["used"])


def test_batches_of_many_sizes_have_padded_rows() -> None:
    flops = {"kind": "flops", "rate": "1 MFLOPS"}
    timing = {"server": {"compute": flops}, "clients": {"select": "all", "compute": flops, "link": {"up": "3 Mbps"}}}
    coded = {"kind": "fedvs", "K": 5, "T": 1}  # 81 training rows: 4 of 85 are padded
    assert_same_bytes(
        quick(coded, timing=timing, training__batch=20, partition={"clients": 11, "by": "columns"}, stop={"rounds": 70})
    )


@pytest.mark.parametrize("missing", [ServerWaits, ClientsWait, ToClients])
def test_acts_that_do_not_say_who_may_be_late_are_refused(missing: type) -> None:
    scenario = quick(CODED, timing=AT_ONCE)
    protocol, resolved = scenario.protocols["it"].protocol, setting(scenario, "it", data_of(scenario))

    def acts(server: Any, clients: Any, client: int, batch: Batch) -> Acts:
        whole = protocol.acts(server, clients, client, batch)
        if missing is ServerWaits:
            return (*whole, ServerWaits(2))
        left = [replace(act, late=None) if isinstance(act, ToClients) else act for act in whole]
        return tuple(left if missing is ToClients else [act for act in whole if not isinstance(act, missing)])

    with pytest.raises(ValueError, match=r"allowed: one of each"):
        SynchronousRounds(TimedWorld(protocol, resolved, 0, (protocol.first_acts, acts)))


# Cycles of 10, 20, 30 and 40 s besides the server's 1 s: arrivals at 10, 20, 21 (client 1 again), 30, …
PACES = {"server": {"compute": "1 s"}, "clients": {"select": "all", "upload_delay": "(10*m) s"}}


def test_embeddings_wait_for_the_server_in_the_order_of_arrival() -> None:
    outcome = assert_same_bytes(quick({"kind": "asynchronous"}, timing=PACES, stop={"rounds": 5}))
    assert rounds(outcome)["end_s"].tolist() == [11, 21, 22, 31, 33]
    assert [list(used) for used in rounds(outcome)["used"]] == [[1], [2], [1], [3], [1]]
    assert list(rounds(outcome)["missing"][0]) == [2, 3, 4]


def test_late_embeddings_count_for_a_later_step() -> None:
    outcome = assert_same_bytes(quick({"kind": "t_synchronous", "t": 2}, timing=PACES, stop={"time": "45 s"}))
    assert rounds(outcome)["end_s"].tolist() == [21, 32, 42]
    assert [list(used) for used in rounds(outcome)["used"]] == [[1, 2], [1, 3], [2, 4]]


@pytest.mark.parametrize("protocol", [{"kind": "asynchronous"}, {"kind": "t_synchronous", "t": 2, "cancel": True}])
def test_a_first_fill_comes_before_the_first_step(protocol: dict[str, Any]) -> None:
    filled = {**protocol, "first_fill": "upload"}
    outcome = assert_same_bytes(quick(filled, timing=PACES, stop={"rounds": 4}))
    assert rounds(outcome)["end_s"][0] == 41  # the slowest first pass is there at 40 s


def test_activations_begin_every_cycle() -> None:
    activation = {"kind": "schedule", "times": ["3 s"], "period": "10 s"}
    for protocol in ({"kind": "synchronous"}, {"kind": "asynchronous"}):
        clients = {"select": "all", "upload_delay": "(0.1*m) s", "activation": activation}
        timing = {"server": {"compute": "0.01 s"}, "clients": clients}
        outcome = assert_same_bytes(quick(protocol, timing=timing, stop={"rounds": 8}))
        slowest = 0.4 if protocol["kind"] == "synchronous" else 0.1
        assert rounds(outcome)["end_s"][0] == pytest.approx(3 + slowest + 0.01)


def paused(protocol: dict[str, Any], down: list[list[str]], period: str | None, **changes: Any) -> Scenario:
    """Uploads of m s, of which client 4's stands still while it is ``down``; nothing else of a client takes time."""
    away = {"kind": "intervals", "down": down, "interrupted": "resumed", **({"period": period} if period else {})}
    clients = [{"select": "all", "upload_delay": "m s"}, {"select": "4", "availability": away}]
    return quick(protocol, timing={"server": {"compute": "1 s"}, "clients": clients}, **changes)


def test_a_barrier_waits_for_a_client_that_pauses() -> None:
    outcome = assert_same_bytes(paused({"kind": "synchronous"}, [["2 s", "5 s"]], "20 s", stop={"rounds": 5}))
    # 4 + 3 + 1 s; 4 + 1; 4 + 1; then at 22 s it pauses for 3 s again: 4 + 3 + 1, and 4 + 1
    assert rounds(outcome)["end_s"].tolist() == [8, 13, 18, 26, 31]


def test_a_client_that_pauses_does_not_hold_up_others_at_their_own_pace() -> None:
    alone = {"kind": "asynchronous"}
    outcome = assert_same_bytes(paused(alone, [["2 s", "501 s"]], "600 s", stop={"time": "500.5 s"}))
    assert not any(4 in used for used in rounds(outcome)["used"])
    outcome = assert_same_bytes(paused(alone, [["2 s", "5 s"]], "600 s", stop={"time": "500.5 s"}))
    assert any(4 in used for used in rounds(outcome)["used"])


@pytest.mark.parametrize("protocol", [{"kind": "synchronous"}, {"kind": "asynchronous"}])
def test_bytes_on_links_that_pause_count_to_the_last_one(protocol: dict[str, Any]) -> None:
    """Half of client 4's 1020 bytes are through when it pauses, from 3 s to 9 s; the run ends before it is back."""
    away = {"kind": "intervals", "down": [["3 s", "9 s"]], "interrupted": "resumed"}
    clients = [{"select": "all", "upload_delay": "20 s"}, {"select": "4", "upload_delay": "2 s", "availability": away}]
    clients[0]["link"] = {"up": "4080 bps"}
    outcome = assert_same_bytes(quick(protocol, timing={"clients": clients}, stop={"time": "8 s"}))
    assert metrics(outcome)["bytes_up"].iloc[-1] == 510


@pytest.mark.parametrize("protocol", [{"kind": "synchronous"}, {"kind": "asynchronous"}])
def test_a_client_that_goes_down_for_good_leaves_the_run_to_the_event_path(protocol: dict[str, Any]) -> None:
    scenario = paused(protocol, [["30 s", "inf"]], None, stop={"rounds": 100})
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario))
    assert isinstance(outcome.error, UndecidedError)
    assert "a client goes down for good" in str(outcome.error)


def test_clients_do_not_pause_where_they_take_turns() -> None:
    turns = {"kind": "fedbcd", "local_steps": 2, "order": "sequential"}
    scenario = paused(turns, [["2 s", "5 s"]], "20 s", stop={"rounds": 3})
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario))
    assert isinstance(outcome.error, UndecidedError)
    assert "clients pause" in str(outcome.error)


@pytest.mark.parametrize("protocol", [{"kind": "synchronous"}, {"kind": "asynchronous"}])
def test_clients_without_another_activation_leave_the_run_to_the_event_path(protocol: dict[str, Any]) -> None:
    clients = {"select": "all", "activation": {"kind": "schedule", "times": ["1 s", "2 s"]}}
    timing = {"server": {"compute": "0.1 s"}, "clients": {**clients, "upload_delay": "(0.1*m) s"}}
    with pytest.raises(UndecidedError, match="waits for ever for an activation"):
        assert_same_bytes(quick(protocol, timing=timing, stop={"time": "1.1 s"}))


def test_a_first_pass_longer_than_all_activations_leaves_the_run_to_the_event_path() -> None:
    clients = {"select": "all", "activation": {"kind": "schedule", "times": ["1 s"]}, "upload_delay": "2 s"}
    filled = {"kind": "asynchronous", "first_fill": "upload"}
    scenario = quick(filled, timing={"server": {"compute": "0.1 s"}, "clients": clients}, stop={"time": "3 s"})
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario))
    assert isinstance(outcome.error, UndecidedError)


class Hasty(Synchronous):
    """Clients that wait for no activation."""

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            h = await node.compute(node.learner.embed(node.batch(k)))
            await node.upload("server", Embedding(node.batch(k), h, round=k))
            await node.compute(node.learner.client_step(node.batch(k), await node.recv("gradient", round=k)))


def test_acts_without_activations_are_not_played_where_clients_wait_for_them() -> None:
    clients = {"select": "all", "activation": {"kind": "poisson", "rate": "9 /s"}}
    scenario = quick({"kind": "synchronous"}, timing={"server": {"compute": "1 s"}, "clients": clients})
    resolved = setting(scenario, "it", data_of(scenario))
    SynchronousRounds(TimedWorld(Synchronous(), resolved, 0))
    with pytest.raises(UndecidedError, match="activations, which the protocol's acts leave out"):
        SynchronousRounds(TimedWorld(Hasty(), resolved, 0))
