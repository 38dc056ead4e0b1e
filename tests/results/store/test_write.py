import errno
import os
import resource
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from toy_runs import toy_run

from vflsim.errors import ResultsError
from vflsim.results import RunInfo, RunTables, run_folder, write_file, write_run
from vflsim.results.store import write as write_module
from vflsim.results.store.folder import clear_leftovers
from vflsim.results.store.write import facts_of

WEIGHTS = {"server.bias": torch.arange(3.0), "client-1.weight": torch.ones(2, 2).t()}
ALL = {"metrics.parquet", "rounds.parquet", "events.parquet", "weights.safetensors", "run.json"}
Toy = tuple[RunTables, RunInfo]


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_run_folder_holds_what_was_handed_over(tmp_path: Path, toy: Toy):
    tables, info = toy
    folder = run_folder(tmp_path, "t-sync", 0)
    write_run(folder, tables, WEIGHTS, info)
    assert folder == tmp_path / "t-sync" / "seed-0"
    assert names(folder) == ALL
    assert names(folder.parent) == {"seed-0"}
    assert RunTables(*(pq.read_table(folder / f"{name}.parquet") for name in ("metrics", "rounds", "events"))) == tables
    page = RunInfo.model_validate_json((folder / "run.json").read_text())
    assert page.model_copy(update={"files": {}}) == info
    assert page.files == {name: facts_of(folder / name) for name in sorted(ALL - {"run.json"})}
    assert page.files["rounds.parquet"].rows == tables.rounds.num_rows
    stored = load_file(folder / "weights.safetensors")
    assert set(stored) == set(WEIGHTS)
    assert all(torch.equal(stored[name], WEIGHTS[name]) for name in WEIGHTS)


@pytest.mark.parametrize(("record", "left_out"), [("rounds", {"events"}), ("summary", {"events", "rounds"})])
def test_record_keeps_less(tmp_path: Path, toy: Toy, record: str, left_out: set[str]):
    write_run(tmp_path / "run", toy[0], WEIGHTS, toy[1], record)
    assert names(tmp_path / "run") == ALL - {f"{name}.parquet" for name in left_out}


def test_the_same_run_twice_gives_the_same_bytes_and_another_seed_others(tmp_path: Path):
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        tables, info = toy_run("async", seed, horizon=10)
        write_run(tmp_path / name, tables, WEIGHTS, info)
    for file in ALL - {"run.json"}:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    for file in ("metrics", "rounds", "events"):
        assert (tmp_path / "one" / f"{file}.parquet").read_bytes() != (
            tmp_path / "other" / f"{file}.parquet"
        ).read_bytes()


def test_tensors_that_share_memory_are_written_one_by_one(tmp_path: Path, toy: Toy):
    shared = torch.arange(6.0)
    write_run(tmp_path / "run", toy[0], {"a": shared[:3], "b": shared}, toy[1])
    assert load_file(tmp_path / "run" / "weights.safetensors")["a"].tolist() == [0, 1, 2]


def test_a_run_of_the_same_name_is_replaced(tmp_path: Path, toy: Toy):
    write_run(tmp_path / "run", toy[0], WEIGHTS, toy[1])
    write_run(tmp_path / "run", toy[0], {}, toy[1], "summary")
    assert names(tmp_path / "run") == ALL - {"rounds.parquet", "events.parquet"}
    assert names(tmp_path) == {"run"}


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_full_disk_leaves_the_old_run_and_nothing_half_written(
    tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch, moment: int
):
    write_run(tmp_path / "run", toy[0], WEIGHTS, toy[1])
    before = {name: (tmp_path / "run" / name).read_bytes() for name in ALL}
    calls = iter(range(1, 100))

    def fsync(handle: int) -> None:
        if next(calls) == moment:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(write_module.os, "fsync", fsync)
    with pytest.raises(ResultsError, match=r"No space left on device") as caught:
        write_run(tmp_path / "run", toy[0], {}, toy[1])
    assert str(tmp_path / "run") in str(caught.value)
    assert caught.value.exit_code == 2
    assert names(tmp_path) == {"run"}
    assert {name: (tmp_path / "run" / name).read_bytes() for name in ALL} == before


def test_a_real_limit_on_file_size_in_the_middle_of_a_table_is_caught(tmp_path: Path, toy: Toy):
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(ResultsError, match="cannot be written"):
            write_run(tmp_path / "run", toy[0], WEIGHTS, toy[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(tmp_path) == set()


def test_a_failed_exchange_puts_the_old_run_back(tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch):
    write_run(tmp_path / "run", toy[0], WEIGHTS, toy[1])
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if ".writing-" in self.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ResultsError, match="Permission denied"):
        write_run(tmp_path / "run", toy[0], {}, toy[1], "summary")
    assert names(tmp_path) == {"run"}
    assert names(tmp_path / "run") == ALL


def test_a_place_that_is_no_folder_is_named(tmp_path: Path, toy: Toy):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="file") as caught:
        write_run(tmp_path / "file" / "run", toy[0], WEIGHTS, toy[1])
    assert caught.value.remedy


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_file(tmp_path / "a.md", "old")

    def replace(*paths: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write_module.os, "replace", replace)
    with pytest.raises(ResultsError, match=r"a\.md"):
        write_file(tmp_path / "a.md", "new")
    assert (tmp_path / "a.md").read_text() == "old"
    assert names(tmp_path) == {"a.md"}


def test_what_a_killed_process_left_is_put_right(tmp_path: Path, toy: Toy):
    out = tmp_path / "out"
    write_run(run_folder(out, "t-sync", 0), *_run(toy))
    dead = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
    os.waitpid(dead, 0)
    (out / "t-sync" / "seed-0").rename(out / "t-sync" / f".seed-0.replaced-{dead}")
    (out / "t-sync" / f".seed-1.writing-{dead}").mkdir()
    (out / "t-sync" / f".seed-2.writing-{os.getppid()}").mkdir()
    clear_leftovers(out)
    assert names(out / "t-sync") == {"seed-0", f".seed-2.writing-{os.getppid()}"}


def _run(toy: Toy) -> tuple[RunTables, dict, RunInfo]:
    return toy[0], WEIGHTS, toy[1]
