"""Worked cases of the vectorised path: rounds by hand, ties, cut-off bytes, and what only events can tell."""

from collections import Counter
from typing import Any

import pytest
from both_paths import assert_same_bytes, quick
from recurrent_worlds import metered, world
from thorough import is_thorough
from tiny_worlds import data_of, metrics, rounds

from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.protocols import PROTOCOLS
from vflsim.simulation.vectorised import UndecidedError, obstacles, run_vectorised

MANY = 10_000 if is_thorough() else 2_000
SYNCHRONOUS = {"kind": "synchronous"}
CANCEL = {"kind": "t_synchronous", "t": 2, "cancel": True}
FASTEST = {"kind": "ignore", "fastest": 2}

# Embedding 2 s, upload m s (m = 1 … 4), server's step 1 s, clients' steps 2 s; links take no time.
SLOW = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "m s"}}


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


@pytest.mark.parametrize("protocol", [CANCEL, FASTEST])
def test_ties_favour_the_first_clients(protocol: dict[str, Any]) -> None:
    timing = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "3 s"}}
    outcome = assert_same_bytes(quick(protocol, timing=timing, stop={"rounds": 80}, evaluate={"every": "3 s"}))
    assert rounds(outcome)["used"][0].tolist() == [1, 2]


@pytest.mark.sampled(1)
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
            "a message arrives as its client begins",
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


def test_laws_by_operation_are_left_to_the_event_path() -> None:
    mixed = {"kind": "by_operation", "operations": {"embed": "2 ms"}, "others": {"kind": "flops", "rate": "1 MFLOPS"}}
    [problem] = obstacles(quick(SYNCHRONOUS, timing={"clients": {"select": "all", "compute": mixed}}), "it")
    assert "by_operation" in problem.what
    assert problem.remedy == "leave out --path vectorised"


WORLDS, THOROUGH, GROUP = 100, 2000, 20
FEWEST = {world: 0.8, metered: 0.5}
"""The share of a group of worlds in which arrays decide: few have ties that only the event path can tell apart."""
CASES = [
    *((world, first) for first in range(0, THOROUGH if is_thorough() else WORLDS, GROUP)),
    *((metered, first) for first in range(0, THOROUGH // 2 if is_thorough() else 40, GROUP)),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("drawn", "first"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_random_worlds_have_the_same_bytes_on_both_paths(drawn: Any, first: int) -> None:
    told = Counter[str]()
    for number in range(first, first + GROUP):
        scenario = drawn(number)
        if drawn is metered and obstacles(scenario, "it"):
            told["refused"] += 1
            continue
        try:
            outcome = assert_same_bytes(scenario, number)
        except UndecidedError as error:
            told[str(error)] += 1
        except AssertionError as difference:
            raise AssertionError(f"{drawn.__name__}({number}) differs") from difference
        else:
            told["same" if drawn is world or "energy_by_party" in outcome.extra else "silent"] += 1
    assert told["same"] >= FEWEST[drawn] * GROUP, told


def test_the_worlds_have_every_kind() -> None:
    drawn = {world(number).protocols["it"].protocol.kind for number in range(WORLDS)}
    ends_by_itself = {"few_shot", "secureboost"}  # with a last exchange or tree: arrays know an end of stop.rounds
    assert drawn == {each.model_fields["kind"].default for each in PROTOCOLS} - ends_by_itself


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
