"""Worked cases of the vectorised path: ties, nothing but zeros, ends on the very instant, batches of two sizes."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_paths import assert_same_bytes, quick
from thorough import every_pair, in_turn, is_thorough
from tiny_worlds import data_of, metrics, rounds

from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.recurrences import stages
from vflsim.simulation.vectorised import UndecidedError, run_vectorised
from vflsim.simulation.vectorised import run as vectorised

MANY = 10_000 if is_thorough() else 2_000
SYNCHRONOUS = {"kind": "synchronous"}
CANCEL = {"kind": "t_synchronous", "t": 2, "cancel": True}
FASTEST = {"kind": "ignore", "fastest": 2}
DEADLINE = {"kind": "ignore", "deadline": "7 s"}
EXCLUDE = {"kind": "ignore", "exclude": "2"}
CENTRALISED = {"kind": "centralised"}
ALL = {
    "synchronous": SYNCHRONOUS,
    "exclude": EXCLUDE,
    "fastest": FASTEST,
    "deadline": DEADLINE,
    "cancel": CANCEL,
    "centralised": CENTRALISED,
}
OTHERS = {
    "asynchronous": {"kind": "asynchronous"},
    "t-sync": {"kind": "t_synchronous", "t": 2, "first_fill": "upload"},
    "easter": {"kind": "easter"},
    "fedbcd, sequential": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
}
every_protocol = pytest.mark.parametrize("protocol", ALL.values(), ids=ALL)

# Embedding 2 s, upload m s (m = 1 … 4), server's step 1 s, clients' steps 2 s; links take no time.
SLOW = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "m s"}}


INSTANTS = [5, 7, 9, 12, 14, 16, 23, 25]


def test_rounds_worked_by_hand() -> None:
    outcome = assert_same_bytes(quick(SYNCHRONOUS, timing=SLOW, stop={"rounds": 3}))
    assert rounds(outcome)["end_s"].tolist() == [7, 16, 25]  # 2 + 4 + 1, then 2 more for the clients' steps
    assert rounds(outcome)["start_s"].tolist() == [0, 7, 16]
    outcome = assert_same_bytes(quick(FASTEST, timing=SLOW, stop={"rounds": 3}))
    # Clients 1 and 2 make the first round and step until 7 s. Client 3 has done its upload delay at 5 s, hears that the
    # round is over, joins the next at once and is there at 10 s, as is client 1. Then 1 and 3 step until 13 s.
    assert rounds(outcome)["end_s"].tolist() == [5, 11, 17]
    assert [list(used) for used in rounds(outcome)["used"]] == [[1, 2], [1, 3], [1, 2]]


def test_what_is_cut_off_at_the_end_counts_to_the_last_byte() -> None:
    # 60 + 20·6·8 = 1020 bytes, at 4080 bit/s: 2 s from 3 s on for client 1 and from 4, 5, 6 s on for the others
    link = {"up": "4080 bps"}
    timing = {"clients": {"select": "all", "compute": "2 s", "upload_delay": "m s", "link": link}}
    outcome = assert_same_bytes(quick(SYNCHRONOUS, timing=timing, stop={"time": "5.5 s"}))
    assert metrics(outcome)["bytes_up"].iloc[-1] == 1020 + 765 + 255


def test_what_the_gradient_cuts_off_counts_to_the_last_byte() -> None:
    timing = {"clients": {"select": "all", "upload_delay": "m s", "link": {"up": "4080 bps"}}}
    outcome = assert_same_bytes(quick({**CANCEL, "t": 1}, timing=timing, stop={"rounds": 2}))
    # rounds end at 3 and 6 s, when client 2 has sent half of its 1020 bytes, and client 3 is about to begin
    assert rounds(outcome)["end_s"].tolist() == [3, 6]
    assert metrics(outcome)["bytes_up"].iloc[-1] == 2 * 1020 + 2 * 510


@every_protocol
def test_ties_favour_the_first_clients(protocol: dict[str, Any]) -> None:
    timing = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "3 s"}}
    outcome = assert_same_bytes(quick(protocol, timing=timing, stop={"rounds": 80}, evaluate={"every": "3 s"}))
    if protocol in (CANCEL, FASTEST):
        assert rounds(outcome)["used"][0].tolist() == [1, 2]


@every_protocol
def test_only_the_server_takes_time(protocol: dict[str, Any]) -> None:
    for stop in ({"rounds": 20}, {"time": "20 s"}, {"epochs": 2}):
        assert_same_bytes(quick(protocol, timing={"server": {"compute": "1 s"}}, stop=stop))


@every_protocol
def test_one_client(protocol: dict[str, Any]) -> None:
    alone = {**protocol, **{key: 1 for key in ("t", "fastest") if key in protocol}}
    if protocol is EXCLUDE:
        pytest.skip("somebody must be left")
    timing = {
        "server": {"compute": "1 ms"},
        "clients": {"select": "all", "upload_delay": {"kind": "exponential", "mean": "3 ms"}},
    }
    assert_same_bytes(quick(alone, timing=timing, partition={"clients": 1, "by": "columns"}, stop={"rounds": 90}))


@pytest.mark.parametrize(
    ("protocol", "seconds"),
    [
        pytest.param(protocol, seconds, id=f"{name}-{seconds}")
        for (p, (name, protocol)), (s, seconds) in product(enumerate(ALL.items()), enumerate(INSTANTS))
        if is_thorough() or (p + s) % 2 == 0
    ],
)
def test_an_end_on_the_very_instant_of_other_things(protocol: dict[str, Any], seconds: int) -> None:
    timing = {**SLOW, "clients": {**SLOW["clients"], "upload_delay": "m*m s"}} if protocol is CANCEL else SLOW
    assert_same_bytes(quick(protocol, timing=timing, stop={"time": f"{seconds} s"}, evaluate={"every": "1 s"}))


@pytest.mark.parametrize("stop", [{"rounds": 3, "time": "25 s"}, {"rounds": 4, "time": "25 s"}, {"updates": 5}])
def test_two_rules_at_one_instant(stop: dict[str, Any]) -> None:
    assert_same_bytes(quick(SYNCHRONOUS, timing=SLOW, stop=stop, evaluate={"every": "4 updates"}))


@every_protocol
def test_batches_of_two_sizes_take_their_own_flops_and_bytes(protocol: dict[str, Any]) -> None:
    jitter = {"kind": "uniform", "low": 0.5, "high": 1.5}
    timing = {
        "server": {"compute": {"kind": "flops", "rate": "1 MFLOPS"}, "link": {"down": "9 Mbps"}},
        "clients": [
            {"select": "all", "compute": {"kind": "flops", "rate": "1 MFLOPS"}, "link": {"up": "3 Mbps"}},
            {"select": "2..3", "compute": {"kind": "flops", "rate": "2 MFLOPS", "jitter": jitter}},
            {"select": "3..N", "upload_delay": {"kind": "exponential", "mean": "3 ms"}},
        ],
    }
    models = [{"select": "all", "kind": "linear", "embedding": 6}, {"select": "2", "kind": "mlp", "hidden": [4], "embedding": 6}]  # fmt: skip  # noqa: E501
    assert_same_bytes(quick(protocol, timing=timing, models__client=models, training__batch=40, stop={"rounds": 70}))


def test_latencies_of_pairs_and_of_both_links_add_up(tmp_path: Path) -> None:
    matrix = tmp_path / "latencies.csv"
    np.savetxt(matrix, np.arange(25).reshape(5, 5) / 1000, delimiter=",")
    drawn = {"kind": "exponential", "mean": "2 ms"}
    for latency in (drawn, "1 ms"):
        timing = {
            "network": {"kind": "dedicated", "latency": {"file": str(matrix)}},
            "server": {"compute": "1 ms", "link": {"latency": drawn}},
            "clients": {"select": "all", "link": {"latency": latency}},
        }
        for protocol in (SYNCHRONOUS, CANCEL, FASTEST):
            assert_same_bytes(quick(protocol, timing=timing, stop={"rounds": 70}))


@pytest.mark.parametrize(("protocol", "count"), [(SYNCHRONOUS, MANY), (CANCEL, 1000), (FASTEST, 1000)])
def test_thousands_of_rounds(protocol: dict[str, Any], count: int) -> None:
    timing = {
        "server": {"compute": "1 ms"},
        "clients": [
            {"select": "all", "compute": "1 ms", "link": {"up": "10 Mbps", "latency": {"kind": "uniform", "low": 0, "high": "1 ms"}}},  # noqa: E501
            {"select": "2..N", "upload_delay": {"kind": "exponential", "mean": "(9*i) ms"}},
        ],
    }  # fmt: skip
    clients = {"clients": 2 if protocol is SYNCHRONOUS else 3, "by": "columns"}
    outcome = assert_same_bytes(
        quick(protocol, timing=timing, partition=clients, stop={"rounds": count}, evaluate={"every": "500 rounds"}), 7
    )
    assert len(rounds(outcome)) == count


def test_precision_ends_both_paths_at_the_same_round() -> None:
    timing = {"server": {"compute": "1 ms"}, "clients": {"select": "all", "upload_delay": {"kind": "exponential", "mean": "5 ms"}}}  # fmt: skip  # noqa: E501
    outcome = assert_same_bytes(quick(SYNCHRONOUS, timing=timing, stop={"precision": "5 %", "rounds": 5000}))
    assert outcome.info.stop_reason == "precision"


def test_less_is_kept_if_less_is_asked_for() -> None:
    scenario = quick(SYNCHRONOUS, timing=SLOW, stop={"rounds": 3}, record="summary")
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario, "it"))
    assert outcome.tables.rounds is None
    assert metrics(outcome)["round"].tolist() == [0, 3]


@pytest.mark.parametrize(
    ("protocol", "timing", "stop", "what"),
    [
        (SYNCHRONOUS, {"server": {"compute": "0 s"}}, {"rounds": 5}, "a round takes no time"),
        # client 2's embedding is done at 3 s, as it hears that the step was made: has it drawn an upload delay?
        (
            {**CANCEL, "t": 1},
            {
                "server": {"compute": "1 s"},
                "clients": [
                    {"select": "all", "compute": "2 s"},
                    {"select": "2..N", "compute": "3 s", "upload_delay": {"kind": "exponential", "mean": "1 s"}},
                ],
            },
            {"rounds": 5},
            "a gradient arrives as its client begins",
        ),
        # client 2's late embedding arrives at 2.5 s, as client 1 has stepped: do its bytes count?
        (
            {**FASTEST, "fastest": 1},
            {
                "server": {"compute": "0.5 s"},
                "clients": [{"select": "all", "compute": "2.5 s"}, {"select": "1", "compute": "1 s"}],
            },
            {"updates": 1},
            "a message arrives with the last client step",
        ),
        # the gradient of the second round is faster than that of the first
        (
            FASTEST,
            {
                "server": {"compute": "1 ms"},
                "clients": {"select": "all", "link": {"latency": {"kind": "exponential", "mean": "1 s"}}},
            },
            {"rounds": 200},
            "a gradient overtakes the one before it",
        ),
    ],
    ids=["nothing takes time", "drawn or not", "last update", "overtaking"],
)
def test_what_only_the_event_path_can_tell_is_said(
    protocol: dict[str, Any], timing: dict[str, Any], stop: dict[str, Any], what: str
) -> None:
    scenario = quick(protocol, timing=timing, stop=stop)
    outcome = run_vectorised(scenario, "it", 0, data_of(scenario, "it"))
    assert isinstance(outcome.error, UndecidedError)
    assert what in str(outcome.error)
    assert "round " in outcome.error.where
    assert (outcome.info.status, outcome.info.error) == ("failed", str(outcome.error))


@in_turn(
    protocol={**ALL, **OTHERS},
    stop={"few": {"rounds": 10}, "many": {"rounds": 130}, "time": {"time": "3 s"}, "updates": {"updates": 77}},
)
def test_very_many_clients_go_through_parts_of_a_block(
    protocol: dict[str, Any], stop: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With four clients that count as very many: eight rounds at a time, and short windows of draws."""
    monkeypatch.setattr(vectorised, "WIDE", 3)
    monkeypatch.setattr(stages, "WIDE", 3)
    random = {"kind": "exponential", "mean": "(5*m) ms"}
    everybody = {"select": "all", "compute": random, "upload_delay": random, "link": {"latency": random}}
    timing = {"server": {"compute": {"kind": "uniform", "low": "1 ms", "high": "2 ms"}}, "clients": everybody}
    assert_same_bytes(quick(protocol, timing=timing, stop=stop, evaluate={"every": "7 rounds"}))


