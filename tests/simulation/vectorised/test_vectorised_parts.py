"""Parts of the vectorised path by themselves: draws by column, and the table of rounds."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vflsim.recurrences import stages
from vflsim.recurrences.chunk import Chunk, RoundAges
from vflsim.recurrences.stages import Stage
from vflsim.results.store.schema import LISTS_TOGETHER, RunTables, rounds_schema
from vflsim.results.store.write import write_file
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
