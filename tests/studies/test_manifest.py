"""``manifest.json`` under interruptions: a study that was stopped anywhere can go on, and verifies in the end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_worlds import tiny

from vflsim.errors import RunError
from vflsim.results import verify_folder
from vflsim.results.store.manifest import Manifest, ManifestWriter
from vflsim.studies.pool import Study
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, RunOptions

RESUME = RunOptions(resume=True)
PROTOCOLS = {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}}
RUNS = {f"{name}/seed-{seed}/run.json" for name in PROTOCOLS for seed in (0, 1)}
PAGES = {"scenario.yaml", "summary.parquet", "summary.md", "closed_forms.parquet"}


class Killed(BaseException):
    """Ends a process where it stands: nothing that would still tidy up may do so."""


class Listening(Watcher):
    """Remembers what began, and what was told on resuming."""

    def __init__(self) -> None:
        self.began_: list[tuple[str, int]] = []
        self.told: list[str] = []

    def resumed(self, what, finished, total, differences) -> None:
        self.told += differences

    def began(self, stage: StudyRun) -> None:
        self.began_.append((stage.protocol, stage.seed))


def study(out: Path, options: RunOptions = DEFAULT_OPTIONS, watcher: Watcher | None = None) -> Study:
    scenario = tiny(PROTOCOLS, seeds=[0, 1], stop={"rounds": 3})
    return run_study(scenario, out, options=options, watcher=watcher)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study(folder := tmp_path_factory.mktemp("manifest") / "made")
    return folder


@pytest.fixture
def out(_made: Path, tmp_path: Path) -> Path:
    """A folder with the finished study."""
    return Path(shutil.copytree(_made, tmp_path / "out"))


def listed(out: Path) -> set[str]:
    manifest = Manifest.read(out)
    return set() if manifest is None else set(manifest.files)


def bytes_of(out: Path) -> dict[str, bytes]:
    """What is the same whenever the study is carried out."""
    found = (path for path in sorted(out.rglob("*")) if path.suffix in (".parquet", ".safetensors", ".yaml", ".md"))
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in found}


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch, when: str = "add") -> None:
    """The process dies when the ``number``-th run (from 0) stands in its place and is to be listed."""
    calls, real = iter(range(1000)), getattr(ManifestWriter, when)

    def die(writer: ManifestWriter, *run: object) -> None:
        if next(calls) == number:
            for name in ("add", "written", "finish", "undo"):
                monkeypatch.setattr(ManifestWriter, name, die_again)
            monkeypatch.setattr("vflsim.studies.pool.withdraw", die_again)
            raise Killed
        real(writer, *run)

    def die_again(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(ManifestWriter, when, die)


def test_the_manifest_lists_every_run_and_page_once_a_study_has_ended(out: Path) -> None:
    assert listed(out) == RUNS | PAGES
    assert verify_folder(out) == []


def test_the_manifest_grows_run_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.results.store.manifest._SHARE", 0)
    seen: list[int] = []

    class Looking(Watcher):
        def ended(self, stage: StudyRun, report: Report) -> None:
            seen.append(len(listed(tmp_path) & RUNS))

    study(tmp_path, watcher=Looking())
    assert seen == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_run_that_a_killed_study_did_not_list_is_kept_and_listed_by_resume(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(tmp_path / "whole")
    with monkeypatch.context() as patch:
        killed_at(number, patch)
        with pytest.raises(Killed):
            study(tmp_path / "out")
    assert any(
        "is not in manifest.json: added, or its study was killed" in problem for problem in after(tmp_path, number)
    )
    watcher = Listening()
    study(tmp_path / "out", RESUME, watcher)
    assert len(watcher.began_) == 4 - (number + 1)
    assert watcher.told == []
    assert verify_folder(tmp_path / "out") == []
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")


def after(tmp_path: Path, number: int) -> list[str]:
    """What is found in a killed study; before the first run was listed there is no manifest to compare with."""
    found = verify_folder(tmp_path / "out")
    missing = [problem for problem in found if "is missing: a run of this scenario" in problem]
    assert len(missing) == 4 - (number + 1)
    if number == 0:
        assert any("manifest.json is missing" in problem for problem in found)
        return ["is not in manifest.json: added, or its study was killed"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_study_killed_while_it_replaces_earlier_runs_accuses_nobody_of_changing_them(
    number: int, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bytes_of(out)
    remove_weights(out)
    with monkeypatch.context() as patch:
        killed_at(number, patch)
        with pytest.raises(Killed):
            study(out)
    assert not any("has changed" in problem for problem in verify_folder(out))
    study(out, RESUME)
    assert verify_folder(out) == []
    assert bytes_of(out) == before
    assert not list(out.glob(".manifest*"))


def remove_weights(out: Path) -> None:
    """Damage all runs, so that a study repeats them in their places."""
    for path in out.rglob("weights.safetensors"):
        path.unlink()


def test_a_study_that_is_interrupted_leaves_what_it_has_not_replaced_listed(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_weights(out)
    before = {name: (out / name).read_bytes() for name in RUNS}

    class Stopping(Watcher):
        def ended(self, stage: StudyRun, report: Report) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(out, watcher=Stopping())
    assert sum((out / name).read_bytes() != before[name] for name in RUNS) == 1
    assert [problem.partition(": ")[2] for problem in verify_folder(out)] == ["weights.safetensors is missing"] * 3


def test_a_study_interrupted_before_its_first_run_leaves_the_manifest_as_it_was(out: Path) -> None:
    remove_weights(out)
    before = (out / "manifest.json").read_bytes()

    class Stopping(Watcher):
        def began(self, stage: StudyRun) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(out, watcher=Stopping())
    assert (out / "manifest.json").read_bytes() == before
    assert not list(out.glob(".manifest*"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wait/seed-1/metrics.parquet", "wait/seed-1 is run again: metrics.parquet has changed"),
        ("wait/seed-1/weights.safetensors", "wait/seed-1 is run again: weights.safetensors has changed"),
        ("wait/seed-1/run.json", "wait/seed-1 is run again: run.json has changed"),
    ],
)
def test_resume_runs_again_what_has_changed_and_says_so(name: str, problem: str, out: Path) -> None:
    before = bytes_of(out)
    (out / name).write_bytes((out / name).read_bytes() + b"\n")
    watcher = Listening()
    study(out, RESUME, watcher)
    assert watcher.began_ == [("wait", 1)]
    (told,) = watcher.told
    assert told.startswith(problem)
    assert bytes_of(out) == before
    assert verify_folder(out) == []


def test_resume_writes_a_damaged_manifest_anew_and_says_so(out: Path) -> None:
    (out / "manifest.json").write_text("{")
    watcher = Listening()
    study(out, RESUME, watcher)
    assert watcher.began_ == []
    (told,) = watcher.told
    assert told.startswith("manifest.json is damaged: ")
    assert verify_folder(out) == []


def test_resume_does_not_vouch_for_runs_without_digests(out: Path) -> None:
    (out / "manifest.json").unlink()
    for name in RUNS:
        page = json.loads((out / name).read_text())
        del page["files"]
        (out / name).write_text(json.dumps(page))
    watcher = Listening()
    study(out, RESUME, watcher)
    assert (watcher.began_, watcher.told) == ([], [])
    assert all("is none of the files that were written here" in problem for problem in verify_folder(out))
    assert len({problem.partition(":")[0] for problem in verify_folder(out)}) == len(RUNS)


def test_a_run_that_diverged_is_listed_too(tmp_path: Path) -> None:
    huge = {"client_optimizer": {"kind": "sgd", "lr": 1e200}}
    done = run_study(tiny({"bad": {"kind": "synchronous", "training": huge}}), tmp_path)
    assert isinstance(done.failures["bad", 0], RunError)
    (problem,) = verify_folder(tmp_path)
    assert problem.startswith("bad/seed-0: the run diverged: ")