def test_a_few_clients_of_each_sort_stand_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.tracing.trace.FEW", 4)
    made = []
    init = ClientLearner.__init__

    def counted(self: ClientLearner, parts: ClientParts) -> None:
        made.append(parts.party)
        init(self, parts)

    monkeypatch.setattr(ClientLearner, "__init__", counted)
    entries = [{"select": "all", "kind": "linear", "embedding": 3}, {"select": "3", "kind": "linear", "embedding": 6}]
    models = {"models__client": entries, "models__aggregate": "concat"}
    many = {"clients": 8, "by": "columns"}
    scenario = quick(SYNCHRONOUS, timing=SLOW, stop={"rounds": 3}, partition=many, **models)
    assert run_vectorised(scenario, "it", 0, data_of(scenario)).error is None
    assert set(made) == {1, 2, 3, 4}  # three of one sort, and the only one of the other


LOCAL_STEPS: dict[str, dict[str, Any]] = {
    "c_vfl": {"kind": "c_vfl", "local_steps": 3},
    "ef_vfl, shared": {"kind": "ef_vfl", "local_steps": 2},
    "ef_vfl, private": {"kind": "ef_vfl", "labels": "private", "local_steps": 3},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2, "server_steps": 4},
    "fedbcd, recomputed": {"kind": "fedbcd", "local_steps": 3, "gradients": "recomputed"},
    "vimadmm": {"kind": "vimadmm", "rho": 2, "local_steps": 3},
    "vimadmm_j": {"kind": "vimadmm_j", "rho": 2, "local_steps": 2},
}


