"""Benchmarks run at the sizes that scenarios allow."""

import sys
from pathlib import Path

import pytest

from vflsim.scenario.load import MAX_CLIENTS


def test_the_huge_benchmark_of_timing_runs_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is, but with 30 clients."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import timing

    assert timing.HUGE <= MAX_CLIENTS
    monkeypatch.setattr(timing, "HUGE", 30)
    timing.huge()
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith("30 clients, 10 rounds, vectorised path, dedicated")
    assert second.startswith("30 clients, 10 rounds, event path, fifo")
