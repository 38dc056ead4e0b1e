"""One run from its beginning to its folder: what stands beside it meanwhile is gone once it is written."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import tiny

from vflsim.errors import ResultsError
from vflsim.results.store.write import write_run
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import RunOptions


def hidden(folder: Path) -> list[Path]:
    return [*folder.rglob(".*")]


def leave_a_checkpoint(out: Path) -> Path:
    place = out / "synchronous" / ".seed-0.checkpoint"
    place.mkdir(parents=True)
    (place / "000001.json").write_text("{}")
    return place


@pytest.mark.parametrize("resume", [True, False])
def test_checkpoints_of_a_run_that_is_written_go_whoever_left_them(resume: bool, tmp_path: Path) -> None:
    scenario = tiny("synchronous", stop={"rounds": 3})
    run_study(scenario, tmp_path)
    leave_a_checkpoint(tmp_path)
    run_study(scenario, tmp_path, options=RunOptions(resume=resume, checkpoint_every=None))
    assert hidden(tmp_path) == []


def test_ctrl_c_while_a_run_is_written_ends_the_study_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[StudyRun] = []

    class Noting(Watcher):
        def ended(self, stage: StudyRun, report: Report) -> None:
            ended.append(stage)

    def interrupted(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        write_run(*args)

    monkeypatch.setattr("vflsim.studies.runs.spec.write_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(tiny("synchronous", seeds=[0, 1], stop={"rounds": 3}), tmp_path, watcher=Noting())
    assert [stage.seed for stage in ended] == [0]
    assert (tmp_path / "synchronous" / "seed-0" / "run.json").is_file()
    assert hidden(tmp_path) == []


def test_a_folder_that_is_removed_meanwhile_can_be_read_in_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"

    class Removing(Watcher):
        def began(self, stage: StudyRun) -> None:
            if stage.seed == 1:
                shutil.rmtree(out)

    scenario, alone = tiny("synchronous", seeds=[0, 1], stop={"rounds": 3}), RunOptions(together=None)
    study = run_study(scenario, out, watcher=Removing(), options=alone)
    assert [run.seed for run in study.results.runs] == [1]


def test_a_study_that_wrote_nothing_leaves_no_empty_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(place: Path, *_: Any) -> None:
        (place.parent / ".seed-0.checkpoint").mkdir(parents=True)
        raise ResultsError("cannot be written: no space", str(place))

    monkeypatch.setattr("vflsim.studies.runs.spec.write_run", full)
    with pytest.raises(ResultsError, match="no space"):
        run_study(tiny("synchronous", stop={"rounds": 3}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
