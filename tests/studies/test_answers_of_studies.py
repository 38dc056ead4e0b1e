"""Answers under deadlines in a study's folder: written by whatever computes a run, covered by digests, read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import raw

from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import RunOptions

SAID: dict[str, Any] = raw(
    {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}},
    evaluate={"deadline": ["8 ms", "20 ms"], "missing": "zeros"},
    seeds=[0, 1],
)
FILES = ("answers.parquet", "arrivals.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study") / "answers"
    run_study(load(SAID), place)
    return place


def test_every_run_has_both_tables_and_their_digests(folder: Path) -> None:
    assert verify_folder(folder) == []
    for protocol in SAID["protocols"]:
        info = json.loads((folder / protocol / "seed-1" / "run.json").read_text())
        assert info["files"].keys() >= {*FILES}
        assert info["files"]["answers.parquet"]["rows"] == 3


@pytest.mark.slow
def test_workers_write_the_same_bytes(folder: Path, tmp_path: Path, warm_workers: None) -> None:
    run_study(load(SAID), tmp_path / "answers", options=RunOptions(workers=2))
    for file in FILES:
        for run in ("wait/seed-0", "async/seed-1"):
            assert (tmp_path / "answers" / run / file).read_bytes() == (folder / run / file).read_bytes()


def test_a_changed_answer_shows(folder: Path, tmp_path: Path) -> None:
    run = folder / "wait" / "seed-0"
    before = (run / "answers.parquet").read_bytes()
    try:
        (run / "answers.parquet").write_bytes(before + b" ")
        problems = verify_folder(folder)
    finally:
        (run / "answers.parquet").write_bytes(before)
    assert any("wait/seed-0: answers.parquet has changed" in each for each in problems)
