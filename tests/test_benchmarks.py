"""Benchmarks run at the sizes that scenarios allow."""

import sys
from pathlib import Path

import pytest

from vflsim.protocols import PROTOCOLS
from vflsim.protocols.vectorisable import Vectorisable
from vflsim.scenario.load import most_clients


@pytest.mark.slow
def test_the_huge_benchmark_of_timing_runs_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is, but with 30 clients."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import timing

    assert most_clients() >= timing.HUGE
    monkeypatch.setattr(timing, "HUGE", 30)
    monkeypatch.setattr(timing, "MANY", 30)
    timing.huge(separate=False)
    *arrays, events = capsys.readouterr().out.splitlines()[-len(timing.RECURRENT) - 2 :]
    names = [f"{name}, alike" for name in timing.RECURRENT] + ["synchronous, differing"]
    for line, name in zip(arrays, names, strict=True):
        assert line.startswith(f"30 clients, 10 rounds, vectorised path, {name}, dedicated")
    assert events.startswith("30 clients, 10 rounds, event path, synchronous, differing, fifo")


def test_some_of_many_clients_have_the_same_tables_on_both_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the benchmark is, but with 40 clients of which 20 take part."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import timing

    monkeypatch.setattr(timing, "HUGE", 40)
    timing.paths()
    assert capsys.readouterr().out.splitlines() == [
        f"20 of 40 clients, {sort}: tables of both paths equal" for sort in ("alike", "differing")
    ]


def test_the_huge_benchmark_covers_every_protocol_with_a_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import timing

    kinds = {
        kind for made in PROTOCOLS for kind in [made.model_fields["kind"].default] if issubclass(made, Vectorisable)
    }
    assert {said["kind"] for said, _ in timing.RECURRENT.values()} == kinds - timing.TOO_MANY_VALUES
