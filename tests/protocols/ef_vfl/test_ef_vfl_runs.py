"""Surrogates of EF-VFL in runs whose clients crash."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_worlds import RANDOM_TIMING, events, raw, run

from vflsim.protocols.ef_vfl import protocol as protocol_module
from vflsim.protocols.ef_vfl.learning import SurrogateServer, surrogate_learners
from vflsim.scenario import load

QUANTISER = {"kind": "scalar_quantiser", "bits": 3}
EACH: dict[str, dict[str, Any]] = {
    "shared": {"kind": "ef_vfl", "codec": QUANTISER, "local_steps": 2},
    "private": {"kind": "ef_vfl", "labels": "private", "codec": QUANTISER},
    "plain": {"kind": "ef_vfl", "labels": "private", "local_steps": 2},
}


def crashing(protocol: dict[str, Any], interrupt: str) -> dict[str, Any]:
    """Client 2 is away for 10 ms out of 60: in embeddings, uploads and steps."""
    intervals = {"kind": "intervals", "down": [["3 ms", "13 ms"]], "period": "60 ms", "interrupted": interrupt}
    clients = [*RANDOM_TIMING["clients"], {"select": "2", "availability": intervals}]
    said = raw({"it": protocol}, stop={"rounds": 60}, evaluate={"every": "30 rounds"})
    return {**said, "timing": {**RANDOM_TIMING, "clients": clients}}


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
