"""Parts of the vectorised path by themselves: draws by column, and the table of rounds."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from both_paths import assert_same_bytes, quick
from protocols_by_kind import KEYS, KINDS
from thorough import is_thorough

from vflsim.recurrences import stages
from vflsim.recurrences.chunk import Chunk, RoundAges
from vflsim.recurrences.stages import Stage
from vflsim.results.store.schema import LISTS_TOGETHER, RunTables, rounds_schema
from vflsim.results.store.write import write_file
from vflsim.simulation.vectorised import UndecidedError, obstacles
from vflsim.simulation.vectorised.run import RoundColumns
from vflsim.streams import BLOCK
from vflsim.timing.capacity import Link
from vflsim.timing.delays import Constant, Delay, Exponential, Mixture, Uniform
from vflsim.timing.sampler import Sampler
from vflsim.world.transfers import Latency

LAWS = [
    Exponential(mean=1),
    None,
    Uniform(low=0, high=1),
    Mixture(weights=(1, 1), parts=(Exponential(mean=1), Uniform(low=0, high=1))),
]


def stage(window: int = 4 * BLOCK) -> tuple[Stage, list[Sampler]]:
    """Three clients that draw and one (the second) that always takes 7 s; and the same draws one by one."""
    made = [Sampler(law, 3, party, "upload") if law is not None else None for party, law in enumerate(LAWS, start=1)]
    constants = np.array([7.0 if law is None else np.nan for law in LAWS])
    one_by_one = [Sampler(law or Constant(value=7), 3, party, "upload") for party, law in enumerate(LAWS, start=1)]
    return Stage(constants, made, window), one_by_one


def test_rows_are_the_draws_of_all_clients() -> None:
    drawn, one_by_one = stage()
    assert drawn.varies
    rows = drawn.rows(2 * BLOCK, 3 * BLOCK)
    for column, sampler in enumerate(one_by_one):
        assert rows[:, column].tolist() == [sampler.draw(index) for index in range(2 * BLOCK, 5 * BLOCK)]


@pytest.mark.parametrize("window", [BLOCK, 4 * BLOCK])
def test_every_client_takes_the_draw_at_its_own_index(window: int) -> None:
    drawn, one_by_one = stage(window)
    pick, index = random.Random(0), np.zeros(len(LAWS), np.int64)
    for _ in range(300):
        expected = [sampler.draw(int(place)) for sampler, place in zip(one_by_one, index, strict=True)]
        assert drawn.take(index).tolist() == expected
        index = index + np.array([pick.choice([0, 1]), pick.choice([0, 3]), 1, pick.choice([0, 0, 150])])


@pytest.mark.parametrize("laws", [LAWS[:1] * 3, [LAWS[0], None, LAWS[0]], LAWS])
def test_a_few_draws_of_very_many_clients_are_the_same(
    laws: list[Delay | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [Sampler(each or Constant(value=7), 3, party, "upload") for party, each in enumerate(laws)]
    made = [Sampler(each, 3, party, "upload") if each is not None else None for party, each in enumerate(laws)]
    drawn = Stage(np.array([7.0 if each is None else np.nan for each in laws]), made)
    monkeypatch.setattr(stages, "WIDE", 1)
    for first in (0, 8, 56, BLOCK, 3 * BLOCK + 16):
        rows = drawn.rows(first, 8)
        assert rows.T.tolist() == [[sampler.draw(first + k) for k in range(8)] for sampler in whole]


def test_constants_need_no_window() -> None:
    fixed = Stage(np.array([1.0, 2.0]), [None, None])
    assert not fixed.varies
    assert fixed.take(np.array([5, 0])).tolist() == [1, 2]
    assert fixed.rows(0, BLOCK).shape == (BLOCK, 2)


@pytest.mark.parametrize("laws", [("1 s", "2 s"), ("d", "2 s"), ("1 s", "d"), ("d", "d")])
def test_latencies_come_in_blocks_as_they_come_one_by_one(laws: tuple[str, str]) -> None:
    links = [
        Link.model_validate({"latency": {"kind": "exponential", "mean": 1} if law == "d" else law}) for law in laws
    ]
    blocks, one_by_one = (Latency(links, 0, 1, 5, fixed=0.25) for _ in range(2))
    drawn = [one_by_one.draw(0.0)[1] for _ in range(3 * BLOCK)]
    assert blocks.blocks(1, 2).tolist() == drawn[BLOCK:]
    assert blocks.constant == (None if "d" in laws else 3.25)


@pytest.mark.parametrize("clients", [1, 5])
@pytest.mark.parametrize("everybody", [True, False])
def test_the_table_of_rounds_has_the_bytes_of_one_made_of_lists(everybody: bool, clients: int, tmp_path: Path) -> None:
    count, numbers = 5 * LISTS_TOGETHER + 77, np.arange(2, 2 + clients, dtype=np.int32)
    used = np.random.default_rng(0).random((count, clients)) < (2 if everybody else 0.5)
    ends, columns, first = np.arange(1.0, count + 1), RoundColumns(numbers), 0
    nothing = np.empty((0, clients))
    ages = RoundAges(*np.zeros((2, 0, 3), np.int64))
    while first < count:
        some = slice(first, min(first + 700, count))
        members = None if everybody else used[some]
        chunk = Chunk(first, ends[some], ends[some], members, nothing, (), (), ages, ordered=True)
        columns.add(chunk, len(chunk.ends))
        first += 700
    lists = {
        "round": list(range(count)),
        "start_s": [0.0, *ends[:-1].tolist()],
        "end_s": ends.tolist(),
        "used": pa.array([numbers[row].tolist() for row in used], pa.list_(pa.int32())),
        "fresh": pa.array([numbers[row].tolist() for row in used], pa.list_(pa.int32())),
        "missing": pa.array([numbers[~row].tolist() for row in used], pa.list_(pa.int32())),
    }
    made, plain = (RunTables(_metrics(), each) for each in (columns.columns(None), lists))
    assert made == plain
    assert made.rounds is not None
    assert made.rounds.schema == rounds_schema(())
    assert made.rounds["used"].num_chunks > 1
    one, other = (write_file(tmp_path / name, each.rounds) for name, each in (("made", made), ("plain", plain)))
    assert one.read_bytes() == other.read_bytes()


def _metrics() -> dict[str, list[float]]:
    from vflsim.results.store.schema import metrics_schema

    return {field.name: [0.0] if pa.types.is_floating(field.type) else [0] for field in metrics_schema([])}


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


@pytest.mark.sampled(8)
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


@pytest.mark.sampled(2)
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
