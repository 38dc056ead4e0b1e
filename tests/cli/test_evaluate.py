"""``vflsim evaluate``, as a user calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from attacked_runs import finished

from vflsim.attacks import ATTACKS

QUICK = ("--set", "pgd.steps=2", "--set", "pgd.omega=1,2", "--set", "pgd.step=0.5")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    coarse = {"kind": "synchronous", "codec": {"kind": "scalar_quantiser", "bits": 3}}
    entries = {"wait": {"kind": "synchronous"}, "coarse": coarse, "alone": {"kind": "centralised"}}
    return finished(entries, tmp_path_factory.mktemp("evaluate") / "tiny").folder


def test_it_prints_tables_and_writes_tables_and_figures(vflsim: Callable, results: Path) -> None:
    ended = vflsim("evaluate", results, "--attack", "pgd", *QUICK)
    assert ended.status == 0, ended.err
    folder = results.with_name("tiny-evaluated")
    names = ["pgd.parquet", "evaluate.md", "tables.json", "pgd.png"]
    assert ended.out.rstrip().splitlines()[-4:] == [str(folder / name) for name in names]
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    assert "PGD on one client's upload" in ended.out
    assert "coarse, 2, 0.5" in ended.out
    assert "left out: pgd of alone: all features are at the server" in ended.out
    assert set(pd.read_parquet(folder / "pgd.parquet")["omega"]) == {1, 2}


@pytest.mark.slow
def test_without_an_attack_all_that_apply_are_made(vflsim: Callable, results: Path, tmp_path: Path) -> None:
    more = ("--set", "smoothing.samples=20", "--set", "attribution.rows=5", "--out", tmp_path / "out")
    ended = vflsim("evaluate", results, "--protocol", "coarse", *QUICK, *more, "--set", "attribution.reference=wait")
    assert ended.status == 0, ended.err
    tables = {path.stem for path in (tmp_path / "out").glob("*.parquet")}
    assert {"pgd", "smoothing", "attribution"} <= tables <= set(ATTACKS)


def test_the_folder_stands_beside_results_that_are_named_by_a_dot(
    vflsim: Callable, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    ended = vflsim("evaluate", ".", "--attack", "pgd", "--protocol", "wait", *QUICK)
    assert str(results.with_name("tiny-evaluated") / "pgd.parquet") in ended.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--attack", "pdg"), ("there is no attack 'pdg'", "pgd, smoothing, attribution", "did you mean 'pgd'?")),
        (("--protocol", "wiat"), ("there is no protocol 'wiat'", "wait, coarse, alone")),
        (("--seed", 7), ("there is no seed '7'", "allowed: 0")),
        (("--set", "pgd.omega=wide"), ("--set pgd.omega.0", "'wide'")),
        (("--attack", "pgd", "--protocol", "alone"), ("pgd of alone: all features are at the server",)),
        (("--protocol", "alone"), ("nothing could be attacked (pgd of alone: all features",)),
    ],
)
def test_mistakes_end_in_one_message_and_write_nothing(
    vflsim: Callable, results: Path, tmp_path: Path, options: tuple, words: tuple[str, ...]
) -> None:
    ended = vflsim("evaluate", results, *options, "--out", tmp_path / "out")
    assert ended.status == 2
    assert all(word in ended.err for word in words), ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


def test_missing_weights_end_in_one_message(vflsim: Callable, results: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(results, tmp_path / "tiny")
    (tmp_path / "tiny" / "wait" / "seed-0" / "weights.safetensors").unlink()
    ended = vflsim("evaluate", tmp_path / "tiny", "--attack", "pgd", *QUICK)
    assert ended.status == 2
    assert "weights.safetensors" in ended.err
    assert "Traceback" not in ended.err
