"""What ``check`` and ``run`` say of the data: the task, its classes, the batch, and what is odd about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import BASE, raw, run, tiny

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.describe import described, rows_by_class
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.study import run_study

GUESSED = " (guessed from the labels; data.task says otherwise)"
FEW = ["a"] * 20 + ["b"] * 16 + ["c"] * 4


def lines(folder: Path, labels: list[Any], **changes: Any) -> list[str]:
    """What is said of 40 or more rows with these labels, 80 % of which train."""
    rows = [f"{i % 7},{i * i % 5},{i * 3 % 11},{label}" for i, label in enumerate(labels)]
    (folder / "rows.csv").write_text("\n".join(["u,v,w,y", *rows]))
    said = raw(
        partition={"clients": 3, "by": "columns"},
        **{"training__batch": 10, "data": {"file": str(folder / "rows.csv"), "label": "y"}, **changes},
    )
    scenario = load(said)
    return described(scenario, read_and_check(scenario))


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (FEW, f"task: multiclass{GUESSED}, 3 classes; the rarest class, c, has 3 of 32 training rows"),
        ([1, 2, 2, 2] * 10, f"task: binary{GUESSED}, negative 1, positive 2; the rarest class, 1, has 8 of 32"),
        (["yes", "no"] * 20, f"task: binary{GUESSED}, negative no, positive yes; the rarest class, no, has 16 of 32"),
        ([i / 8 for i in range(40)], f"task: regression{GUESSED}, training labels from "),
    ],
)  # fmt: skip
def test_a_guessed_task_is_said(tmp_path: Path, labels: list[Any], task: str) -> None:
    _, said, _ = lines(tmp_path, labels)
    assert said.startswith(task)


def test_a_task_that_the_scenario_says_is_not_called_guessed(tmp_path: Path) -> None:
    data = {"file": str(tmp_path / "rows.csv"), "label": "y", "task": "regression"}
    assert lines(tmp_path, [0, 9] * 20, data=data)[1] == "task: regression, training labels from 0 to 9"


@pytest.mark.parametrize(("replace", "where"), [(False, "on"), (True, "in place of")])
def test_noisy_clients_are_named(replace: bool, where: str) -> None:
    scenario = tiny(data={"name": "digits", "noise": {"select": "2, N", "sd": 1.5, "replace": replace}})
    data, *_ = described(scenario, read_and_check(scenario))
    assert data.endswith(f"at 4 clients; N(0, 1.5²) {where} the features of client 2, 4")


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (10, "batch: 10 of 32 training rows, 4 an epoch, the last of 2"),
        (16, "batch: 16 of 32 training rows, 2 an epoch"),
        (32, "batch: all 32 training rows, 1 an epoch"),
        ("all", "batch: all 32 training rows, 1 an epoch"),
    ],
)
def test_the_batch_that_trains_is_said(tmp_path: Path, batch: int | str, said: str) -> None:
    assert lines(tmp_path, FEW, training__batch=batch)[2:] == [said]


def test_the_batch_of_a_protocol_of_its_own_is_said(tmp_path: Path) -> None:
    own = {"wait": {"kind": "synchronous"}, "full": {"kind": "synchronous", "training": {"batch": "all"}}}
    trees = {**own, "full": {"kind": "secureboost"}}  # which grows a tree from all rows, whatever the batch
    assert lines(tmp_path, FEW, protocols=own)[2] == lines(tmp_path, FEW, protocols=trees)[2]
    assert lines(tmp_path, FEW, protocols=own)[2] == (
        "batch: 10 of 32 training rows, 4 an epoch, the last of 2 (wait); all 32 training rows, 1 an epoch (full)"
    )


def test_many_whole_numbers_are_said_to_be_taken_for_classes(tmp_path: Path) -> None:
    *_, warning = lines(tmp_path, [*range(21)] * 10)
    assert warning.startswith("warning: the labels are 21 different whole numbers, and are taken for classes")
    assert "data.task: regression" in warning
    assert not any(line.startswith("warning") for line in lines(tmp_path, [*range(20)] * 10))


@pytest.mark.parametrize(
    ("split", "kind", "meaning"),
    [("train", "training", "no model can learn them"), ("test", "test", "no test metric sees them")],
)
def test_classes_absent_from_a_split_are_a_warning(split: str, kind: str, meaning: str) -> None:
    scenario = load(raw())
    data = ScenarioData(scenario)
    assert not any(line.startswith("warning") for line in described(scenario, data))
    loaded = data.of(scenario.training)
    without = loaded.labels[split] % 8  # 8 and 9 become 0 and 1
    data.shelf._kept[data._key(scenario.training)] = replace(loaded, labels={**loaded.labels, split: without})
    (warning,) = [line for line in described(scenario, data) if line.startswith("warning")]
    assert warning.startswith(f"warning: 2 of 10 classes (8, 9) without {kind} rows: {meaning}; look at data.split")
    assert rows_by_class(data.of(scenario.training), split)[8:] == [0, 0]


def test_a_study_tells_its_watcher_before_anything_is_written(tmp_path: Path) -> None:
    class Told(Watcher):
        lines: tuple[str, ...] = ()

        def described(self, lines: Any) -> None:
            assert not (tmp_path / "out").exists()
            self.lines = tuple(lines)

    told = Told()
    run_study(load(raw(stop={"rounds": 2})), tmp_path / "out", timing_only=True, watcher=told)
    assert [line.partition(":")[0] for line in told.lines] == ["data", "task", "batch"]


def test_a_run_says_how_many_rows_each_split_has() -> None:
    scenario = tiny(stop={"rounds": 2}, data={**BASE["data"], "validation_fraction": 0.1})
    assert run(scenario).info.rows == {"train": 90, "validation": 180, "test": 180}
    assert run(scenario, timing_only=True).info.rows == {}


def test_a_batch_larger_than_the_data_of_a_coded_protocol_is_one_problem() -> None:
    scenario = tiny({"code": {"kind": "fedvs", "K": 1}}, training__batch=100)
    with pytest.raises(ScenarioError, match=r"^training\.batch: a batch of 100 rows .* 90 training rows\n  allowed: 1"):
        read_and_check(scenario)


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ({"compute": 5}, "timing.clients.compute: 5 is 5 s"),
        ({"compute": 0.5, "upload_delay": 2, "link": {"latency": 30}}, "timing.clients.link.latency: 30 is 30 s"),
        ([{"select": "all", "compute": "5 ms"}, {"select": 1, "compute": 7}], "timing.clients.compute: 7 is 7 s"),
    ],
    ids=str,
)
def test_durations_without_a_unit_are_said_to_be_seconds(clients: Any, said: str, tmp_path: Path) -> None:
    found = [line for line in lines(tmp_path, FEW, timing={"clients": clients}) if line.startswith("times without")]
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "clients", [{"compute": "5 s"}, {"compute": 0}, {"upload_delay": {"kind": "exponential", "mean": "2+m"}}], ids=str
)
def test_nothing_is_said_of_durations_with_a_unit_zeros_and_formulas(clients: Any, tmp_path: Path) -> None:
    assert not [line for line in lines(tmp_path, FEW, timing={"clients": clients}) if "without a unit" in line]


@pytest.mark.parametrize(
    ("timing", "parties"),
    [
        ({}, "server, client-1, client-2, client-3"),
        ({"server": {"compute": 0}}, "client-1, client-2, client-3"),
        ({"server": {"compute": "1 ms"}, "clients": [{"select": "1..2", "compute": 0}]}, "client-3"),
        ({"clients": {"compute": "1 ms"}}, "server"),
        ({"server": {"compute": 0}, "clients": {"compute": 0}}, ""),
    ],
    ids=str,
)
def test_computations_without_a_duration_are_said_to_take_none(tmp_path: Path, timing: Any, parties: str) -> None:
    found = [line for line in lines(tmp_path, FEW, timing=timing) if line.startswith("computations take 0 s")]
    assert found == [f"computations take 0 s at {parties}: `compute` is left out of their timing"] * bool(parties)


@pytest.mark.parametrize("labels", [["1", "01", "2"], ["1", "10", "2"]], ids=str)
def test_one_number_in_several_spellings_is_a_warning(tmp_path: Path, labels: list[str]) -> None:
    data = {"file": str(tmp_path / "rows.csv"), "label": "y"}
    found = [line for line in lines(tmp_path, labels * 14, data=data) if "several spellings" in line]
    assert [line[:30] for line in found] == ["warning: the label has '01', '1'"[:30]] * ("01" in labels)
