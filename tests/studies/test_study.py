"""All runs of a scenario on disk: reproducible byte for byte, and whatever fails does not stop the others."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from tiny_worlds import RANDOM_TIMING, raw, tiny
from torch import Tensor, nn

from vflsim.errors import NonFiniteError, RunError, ScenarioError
from vflsim.protocols import Protocol
from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.studies.runs.progress import StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.world.messages import Embedding, Gradient
from vflsim.world.node import Node

PROTOCOLS = {
    "wait": {"kind": "synchronous"},
    "fastest": {"kind": "ignore", "fastest": 2},
    "t-sync": {"kind": "t_synchronous", "t": 2, "max_staleness": 2},
    "async": {"kind": "asynchronous", "training": {"batches": "own", "dtype": "float32"}},
    "reference": {"kind": "centralised"},
}
EXPECTED = {
    "events": {"metrics", "rounds", "events"},
    "rounds": {"metrics", "rounds"},
    "summary": {"metrics"},
}


def study(names: Iterable[str] = PROTOCOLS, **changes: object):
    changes = {"timing": RANDOM_TIMING, "seeds": [0], "stop": {"rounds": 15}, **changes}
    return tiny({name: PROTOCOLS[name] for name in names}, **changes)


def tables(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("record", ["events", "rounds", "summary"])
def test_the_same_scenario_twice_writes_the_same_bytes(record: str, tmp_path: Path) -> None:
    names = [*PROTOCOLS] if record == "events" else ["t-sync", "async"]
    data = {"name": "digits", "train_rows": 90, "validation_fraction": 0.1}
    scenario = study(names, record=record, data=data)
    for folder in ("one", "two"):
        assert run_study(scenario, tmp_path / folder).failures == {}
    one, two = tables(tmp_path / "one"), tables(tmp_path / "two")
    assert one == two
    assert set(one) == {"closed_forms.parquet", "summary.parquet"} | {
        f"{name}/seed-0/{table}.parquet" for name in names for table in EXPECTED[record]
    }
    for name in names:
        weights = f"{name}/seed-0/weights.safetensors"
        assert (tmp_path / "one" / weights).read_bytes() == (tmp_path / "two" / weights).read_bytes()
    assert verify_folder(tmp_path / "one") == []


@pytest.mark.slow
def test_how_much_is_recorded_changes_nothing_of_what_is(tmp_path: Path) -> None:
    for record in EXPECTED:
        run_study(study(record=record), tmp_path / record)
    everything = tables(tmp_path / "events")
    for record in ("rounds", "summary"):
        for path, content in tables(tmp_path / record).items():
            if path != "summary.parquet":  # which says more the more there is
                assert content == everything[path]


def test_another_seed_writes_other_bytes(tmp_path: Path) -> None:
    run_study(study(seeds=[0, 1]), tmp_path)
    for name in PROTOCOLS:
        for table in EXPECTED["events"] if name != "reference" else ("metrics", "rounds"):
            one, other = (tmp_path / name / f"seed-{seed}" / f"{table}.parquet" for seed in (0, 1))
            if (name, table) != ("wait", "rounds"):
                assert one.read_bytes() != other.read_bytes(), (name, table)


@pytest.mark.slow
@pytest.mark.parametrize("costs_time", [False, True])
def test_timing_only_has_the_rounds_and_events_of_the_full_run(costs_time: bool, tmp_path: Path) -> None:
    scenario = study(evaluate={"every": "4 rounds", "costs_time": costs_time})
    run_study(scenario, tmp_path / "full")
    run_study(scenario, tmp_path / "timing", timing_only=True)
    full, timing = tables(tmp_path / "full"), tables(tmp_path / "timing")
    for name in PROTOCOLS:
        for table in ("rounds", "events"):
            place = f"{name}/seed-0/{table}.parquet"
            assert full[place] == timing[place], place
    assert verify_folder(tmp_path / "timing") == []
    assert verify_folder(tmp_path / "full") == []


def test_a_timing_only_study_that_would_never_end_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    scenario = study(stop={"target": {"test_accuracy": 0.9}})
    with pytest.raises(ScenarioError, match="a timing-only run never reaches"):
        run_study(scenario, tmp_path / "out", timing_only=True)
    assert not (tmp_path / "out").exists()


def test_a_run_that_diverges_is_kept_as_far_as_it_went_and_the_others_go_on(tmp_path: Path) -> None:
    huge = {"client_optimizer": {"kind": "sgd", "lr": 1e200}}
    scenario = tiny({"bad": {"kind": "asynchronous", "training": huge}, "good": {"kind": "asynchronous"}})
    done = run_study(scenario, tmp_path)
    assert set(done.failures) == {("bad", 0)}
    error = done.failures["bad", 0]
    assert isinstance(error, NonFiniteError)
    assert "server, server_step, round " in str(error)
    assert " s: the training loss became" in str(error)
    bad, good = done.results.runs
    assert (bad.info.status, good.info.status) == ("diverged", "finished")
    assert bad.info.error == str(error)
    assert len(bad.frame("metrics")) >= 1
    assert len(bad.frame("rounds")) >= 1
    assert bad.has("events")


class Chatty(Protocol):
    """Synchronous for six rounds, more than are tried out, then whatever a test wants."""

    kind: Literal["chatty"] = "chatty"
    then: str = "raise"

    async def server(self, node: Node) -> None:
        for k in range(100):
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            node.record("loudness", round=k, embeddings=len(embeddings))
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

    async def client(self, node: Node) -> None:
        for k in range(100):
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            if node.party == 2 and k == 6 and self.then == "raise":
                raise KeyError("lost")
            if node.party == 2 and k == 6 and self.then == "silence":
                return
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))


def test_a_protocol_of_ones_own_runs_beside_the_others(tmp_path: Path) -> None:
    scenario = tiny("synchronous").with_protocols({"mine": Chatty(then="go on")})
    done = run_study(scenario, tmp_path)
    assert done.failures == {}
    assert done.results.protocols == ("synchronous", "mine")
    one, mine = (tables(tmp_path / name) for name in ("synchronous", "mine"))
    own = "seed-0/loudness.parquet"
    assert own in mine
    assert one == {path: content for path, content in mine.items() if path != own}
    assert verify_folder(tmp_path) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("then", "what"),
    [
        ("raise", r"client-2 at [\d.]+ s: KeyError: 'lost'"),
        ("silence", r"deadlock: .*server waits for .*'embedding' of round 6 from client 2"),
    ],
)
def test_a_protocol_that_breaks_is_reported_with_party_time_and_cause(then: str, what: str, tmp_path: Path) -> None:
    done = run_study(tiny("synchronous").with_protocols({"mine": Chatty(then=then)}), tmp_path)
    error = done.failures["mine", 0]
    assert isinstance(error, RunError)
    with pytest.raises(RunError, match=what):
        raise error
    if then == "raise":
        assert isinstance(error.__cause__, KeyError)
    stored = {run.protocol: run for run in done.results.runs}
    assert stored["mine"].info.status == "failed"
    assert list(stored["mine"].frame("rounds")["round"]) == [*range(6)]
    assert stored["synchronous"].info.status == "finished"


class OnlyTrains(nn.Module):
    """A client model that fails when it is first evaluated, before there is a row of metrics."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int) -> None:
        super().__init__()
        self.map = nn.Linear(feature_shape[0], embedding)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and len(x) > 30:
            raise LookupError("no such row")
        return self.map(x)


