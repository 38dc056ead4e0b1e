"""Every number that vflsim writes is held against something: each is damaged in turn, with all digests rewritten."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tampering import relist, rewrite
from tiny_worlds import raw

from vflsim.results.read import Results
from vflsim.results.store.pages import RunInfo
from vflsim.results.verify import problems_of, verify_folder
from vflsim.results.verify.scenario import ByScenario
from vflsim.scenario import load
from vflsim.studies.study import run_study

Change = Callable[[Path], object]
NOISE = {"kind": "gaussian", "clip": 1, "noise_multiplier": 2, "delta": 1e-5}
PROTOCOLS: dict[str, Any] = {
    "table": {"kind": "t_synchronous", "t": 2},
    "noisy": {"kind": "synchronous", "mechanism": NOISE},
    "blind": {"kind": "synchronous", "blinding": {}, "models": {"aggregate": "sum"}},
    "half": {"kind": "synchronous", "codec": "float16"},
}
NAN, INFINITE, NEGATIVE, HUGE = float("nan"), float("inf"), -7, 10**12
FREE = {
    ("metrics", "train_loss", HUGE): "a loss has no upper end",
    ("metrics", "test_loss", HUGE): "a loss has no upper end",
    ("events", "round", HUGE): "protocols number their messages as they like",
    ("events", "drawn_s", HUGE): "of a computation it may be a factor",
    ("energy_by_party", "amount", HUGE): "operations that cost nothing add nothing up",
    ("run.json", "threads", HUGE): "how it was computed, not what; --rerun repeats it",
    ("run.json", "wall_clock_s", HUGE): "a figure of the machine",
    ("run.json", "heavy_tail.draws", HUGE): "it follows from the scenario's delays, which --rerun looks at",
}
"""Damages that verify cannot know for one, each with the reason."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("every") / "study"
    power = {"power": {"idle": "1 W", "compute": "5 W", "radio": "2 W"}}
    timing = raw()["timing"]
    timing = {"server": timing["server"] | power, "clients": [timing["clients"][0] | power, *timing["clients"][1:]]}
    scenario = raw(PROTOCOLS, timing=timing, stop={"rounds": 6}, seeds=[0], evaluate={"every": "2 rounds"})
    assert run_study(load(scenario), folder).failures == {}
    assert verify_folder(folder) == []
    return folder


@pytest.fixture(scope="module")
def scenario(study: Path) -> ByScenario:
    return ByScenario(Results.open(study))


