"""``vflsim analyze``: one table of numbers, the formulas behind them, LaTeX on request."""

from pathlib import Path

import pytest

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
