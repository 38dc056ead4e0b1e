"""What protocols record about values that come later, in whole runs: written, resumed, left out, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from kept_runs import KeptAt, assert_interruptions_change_no_byte, interrupted, whole
from tiny_worlds import WORLDS, data_of, events, metrics, run, same_weights, tiny, world

from vflsim.errors import ProtocolError
from vflsim.learning.execution.operations import Handle
from vflsim.protocols.synchronous import Synchronous
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import run_protocol
from vflsim.world.messages import Gradient
from vflsim.world.node import Node


class Noting(Synchronous):
    """Synchronous, and the server records each step's loss, and what ``norm`` makes of its first gradient."""

    kind: Literal["noting"] = "noting"  # type: ignore[assignment]
    what: str = "float"

    async def server(self, node: Node) -> None:
        for k in node.rounds():
            embeddings = await node.gather("embedding", senders=node.clients, round=k)
            step = await node.compute(node.learner.server_step(embeddings))
            norm = await node.compute(self.norm(node, step.gradient_for(embeddings[0])))
            node.record("steps", round=k, loss=step.loss, norm=norm)
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

    def norm(self, node: Node, gradient: Handle[torch.Tensor]) -> Any:
        values: dict[str, Any] = {
            "float": lambda value: float(value.norm()),
            "int": lambda value: int(value.count_nonzero()),
            "tensor": lambda value: value.norm(),
            "array": lambda value: value.norm().numpy()[()],
            "mapping": lambda value: {"norm": float(value.norm())},
        }
        it = Handle[Any]((), torch.int64 if self.what == "int" else torch.float64)

        def work() -> None:
            it.set(values[self.what](gradient.value))

        promises = [] if self.what == "unpromised" else [it]
        values["unpromised"] = values["float"]
        return node.learner.operation("norm", work, it, inputs=[gradient], promises=promises)


def noting(what: str = "float", **changes: Any) -> Scenario:
    made = tiny("synchronous", **{"stop": {"rounds": 12}, **changes}).with_protocols({"it": Noting(what=what)})
    return made.model_copy(update={"protocols": {"it": made.protocols["it"]}})


@pytest.mark.parametrize("kind", WORLDS)
def test_values_are_written_when_they_are_there(kind: str) -> None:
    outcome = run(noting(), kind=kind)
    table = outcome.extra["steps"].to_pandas()
    assert list(table) == ["time_s", "party", "round", "loss", "norm"]
    assert len(table) == 11  # the twelfth step ends the run
    assert (table["norm"] > 0).all()
    means = table["loss"].to_numpy()[:8].reshape(2, 4).mean(axis=1)
    assert metrics(outcome)["train_loss"].to_numpy()[1:3] == pytest.approx(means)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["float", "int", "tensor", "array"])
def test_interrupted_runs_write_the_bytes_of_whole_ones(what: str, tmp_path: Path) -> None:
    scenario = noting(what)
    outcome, last = whole(scenario)
    assert outcome.extra["steps"]["norm"].null_count == 0
    assert_interruptions_change_no_byte(scenario, tmp_path)
    interrupted(scenario, tmp_path / "again", [last // 2])
    assert "could not be written" not in run(scenario, keeper=KeptAt(tmp_path / "again")).note


def test_to_record_a_value_forces_nothing() -> None:
    plain, noted = run(tiny("synchronous", stop={"rounds": 12})), run(noting())
    assert same_weights(plain, noted)
    assert metrics(plain)["train_loss"].equals(metrics(noted)["train_loss"])


def test_timing_alone_has_the_same_table_without_values() -> None:
    trained, timed = run(noting()).extra["steps"], run(noting(), timing_only=True).extra["steps"]
    assert timed.schema == trained.schema
    assert timed["loss"].null_count == timed["norm"].null_count == 11
    assert timed["time_s"].to_pylist() == trained["time_s"].to_pylist()


@pytest.mark.parametrize(
    ("what", "why"), [("mapping", "it is of type dict"), ("unpromised", "no operation promises it")]
)
def test_a_value_that_turns_out_wrong_fails_the_run_and_keeps_all_its_tables(what: str, why: str) -> None:
    scenario = noting(what)
    outcome = run_protocol(scenario, "it", 0, data_of(scenario))
    assert isinstance(outcome.error, ProtocolError)
    assert why in outcome.error.what
    assert (outcome.info.status, outcome.info.stop_reason) == ("failed", None)
    assert len(metrics(outcome)) == 4
    table = outcome.extra["steps"]
    assert (table["norm"].null_count, table["loss"].null_count) == (11, 0)


class Careless(Synchronous):
    """Synchronous, and client 2 records a tensor in round 5."""

    kind: Literal["careless"] = "careless"  # type: ignore[assignment]

    async def client(self, node: Node) -> None:
        node.start(self.notes(node))
        await super().client(node)

    async def notes(self, node: Node) -> None:
        while True:
            node.record("notes", round=node.current_round, value=torch.zeros(3) if self.wrong(node) else 1.5)
            await node.sleep(0.01)

    def wrong(self, node: Node) -> bool:
        return node.party == 2 and node.current_round == 5


@pytest.mark.parametrize("kind", WORLDS)
def test_a_wrong_value_ends_the_run_at_once_with_its_place_and_keeps_the_rows_before(kind: str) -> None:
    scenario = tiny("synchronous", stop={"rounds": 12}).with_protocols({"it": Careless()})
    outcome = run_protocol(scenario, "it", 0, data_of(scenario), world=world(kind))
    assert isinstance(outcome.error, ProtocolError)
    assert outcome.error.where.startswith("client-2 (beside) at ")
    assert outcome.error.what.startswith("node.record('notes', …) of Careless: value = tensor([0., 0., 0.])")
    assert outcome.info.counts["rounds"] == 5
    assert len(events(outcome)) > 50
    assert set(outcome.extra["notes"]["value"].to_pylist()) == {1.5}
