"""Energy that was changed together with its digests: the events add up to another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tampering import relist, rewrite
from tiny_worlds import raw

from vflsim.results import verify_folder
from vflsim.scenario import load
from vflsim.studies.study import run_study

RUN = "it/seed-0"
ENERGY = {"idle": "1 W", "compute": "3 W", "radio": "2 W", "per_byte": "1 uJ"}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clients that crash or pause, and work that is cut short."""
    away = {"kind": "alternating", "up": "30 ms", "down": "5 ms"}
    clients = [
        {"select": "all", "compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "3 ms"}, "power": ENERGY},
        {"select": "all", "link": {"up": "5 Mbps", "down": "5 Mbps", "latency": "1 ms"}},
        {"select": 2, "availability": {**away, "interrupted": "lost"}},
        {"select": 3, "availability": {**away, "interrupted": "resumed"}},
    ]
    timing = {"server": {"compute": "1 ms", "power": {"idle": "9 W"}}, "clients": clients}
    protocol = {"kind": "t_synchronous", "t": 2, "cancel": True}
    scenario = load(raw({"it": protocol}, timing=timing, stop={"rounds": 12}, evaluate={"every": "4 rounds"}))
    folder = tmp_path_factory.mktemp("energy") / "study"
    assert run_study(scenario, folder).failures == {}
    return folder


def test_energy_as_it_was_written_is_sound(untouched: Path) -> None:
    assert verify_folder(untouched) == []


def test_a_message_that_arrives_as_a_round_ends_may_count_on_either_side(tmp_path: Path) -> None:
    link = {"up": "8160 bps", "down": "8160 bps"}  # an embedding moves in 1 s
    clients = [{"select": "all", "compute": "(m) s", "link": link, "power": ENERGY}]
    timing = {"network": "dedicated", "server": {"compute": "1 s"}, "clients": clients}
    said = raw({"it": {"kind": "asynchronous"}}, timing=timing, stop={"rounds": 12}, evaluate={"every": "1 rounds"})
    said["partition"]["clients"] = 3
    assert run_study(load(said), tmp_path / "study").failures == {}
    assert verify_folder(tmp_path / "study") == []


def more(table: str, row: int, **by: float) -> Callable[[Path], None]:
    """More in columns of a row of a table."""

    def change(columns: dict[str, list[Any]]) -> None:
        for column, amount in by.items():
            columns[column][row] += amount

    return lambda folder: rewrite(folder / RUN / f"{table}.parquet", change)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (more("metrics", 1, energy_j=1e-6), "energy_j is 0."),
        (more("rounds", 3, energy_j=1e-6), "energy_j of round 3 is"),
        (more("energy_by_party", 4, seconds=1e-3, joules=3e-3), "seconds of client-1's compute are"),
        (more("energy_by_party", 5, amount=10, joules=1e-5), "amount of client-1's radio are"),
        (more("energy_by_party", 5, joules=1e-5), "joules of client-1's radio are not its powers × its seconds"),
        (more("energy_by_party", 3, watts=0.5), "party 1 draws 1.5 W idle"),
    ],
)
def test_changed_energy_is_found(
    change: Callable[[Path], None], sentence: str, untouched: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(untouched, tmp_path / "study"))
    change(folder)
    relist(folder)
    problems = verify_folder(folder)
    assert any(sentence in problem for problem in problems), problems
