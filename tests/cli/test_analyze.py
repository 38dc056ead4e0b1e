"""``vflsim analyze``: one table of numbers, the formulas behind them, LaTeX on request."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended

from vflsim.cli import main

SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 100, test_fraction: 0.2}
partition: {clients: 4, by: columns}
models:
  client: {kind: linear, embedding: 6}
  aggregate: mean
  server: {kind: linear}
training:
  batch: 20
  client_optimizer: {kind: sgd, lr: 0.2}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  clients: {select: all, upload_delay: {kind: exponential, mean: 2}}
protocols:
  wait: {kind: synchronous}
  drop: {kind: ignore, fastest: 2}
  first: {kind: t_synchronous, t: 2, cancel: true}
stop: {rounds: 10}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "tiny.yaml"
    place.write_text(SCENARIO)
    return place


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["vflsim", "analyze", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert ended.value.code == 0, captured.err
    return captured.out


def test_numbers_formulas_and_reasons(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(monkeypatch, capsys, str(path))
    assert "4.1667" in text, "2 H_4"
    assert "1.1667" in text, "2 (H_4 − H_2)"
    assert "0.28" in text, "their ratio"
    assert "E(T) = 2*harmonic(4)" in text
    assert "F_(4)(x) = F(x)**4" in text
    assert "clients 1–4: exponential(mean 2) s" in text
    assert "before it joins again" in text
    assert "simulated rounds" in text


def test_overrides_and_the_choice_of_a_protocol(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(
        monkeypatch, capsys, str(path), "--protocol", "wait", "--set", "timing.clients.upload_delay.mean=20 s"
    )
    assert "41.667" in text
    assert "drop" not in text


def test_latex_alone(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(monkeypatch, capsys, str(path), "--latex")
    assert r"\begin{align*}" in text
    assert r"F^{4}{\left(x \right)}" in text
    assert "% round duration: none: a dropped client finishes" in text
    outside = [line for line in text.splitlines() if not line.startswith((" ", "%", "\\"))]
    assert outside == []


def test_an_unknown_protocol_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["vflsim", "analyze", str(path), "--protocol", "wiat"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code != 0
    assert "wait" in capsys.readouterr().err


TRACE = {str(n): {"active": [1.0 * n], "inactive": [5.0 + n], "finish_time": 20.0} for n in range(1, 6)}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of five clients."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACE), encoding="utf-8")
    return path


def test_the_file_is_a_preset_that_a_scenario_takes(vflsim: Callable[..., Ended], trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "timing.yaml"
    ended = vflsim("timing", trace, "--clients", "5", "--interrupted", "lost", "--out", out)
    assert ended.status == 0
    assert "5 clients: 1, 2, 3, 4, 5" in ended.out
    words = ("--set", "timing=null", "--set", f"timing.preset={out}", "--set", "stop={rounds: 3}")
    checked = vflsim("check", "timing/outages", *words, "--protocol", "async", "--quick")
    assert checked.status == 0, checked.err


def test_without_out_the_timing_is_printed(vflsim: Callable[..., Ended], trace: Path) -> None:
    ended = vflsim("timing", trace, "--clients", "2,1")
    assert "select: 2" in ended.out
    assert "down: [[0.0, 2.0], [7.0, 20.0]]" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "a.txt"), "is no YAML file"),
        (("--median", "0"), "more than 0"),
        (("--median", "inf"), "inf ms"),
        (("--clients", "0"), "1 to 999,999,999"),
        (("--clients", "9" * 5000), "999999999…"),
        (("--clients", "1,1"), "client '1' stands twice"),
        (("--clients", "a,,b"), "names with commas"),
        (("--clients", "9"), "has 5 clients"),
        (("--server", "x"), "which has hosts"),
    ],
)
def test_mistakes_are_named(vflsim: Callable[..., Ended], trace: Path, words: tuple[str, ...], said: str) -> None:
    ended = vflsim("timing", trace, *words)
    assert ended.status == 2
    assert said in ended.err