@pytest.mark.sampled(7)
@every_pair(
    protocol=LOCAL_STEPS,
    stop={"rounds": {"rounds": 70}, "time": {"time": "50 ms"}, "updates": {"updates": 101}},
    codec={
        "plain": "plain",
        "both ways": {"kind": "by_direction", "up": {"kind": "top_k", "fraction": 0.3}, "down": {"kind": "float16"}},
    },
)
def test_local_steps_count_their_flops_draws_and_bytes(
    protocol: dict[str, Any], codec: Any, stop: dict[str, Any]
) -> None:
    """By FLOPs with jitter, on batches of two sizes, between clients of two widths, with slow further server steps."""
    jitter = {"kind": "lognormal", "median": 1, "sigma": 0.3}
    link = {"up": "3 Mbps", "down": "5 Mbps", "latency": {"kind": "exponential", "mean": "1 ms"}}
    slow = {"kind": "flops", "rate": "2 MFLOPS", "jitter": jitter}
    timing = {"server": {"compute": slow, "link": link}, "clients": {"select": "all", "compute": slow, "link": link}}
    heads = {"models__server": {"kind": "linear", "bias": False}} if protocol["kind"].startswith("vim") else {}
    entries = [{"select": "all", "kind": "linear", "embedding": 3}, {"select": "3", "kind": "linear", "embedding": 6}]
    models = {"models__client": entries, "models__aggregate": "concat", **heads}
    world = {"timing": timing, "training__batch": 20, "codec": codec, "evaluate": {"every": "7 updates"}}
    outcome = assert_same_bytes(quick(protocol, stop=stop, **world, **models))
    assert outcome.info.counts["updates"] > outcome.info.counts["rounds"]
