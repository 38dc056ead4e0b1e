"""Whole runs of EF-VFL: crashes, interruptions and closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from closed_form_checks import seen
from kept_runs import KeptAt, files_of, interrupted, whole
from thorough import in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, apart, events, metrics, raw, rounds, run, same_times, tiny

from vflsim.protocols.ef_vfl import protocol as protocol_module
from vflsim.protocols.ef_vfl.learning import SurrogateServer, surrogate_learners
from vflsim.scenario import load

QUANTISER = {"kind": "scalar_quantiser", "bits": 3}
EACH: dict[str, dict[str, Any]] = {
    "shared": {"kind": "ef_vfl", "codec": QUANTISER, "local_steps": 2},
    "private": {"kind": "ef_vfl", "labels": "private", "codec": QUANTISER},
    "plain": {"kind": "ef_vfl", "labels": "private", "local_steps": 2},
}
each = pytest.mark.parametrize("protocol", EACH.values(), ids=EACH)


@each
def test_a_run_that_is_interrupted_twice_writes_the_same_bytes(protocol: dict[str, Any], tmp_path: Path) -> None:
    """Surrogates and differences on their way are in the checkpoints."""
    scenario = tiny({"it": protocol}, timing=RANDOM_TIMING, stop={"rounds": 9}, evaluate={"every": "3 rounds"})
    outcome, last = whole(scenario)
    for count in (last // 4, last // 2, 2 * last // 3):
        interrupted(scenario, tmp_path / "kept", [count])
    resumed = run(scenario, keeper=KeptAt(tmp_path / "kept"))
    assert files_of(resumed, tmp_path / "resumed", scenario) == files_of(outcome, tmp_path / "whole", scenario)


def crashing(protocol: dict[str, Any], interrupt: str) -> dict[str, Any]:
    """Client 2 is away for 10 ms out of 60: in embeddings, uploads and steps."""
    intervals = {"kind": "intervals", "down": [["3 ms", "13 ms"]], "period": "60 ms", "interrupted": interrupt}
    clients = [*RANDOM_TIMING["clients"], {"select": "2", "availability": intervals}]
    said = raw({"it": protocol}, stop={"rounds": 60}, evaluate={"every": "30 rounds"})
    return {**said, "timing": {**RANDOM_TIMING, "clients": clients}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "interrupt"), [("shared", "resumed"), ("private", "resumed"), ("private", "lost"), ("plain", "lost")]
)
def test_a_client_that_goes_down_delays_its_rounds_and_training_goes_on(name: str, interrupt: str) -> None:
    outcome = run(load(crashing(EACH[name], interrupt)))  # which verifies the run
    assert len(rounds(outcome)) == 60
    losses = metrics(outcome)["train_loss"]
    assert losses.iloc[2] < losses.iloc[1]
    assert bool((events(outcome, party="client-2")["outcome"] == "lost").any()) is (interrupt == "lost")


@pytest.mark.parametrize("name", ["private", "plain"])
def test_both_ends_have_the_same_surrogates_after_many_crashes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the difference of the last round, which the server has and a client adds when it next computes."""
    made: list[Any] = []

    def recorded(*arguments: Any) -> Any:
        made.append(surrogate_learners(*arguments))
        return made[-1]

    monkeypatch.setattr(protocol_module, "surrogate_learners", recorded)
    monkeypatch.setattr(SurrogateServer, "let_go", lambda self: None)
    outcome = run(load(crashing(EACH[name], "lost")))
    lost = events(outcome, party="client-2")
    assert {"transfer.gradient", "transfer.difference"} & set(lost[lost["outcome"] == "lost"]["kind"])
    (learners,) = (each for each in made if each.server.staleness.step)  # others were traced
    for m, client in learners.clients.items():
        mine, sent = client.kept[f"client-{m}"], client.sent
        if sent is not None and sent.round == 59:
            mine[torch.tensor(sent.batch.ids)] += sent.value.value
        assert torch.equal(mine, learners.server.kept[f"client-{m}"])
        assert float(mine.abs().max()) > 0


@each
def test_timing_alone_gives_the_same_rounds_and_so_does_one_client_after_the_other(protocol: dict[str, Any]) -> None:
    scenario = tiny({"it": protocol}, timing=RANDOM_TIMING, stop={"rounds": 8})
    outcome, eager = run(scenario), run(scenario, execution=EAGER)
    assert rounds(outcome).equals(rounds(run(scenario, timing_only=True)))
    assert same_times(outcome, eager)
    assert apart(outcome, eager) <= 1e-9


@in_turn(protocol=EACH, network=["dedicated", "fifo"])
def test_the_law_of_a_round_agrees_with_its_simulation(protocol: dict[str, Any], network: str) -> None:
    link = {"up": "100 kbps", "down": "100 kbps"}
    timing = {
        "network": network,
        "server": {"compute": {"kind": "exponential", "mean": "40 ms"}, "link": link},
        "clients": [
            {
                "select": "all",
                "compute": {"kind": "flops", "rate": "1e5 FLOPS"},
                "link": link,
                "upload_delay": {"kind": "exponential", "mean": "m ms"},
            }
        ],
    }
    partition = {"clients": 3, "by": "columns"}
    said = raw({"it": protocol}, timing=timing, training__last_batch="drop", record="rounds", partition=partition)
    checked = seen(said, 100, steps=300)
    assert checked.wrong == []
    assert checked.forms["none"] == 0
    assert checked.forms["bounds"] == (network == "fifo")
    assert checked.checks["simulated"] > 0
