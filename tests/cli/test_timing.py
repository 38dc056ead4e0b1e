"""``vflsim timing``: what it prints, and the file that a scenario takes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended

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
