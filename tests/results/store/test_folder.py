"""One process at a time in a results folder, and no trace of that afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vflsim.errors import ResultsError
from vflsim.results.store.folder import LOCK, locked

HOLD = """
import sys, time
from vflsim.results.store.folder import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_folder_is_made_locked_and_removed_again_if_nothing_is_in_it(tmp_path: Path):
    out = tmp_path / "deep" / "out"
    with locked(out):
        assert names(out) == {LOCK}
    assert names(tmp_path) == set()


def test_a_folder_with_content_or_that_was_there_stays_without_the_lock(tmp_path: Path):
    with locked(tmp_path / "out"):
        (tmp_path / "out" / "scenario.yaml").write_text("name: a\n")
    assert names(tmp_path / "out") == {"scenario.yaml"}
    (tmp_path / "empty").mkdir()
    with locked(tmp_path / "empty"):
        pass
    assert names(tmp_path) == {"out", "empty"}


def test_who_comes_second_is_refused_with_the_number_of_the_first(tmp_path: Path):
    with locked(tmp_path / "out"):
        refused = pytest.raises(ResultsError, match=rf"in use by another process, number {os.getpid()}\b")
        with refused as caught, locked(tmp_path / "out"):
            pass
        assert "choose another --out" in caught.value.remedy
        assert names(tmp_path / "out") == {LOCK}
        with locked(tmp_path / "elsewhere"):
            pass
    with locked(tmp_path / "out"):
        pass


@pytest.mark.slow
def test_a_lock_goes_with_its_process_however_that_ends(tmp_path: Path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ResultsError, match=rf"number {process.pid}\b"), locked(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()
    assert names(tmp_path) == {LOCK}
    with locked(tmp_path):
        pass
    assert names(tmp_path) == set()


def test_a_place_that_cannot_be_a_folder_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file/out: cannot be written"), locked(tmp_path / "file" / "out"):
        pass
