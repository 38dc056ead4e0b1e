"""``plots/as_csv.py`` writes what other scripts print as files."""

import csv
import io
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "plots" / "as_csv.py"
PRINTED = "first\n\n| a | `b` |\n| --- | ---: |\n| x | **1,5** |\n\nsecond\n\n| c |\n|---|\n| y |"


def run(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setattr("sys.argv", ["as_csv.py", *map(str, files)])
    monkeypatch.setattr("sys.stdin", io.StringIO(PRINTED))
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_each_table_becomes_a_file_without_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "one.csv", tmp_path / "two.csv"
    run(monkeypatch, *files)
    rows = [[*csv.reader(file.read_text(encoding="utf-8").splitlines())] for file in files]
    assert rows == [[["a", "b"], ["x", "1,5"]], [["c"], ["y"]]]


def test_every_table_needs_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path / "one.csv")
    assert "2 tables were printed" in capsys.readouterr().err
    assert not (tmp_path / "one.csv").exists()