def test_a_model_that_fails_in_the_first_evaluation_leaves_empty_tables(tmp_path: Path, monkeypatch) -> None:
    module = ModuleType("models_of_ones_own")
    module.OnlyTrains = OnlyTrains
    monkeypatch.setitem(sys.modules, "models_of_ones_own", module)
    client = {"kind": "module", "path": "models_of_ones_own:OnlyTrains", "embedding": 6}
    done = run_study(tiny("synchronous", models__client=client), tmp_path)
    with pytest.raises(RunError, match=r"client-\d, evaluate, round 0 at 0 s: evaluate failed: no such row"):
        raise done.failures["synchronous", 0]
    (stored,) = done.results.runs
    assert (stored.info.status, len(stored.frame("metrics"))) == ("failed", 0)


def test_protocols_go_one_by_one_with_all_seeds_and_the_watcher_is_told(tmp_path: Path) -> None:
    told: list[tuple] = []

    class Listening(Watcher):
        def began(self, stage: StudyRun) -> None:
            told.append(("began", stage.protocol, stage.seed, stage.number, stage.total))

        def ended(self, stage, outcome) -> None:
            told.append(("ended", stage.protocol, stage.seed, stage.number, stage.total))

        def progressed(self, stage, progress) -> None:
            assert progress.rounds <= 3

    both = {"a": {"kind": "synchronous"}, "b": {"kind": "asynchronous"}}
    run_study(load(raw(both, seeds=[4, 7], stop={"rounds": 3})), tmp_path, watcher=Listening())
    order = [("a", 4, 1, 4), ("a", 7, 3, 4), ("b", 4, 2, 4), ("b", 7, 4, 4)]
    began, ended = ([each[1:] for each in told if each[0] == what] for what in ("began", "ended"))
    assert began == ended == order
