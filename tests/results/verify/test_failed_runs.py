"""Runs that diverged or failed keep every invariant but those of an end: their tables cannot be changed unseen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tampering import edit, relist, rewrite
from tiny_worlds import BASE, raw

from vflsim.results import verify_folder
from vflsim.scenario import load
from vflsim.studies.study import run_study

LOST = {"select": 1, "availability": {"kind": "failure", "at": "60 ms", "repair": "never", "interrupted": "lost"}}
RUN = "one/seed-0"
FAILING: dict[str, dict[str, Any]] = {
    "diverged": {
        "training__client_optimizer": {"kind": "sgd", "lr": 1e9},
        "training__server_optimizer": {"kind": "sgd", "lr": 1e9},
    },
    "failed": {
        "models__aggregate": "mean",
        "protocols": {"one": {"kind": "synchronous", "blinding": {"missing": "skip"}}},
        "timing": {**BASE["timing"], "clients": [*BASE["timing"]["clients"], LOST]},
    },
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {status: tmp_path_factory.mktemp(status) / "study" for status in FAILING}
    for status, folder in folders.items():
        changes = {"stop": {"rounds": 12}, "evaluate": {"every": "2 rounds"}, **FAILING[status]}
        entries = changes.pop("protocols", {"one": {"kind": "synchronous"}})
        run_study(load(raw(entries, **changes)), folder)
    return folders


@pytest.mark.parametrize("status", FAILING)
def test_an_untouched_run_that_failed_has_no_other_problem(status: str, ended: dict[str, Path]) -> None:
    (problem,) = verify_folder(ended[status])
    assert problem.startswith(f"{RUN}: the run {status}: ")


def cell(table: str, column: str, row: int, new: Any) -> Callable[[Path], None]:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[column][row] = new(columns[column][row])

    return lambda folder: rewrite(folder / RUN / f"{table}.parquet", change)


def count(name: str) -> Callable[[Path], None]:
    return lambda folder: edit(folder / RUN / "run.json", lambda page: page["counts"].update({name: 0}))


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "an accuracy above 1": (cell("metrics", "test_accuracy", 0, lambda _: 1.5), "must be from 0 to 1"),
    "a stranger in a round": (cell("rounds", "used", 0, lambda old: [*old, 99]), "no participants of the run: [99]"),
    "a later start of a round": (cell("rounds", "start_s", 0, lambda old: old + 0.1), "the first starts at"),
    "fewer events": (count("events"), "counts.events is 0"),
    "fewer rounds": (count("rounds"), "counts.rounds is 0"),
    "a byte more": (cell("events", "bytes", -1, lambda old: old + 10**6), "bytes"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("status", FAILING)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_run_that_failed_is_found(status: str, name: str, ended: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ended[status], tmp_path / "study"))
    change, sentence = CHANGES[name]
    change(folder)
    relist(folder)
    problems = verify_folder(folder)
    assert len(problems) > 1
    assert any(sentence in problem for problem in problems[1:]), problems
