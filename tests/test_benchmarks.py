"""Benchmarks run at the sizes that scenarios allow."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from vflsim.protocols import PROTOCOLS
from vflsim.scenario.load import as_scenario, most_clients
from vflsim.studies.study import run_study


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


def test_the_huge_benchmark_covers_every_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import timing

    kinds = {made.model_fields["kind"].default for made in PROTOCOLS}
    assert {
        said["kind"] for said, _ in timing.RECURRENT.values()
    } == kinds - timing.TOO_MANY_VALUES - timing.EVENTS_ALONE


def test_the_benchmark_of_asynchronous_steps_compares_what_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three clients, as many steps each of plain PyTorch, of the learning plane and of ``--eager``: equal weights."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import learning_plane
    import own_pace

    monkeypatch.setattr(learning_plane, "BLOCKS", 1)
    monkeypatch.setattr(learning_plane.Problem, "ROWS", 600)
    own_pace.compare("mlp", 3, 2)
    assert capsys.readouterr().out.startswith("mlp        3 clients, a step of one: plain")
    problem = learning_plane.Problem(3)
    plain = own_pace.Plain(problem, "mlp")
    planes = [learning_plane.LearningPlane(problem, "mlp", eager=eager, table=True) for eager in (False, True)]
    plain.run(9)
    for plane in planes:
        plane.run_asynchronously(9)
        modules = [plane.clients[m + 1].model for m in range(3)]
        for one, other in zip([*plain.models, plain.server], [*modules, plane.server.model], strict=True):
            for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_benchmark_of_easter_compares_what_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four parties, three rounds each of plain PyTorch, of the learning plane and of ``--eager``: equal weights."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import easter_plane
    import learning_plane

    monkeypatch.setattr(learning_plane, "BLOCKS", 1)
    monkeypatch.setattr(learning_plane.Problem, "ROWS", 600)
    easter_plane.compare(4, 1)
    assert capsys.readouterr().out.startswith("   4 parties: plain")
    problem = learning_plane.Problem(4)
    plain = easter_plane.Plain(problem)
    plain.run(3)
    for eager in (False, True):
        plane = easter_plane.Plane(problem, eager=eager)
        plane.run(3)
        parties = [plane.active, *plane.clients.values()]
        for party, nets in zip(parties, plain.nets, strict=True):
            for one, other in zip((party.embedding, party.predictor), nets, strict=True):
                for ours, theirs in zip(one.module.parameters(), other.parameters(), strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_the_benchmark_of_workers_measures_their_memory_and_their_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers on a small scenario: they map data, and take processor time."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import workers
    from tiny_worlds import raw

    found = workers.measure(raw("synchronous", seeds=[0, 1], stop={"rounds": 400}), [], 2)
    assert len(found["starts_s"]) in (1, 2)  # on a busy machine one worker may do both runs before the other starts
    assert min(found["starts_s"]) > 0
    assert 0 < found["most"]["data"] < found["most"]["anonymous"] < found["most"]["pss"]
    assert found["rate"] > 0


TINY = {
    "name": "tiny",
    "data": {"name": "digits", "train_rows": 60},
    "partition": {"clients": 2},
    "models": {"client": {"kind": "linear", "embedding": 4}, "aggregate": "mean", "server": {"kind": "linear"}},
    "training": {
        "batch": 20,
        "client_optimizer": {"kind": "sgd", "lr": 0.2},
        "server_optimizer": {"kind": "sgd", "lr": 0.1},
    },
    "timing": {"clients": {"compute": "2 ms"}},
    "protocols": {"wait": {"kind": "synchronous"}, "first": {"kind": "t_synchronous", "t": 1}},
    "evaluate": {"every": "2 rounds"},
    "stop": {"rounds": 20},
    "seeds": [0, 1],
}


def test_the_benchmark_of_progress_notes_what_was_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import progress

    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps(TINY))
    told = progress.noted(str(file), workers=1)
    assert told["whole"] > 0
    assert len(told["left"]) == len(progress.MOMENTS)
    assert told["left"][-1] is not None  # one of four runs has ended


def test_the_benchmark_of_live_runs_compares_times_to_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study and a copy of it: all that is compared is equal."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    import live_against_simulated

    run_study(as_scenario(TINY), tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "live")
    head, _, *rows, alike, tau = live_against_simulated.targets(tmp_path, 0.2)
    assert "reached 0.2" in head
    assert [row.split("|")[1].strip() for row in rows] == ["`wait`", "`first`"]
    assert all(row.endswith("| 1.000 |") for row in rows)
    assert "have the same order" in alike
    assert tau == "Kendall's τ of all is 1.00."
    none = [*live_against_simulated.targets(tmp_path, 1.01)]
    assert "0, 0 of 2" in none[2]
    assert none[-1].startswith("\n0 of 0 pairs")
