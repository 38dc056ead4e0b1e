"""Every kind runs on a device that is not the CPU; the host reads only what the documentation names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import device_rehearsal
import pytest
import torch
from device_rehearsal import Rehearsal
from pages import ROOT
from protocols_by_kind import KINDS, PARTS
from thorough import is_thorough
from tiny_worlds import data_of, tiny
from torch import Tensor

from vflsim.learning.batches import Batch
from vflsim.learning.learners.graphs import KeptGraph
from vflsim.learning.tasks import task_of
from vflsim.protocols.vim.admm import proximal
from vflsim.simulation.programs import TrainedRun, timed, trained
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.vocabulary.execution_options import Execution

JOINING = 40
"""Launches a round that runs side by side may add to those of one, however many they are: they join their rows."""
ROUNDS, EVERY = (6, 3) if is_thorough() else (4, 2)
EVALUATION = {"vocabulary/metrics.py", "learning/execution/operations.py"}
SET_UP = {"learning/learners/inputs.py"}
END = {"simulation/run.py"}
IN_ROUNDS = {
    "learning/learners/releases.py": "blinded uploads",
    "learning/privacy/blinding.py": "blinded uploads",
    "protocols/vim/admm.py": "the z-step",
    "learning/privacy/mechanisms.py": "mechanisms",
    "codecs/round.py": "`binarise`",
    "protocols/few_shot/client.py": "`few_shot`",
}
"""Files that read values in rounds, and what docs/performance.md says who reads."""
TIMED = {
    "ignore-fastest", "ignore-deadline", "t-synchronous-cancel", "t-synchronous-bounded", "asynchronous-bounded",
    "fedvs-partial", "vimsgd-exclude", "fdml-exclude", "fedbcd-sequential",
}  # fmt: skip
"""They compute what another kind does, at other times or with fewer clients."""
BATCHED = [name for name in KINDS if is_thorough() or name not in TIMED]
EAGER = KINDS if is_thorough() else ("synchronous", "asynchronous", "fedvs", "easter", "vimadmm", "c_vfl")


def test_what_reads_in_rounds_is_documented() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    named = page[page.index("In rounds the host waits") :].split("\n\n", 1)[0]
    assert all(word in named for word in IN_ROUNDS.values())


def rehearse(entry: dict[str, Any], *, eager: bool = False) -> tuple[Outcome, Rehearsal]:
    scenario = tiny({"it": entry}, stop={"rounds": ROUNDS}, evaluate={"every": f"{EVERY} rounds"})
    data = data_of(scenario, "it")
    with Rehearsal() as rehearsal:
        outcome = run_protocol(scenario, "it", 0, data, execution=Execution(eager, device="meta"))  # type: ignore[arg-type]
    return outcome, rehearsal


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("model", "aggregate"), [("linear", "mean"), ("mlp", "mean"), ("linear", "concat")])
def test_a_program_reads_nothing_in_rounds(model: str, aggregate: str) -> None:
    def reads(rounds: int) -> Counter[str]:
        end = {"stop": {"rounds": rounds}, "evaluate": {"every": f"{rounds} rounds"}}
        timing = {"network": "dedicated", "server": {"compute": "1 ms"}}
        client = {"kind": model, "embedding": 6, **({"hidden": [5]} if model == "mlp" else {})}
        said = {"record": "rounds", "models__client": client, "models__aggregate": aggregate, "timing": timing}
        scenario = tiny("synchronous", **said, **end)
        with Rehearsal() as rehearsal:
            on_meta = Execution(device="meta")  # type: ignore[arg-type]
            run = timed(scenario, "synchronous", 0, data_of(scenario), on_meta, by_arrays=True)
            ((_, outcome),) = trained([TrainedRun(run)])
        assert isinstance(outcome, Outcome)
        assert not rehearsal.mixed
        return rehearsal.reads

    few, many = reads(3), reads(9)
    assert set(few) <= EVALUATION | SET_UP | END | {"learning/programs/rounds.py", "simulation/programs/training.py"}
    assert many == few


@pytest.mark.parametrize("name", ["synchronous", "asynchronous", "t-synchronous"])
def test_more_runs_side_by_side_launch_no_more_and_read_nothing_in_rounds(name: str) -> None:
    def rehearsed(runs: int, rounds: int) -> Rehearsal:
        end = {"stop": {"rounds": rounds}, "evaluate": {"every": f"{rounds} rounds"}}
        timing = {"network": "dedicated", "server": {"compute": "1 ms"}, "clients": {"compute": "2 ms"}}
        scenario = tiny({"it": KINDS[name]}, record="rounds", timing=timing, training__batch="all", **end)
        data, on_meta = data_of(scenario, "it"), Execution(device="meta")  # type: ignore[arg-type]
        with Rehearsal() as rehearsal:
            many = [TrainedRun(timed(scenario, "it", seed, data, on_meta, by_arrays=False)) for seed in range(runs)]
            assert all(isinstance(outcome, Outcome) for _, outcome in trained(many))
        assert not rehearsal.mixed
        return rehearsal

    launches = []
    for runs in (1, 5, 9):
        many, few = rehearsed(runs, 21), rehearsed(runs, 9)
        assert many.reads == few.reads
        launches.append((many.launches - few.launches) / 12)
    alone, five, nine = launches
    assert alone < 45
    assert five <= alone + JOINING
    assert nine <= five + 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "eager"), [*((name, False) for name in (*BATCHED, *PARTS)), *((name, True) for name in (*EAGER, *PARTS))]
)
def test_every_kind_runs_away_from_the_cpu_and_reads_what_is_documented(name: str, eager: bool) -> None:
    outcome, rehearsal = rehearse({**KINDS, **PARTS}[name], eager=eager)
    assert outcome.error is None
    assert outcome.info.counts["rounds"] == ROUNDS
    assert rehearsal.mixed == []
    assert set(rehearsal.reads) <= EVALUATION | SET_UP | END | set(IN_ROUNDS)
    assert all(rehearsal.reads[each] <= 1 for each in SET_UP)


def test_a_synchronous_run_reads_losses_when_it_evaluates_and_nothing_else() -> None:
    _, rehearsal = rehearse({"kind": "synchronous"})
    rows = 1 + ROUNDS // EVERY
    assert rehearsal.reads == {
        "learning/execution/operations.py": ROUNDS,
        "vocabulary/metrics.py": 2 * rows + 2 * rows * ("validation" in rehearsal.reads),
        "learning/learners/inputs.py": 1,
    }


def test_blinded_uploads_read_as_often_as_documented() -> None:
    _, rehearsal = rehearse(KINDS["synchronous-blinded"])
    uploads = 4 * ROUNDS
    assert rehearsal.reads["learning/learners/releases.py"] == uploads
    assert rehearsal.reads["learning/privacy/blinding.py"] == 2 * uploads


def test_alike_clients_read_once_for_a_mechanism_or_binarised_uploads() -> None:
    times = ROUNDS + 1 + ROUNDS // EVERY  # uploads of rounds, and of evaluations
    for part, file in (("mechanism", "learning/privacy/mechanisms.py"), ("codec-binarise", "codecs/round.py")):
        _, rehearsal = rehearse(PARTS[part])
        assert rehearsal.reads[file] == times


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_the_z_step_reads_as_often_as_documented(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # In every iteration rows are left, one step length is tried, and suits.
    monkeypatch.setattr(device_rehearsal, "LOOPS", (True, True, False) * iterations + (False,))
    row, a = torch.zeros(5, dtype=torch.int64, device="meta"), torch.zeros(5, 3, device="meta")
    with Rehearsal() as rehearsal:
        proximal(task_of("multiclass"), row, a, a, 1.0, a)
    assert rehearsal.reads["protocols/vim/admm.py"] == 2 + 15 * iterations


def test_a_read_in_a_round_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = KeptGraph.take

    def reading(graph: KeptGraph, batch: Batch, gradient: Tensor | None = None) -> Tensor:
        output = take(graph, batch, gradient)
        float(output.sum())
        return output

    monkeypatch.setattr(KeptGraph, "take", reading)
    _, rehearsal = rehearse({"kind": "synchronous"}, eager=True)
    assert not set(rehearsal.reads) <= EVALUATION | SET_UP | END | set(IN_ROUNDS)


def test_mixed_devices_are_found() -> None:
    with Rehearsal() as rehearsal:
        away: Tensor = torch.ones(3, device="meta")
        away.add_(1.0)
        with pytest.raises(RuntimeError, match="device"):
            away + torch.ones(3)
    assert len(rehearsal.mixed) == 1
