"""``vflsim explain``, as a user calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from explained_study import EXPLAINED, HEADLESS, said

from vflsim.scenario import load
from vflsim.studies.study import run_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain") / "heads"
    protocols = {"wait": EXPLAINED["wait"], "vimsgd": EXPLAINED["vimsgd"], **HEADLESS}
    run_study(load(said(protocols=protocols, seeds=[0])), folder)
    return folder


@pytest.mark.slow
def test_it_prints_tables_and_writes_tables_and_figures(vflsim: Callable, results: Path) -> None:
    ended = vflsim("explain", results, "--tsne-rows", 10)
    assert ended.status == 0, ended.err
    folder = results.with_name("heads-explained")
    tables = ["clients.parquet", "planes.parquet", "explain.md", "tables.json"]
    names = [*tables, "importance.png", "noisy_test.png", "tsne.png"]
    assert ended.out.rstrip().splitlines()[-7:] == [str(folder / name) for name in names]
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    assert "vimsgd, seed 0" in ended.out
    assert "2 (noisy features)" in ended.out
    assert "left out: perceptron: clients have no linear heads" in ended.out


def test_the_folder_stands_beside_results_that_are_named_by_a_dot(
    vflsim: Callable, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    ended = vflsim("explain", ".", "--protocol", "wait", "--tsne-rows", 0)
    assert str(results.with_name("heads-explained") / "clients.parquet") in ended.out


@pytest.mark.slow
def test_top_writes_a_scenario_that_runs(vflsim: Callable, results: Path, tmp_path: Path) -> None:
    ended = vflsim(
        "explain", results, "--protocol", "vimsgd", "--tsne-rows", 0, "--top", "0.67, 34%", "--out", tmp_path
    )
    assert ended.status == 0, ended.err
    place = tmp_path / "summarised.yaml"
    assert f"vflsim run {place}" in ended.out
    assert not (tmp_path / "tsne.png").exists()
    again = vflsim("run", place, "--out", tmp_path / "again")
    assert again.status == 0, again.err
    for name in ("vimsgd", "vimsgd-top-2", "vimsgd-bottom-2", "vimsgd-top-1", "vimsgd-bottom-1"):
        assert name in again.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--protocol", "vimsdg"), ("there is no protocol 'vimsdg'", "wait, vimsgd, perceptron", "vimsgd")),
        (("--protocol", "perceptron"), ("perceptron: clients have no linear heads", "concat and linear")),
        (("--seed", 7), ("there is no seed '7'", "allowed: 0")),
        (("--top", "many"), ("'many' is not a share of clients", "50%,20%")),
        (("--top", "99%"), ("99 % of 3 clients leaves nobody out",)),
    ],
)
def test_mistakes_end_in_one_message_and_write_nothing(
    vflsim: Callable, results: Path, tmp_path: Path, options: tuple, words: tuple[str, ...]
) -> None:
    ended = vflsim("explain", results, "--tsne-rows", 0, *options, "--out", tmp_path / "out")
    assert ended.status == 2 or ended.status == 1
    assert all(word in ended.err for word in words), ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()