def damaged_columns(table: pa.Table) -> Iterator[tuple[str, float, pa.Table]]:
    """Yield the table with one number replaced, in each column of numbers and in each way."""
    for place, field in enumerate(table.schema):
        whole = pa.types.is_integer(field.type)
        for damage in (NEGATIVE, HUGE) if whole else (NAN, INFINITE, NEGATIVE, HUGE):
            if not (whole or pa.types.is_floating(field.type)):
                continue
            numbers = table.column(place).to_pylist()
            known = [row for row, number in enumerate(numbers) if number is not None and not math.isnan(number)]
            numbers[known[len(known) // 2]] = damage
            yield field.name, damage, table.set_column(place, field, pa.array(numbers, field.type))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("table", ["metrics", "rounds", "events", "energy_by_party"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_number_of_a_table_can_be_any(protocol: str, table: str, study: Path, scenario: ByScenario) -> None:
    run = Results.open(study).run(protocol, 0)
    path = run.folder / f"{table}.parquet"
    whole = path.read_bytes()
    try:
        for column, damage, damaged in damaged_columns(pq.read_table(path, partitioning=None)):
            pq.write_table(damaged, path)
            found = [*problems_of(run, scenario)]
            assert found or (table, column, damage) in FREE, (column, damage)
    finally:
        path.write_bytes(whole)


def numbers_in(page: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every number of a JSON page."""
    items = page.items() if isinstance(page, dict) else enumerate(page) if isinstance(page, list) else ()
    for key, value in items:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield (*at, key)
        yield from numbers_in(value, (*at, key))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", [*PROTOCOLS][1:])
def test_no_number_of_a_page_can_be_any(protocol: str, study: Path, scenario: ByScenario) -> None:
    run = Results.open(study).run(protocol, 0)
    page = json.loads((run.folder / "run.json").read_text())
    places = [at for at in numbers_in(page) if at[0] not in ("files", "seed")]  # digests, and the folder's name
    assert {at[0] for at in places} >= {"counts", "participants", "network", "rows", "conditions"}
    for at in places:
        for damage in (NAN, INFINITE, NEGATIVE, HUGE):
            damaged = deepcopy(page)
            reduce(lambda inside, key: inside[key], at[:-1], damaged)[at[-1]] = damage
            try:
                info = RunInfo.model_validate(damaged)
            except ValidationError:
                continue
            found = [*problems_of(replace(run, info=info), scenario)]
            assert found or ("run.json", ".".join(map(str, at)), damage) in FREE, (at, damage)


def on_page(protocol: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def rewritten(folder: Path) -> None:
        path = folder / protocol / "seed-0" / "run.json"
        page = json.loads(path.read_text())
        change(page)
        path.write_text(json.dumps(page))

    return rewritten


def of_rows(name: str, keep: Callable[[pa.Table], pa.Table]) -> Change:
    return lambda folder: pq.write_table(keep(pq.read_table(folder / name)), folder / name)


def times(column: str, factor: float) -> Change:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[column] = [factor * each for each in columns[column]]

    return lambda folder: rewrite(folder / "closed_forms.parquet", change)


CHANGES: dict[str, tuple[Change, str]] = {
    "77 of 6 rounds": (
        on_page("blind", lambda page: page["blinding"].update(rounds_missing=77)),
        "blind/seed-0: run.json: blinding.rounds_missing is 77, and must be 0",
    ),
    "more saturated than sent": (
        on_page("half", lambda page: page["codec"].update(saturated=10**9, parties={"client-1": 10**9})),
        "half/seed-0: run.json: codec.elements is",
    ),
    "saturated by nobody": (
        on_page("half", lambda page: page["codec"].update(saturated=3)),
        "run.json: codec.saturated is 3, and must be 0",
    ),
    "as many parties as there are bytes": (
        on_page("half", lambda page: page["network"]["up"][0].__setitem__(1, 10**12)),
        "run.json: network is ",
    ),
    "more releases": (
        on_page("noisy", lambda page: page["privacy"].update(releases=1)),
        "run.json: privacy.epsilon_run is ",
    ),
    "a step without a loss": (
        lambda folder: rewrite(
            folder / "half/seed-0/metrics.parquet", lambda columns: columns["train_loss"].__setitem__(2, NAN)
        ),
        "train_loss is nan, and must be a number: there were steps since the row before",
    ),
    "a step without an age": (
        lambda folder: rewrite(
            folder / "table/seed-0/metrics.parquet", lambda columns: columns["row_age_max"].__setitem__(2, NAN)
        ),
        "row_age_max is nan, and must be a number",
    ),
    "half of the closed forms": (
        of_rows("closed_forms.parquet", lambda table: table.slice(0, table.num_rows // 2)),
        "closed_forms.parquet: the ",
    ),
    "closed forms of one protocol": (
        of_rows("closed_forms.parquet", lambda table: table.filter(pa.compute.equal(table["protocol"], "noisy"))),
        "closed_forms.parquet: the round_duration of half: is missing",
    ),
    "half as likely": (times("cdf", 0.5), "cdf ends at 0."),
    "half as long": (times("x", 0.5), "is not that of the scenario's timing"),
    "a summary without a row": (
        of_rows("summary.parquet", lambda table: table.slice(1)), "summary.parquet has "
    ),
    "another mean": (
        lambda folder: rewrite(folder / "summary.parquet", lambda columns: columns["mean"].__setitem__(3, 0.125)),
        "summary.parquet, row 3 (",
    ),
}  # fmt: skip


TOGETHER = (
    ("77 of 6 rounds", "more saturated than sent", "more releases", "a step without an age", "half as likely"),
    ("saturated by nobody", "half as long", "a summary without a row"),
    ("as many parties as there are bytes", "half of the closed forms", "another mean"),
    ("a step without a loss", "closed forms of one protocol"),
)
"""Changes of other files, or of other runs: none hides another."""


def test_every_change_is_tried_once() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(CHANGES)


@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
def test_what_follows_from_other_files_is_computed_again(names: tuple[str, ...], study: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(study, tmp_path / "study"))
    for name in names:
        CHANGES[name][0](copied)
    relist(copied)
    problems = verify_folder(copied)
    for name in names:
        assert any(CHANGES[name][1] in each for each in problems), (name, problems)
    assert not any("has changed" in each for each in problems)
