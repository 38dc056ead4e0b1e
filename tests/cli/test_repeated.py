"""Options that stand on a command line twice: those that add up do, all others are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["run", "x.yaml", "--seeds", "0:3", "--seeds", "[7]"], "--seeds"),
        (["run", "x.yaml", "--out", "one", "--out", "two"], "--out"),
        (["run", "x.yaml", "--workers", "1", "--workers=2"], "--workers"),
        (["run", "x.yaml", "--path", "event", "--timing-only", "--path", "auto"], "--path"),
        (["check", "x.yaml", "--seeds", "0:1", "--seeds", "0:1"], "--seeds"),
        (["trace", "x", "--protocol", "a", "--protocol", "b"], "--protocol"),
        (["delays", "show", "1 s", "--seed", "1", "--seed", "2"], "--seed"),
        (["data", "get", "mnist", "--to", "a", "--to", "b"], "--to"),
    ],
)
def test_an_option_of_which_only_the_last_would_count_is_refused(
    argv: list[str], option: str, vflsim: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = vflsim(*argv)
    assert (ended.status, ended.out) == (2, "")
    assert f"{option} is given 2 times" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "later", "earlier"),
    [
        (["check", "x", "--set", "a.b=1", "--set", "a.b=2"], "--set a.b=2", "--set a.b=1"),
        (["run", "x", "--set", "a.b=1", "--set", "c=2", "--set", "a={}"], "--set a={}", "--set a.b=1"),
        (["run", "x", "--set", "seeds=[1]", "--seeds", "0:3"], "--seeds 0:3", "--set seeds=[1]"),
        (["analyze", "x", "--set", "a.b=1", "--set", "a.b=null"], "--set a.b=null", "--set a.b=1"),
        (["sweep", "x", "--set", "a.b=1", "--over", "a.b=2,3"], "--over a.b", "--set a.b=1"),
        (["sweep", "x", "--set", "c=1", "--over", "a,c=2,3"], "--over c", "--set c=1"),
        (["tune", "x", "--set", "c=1", "--over", "a,c=2,3"], "--over c", "--set c=1"),
        (["tune", "x", "--in-tuning", "c=1", "--in-tuning", "c=2", "--over", "a=2,3"], "--set c=2", "--set c=1"),
    ],
)
def test_an_override_that_would_undo_an_earlier_one_is_refused(
    argv: list[str],
    later: str,
    earlier: str,
    vflsim: Callable[..., Ended],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x").write_text("name: it\n")
    ended = vflsim(*argv)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {later}: would undo {earlier}\n")


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "x.yaml", "--set", "a={b: 1}", "--set", "a.c=2", "--set", "ab=1", "--set", "a.bc=2"],
        ["run", "x.yaml", "--set", "l.0=null", "--set", "l.0=null"],
        ["run", "x.yaml", "--resume", "--resume", "--set", "a=1", "--set", "b=2"],
        ["plot", "x.yaml", "--kind", "time", "--kind", "rounds"],
        ["analyze", "x.yaml", "--protocol", "a", "--protocol", "b"],
    ],
)
def test_switches_and_options_that_add_up_may_be_repeated(
    argv: list[str], vflsim: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = vflsim(*argv)
    assert "x.yaml" in ended.err  # which is not there
    assert "times" not in ended.err
