"""An operation of a coded run that is made and dropped changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from coded_worlds import world
from everything import everything


def parcel(sender: int, value: Any) -> Any:
    return SimpleNamespace(sender=sender, value=value)


def coded_operations() -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """(kind, learner, how it is made), each with everything before it done."""
    scenario, coded_server, clients = world()
    one, plan = clients[1], clients[1].plan
    sequence = scenario.protocols["fedvs"].protocol.batch_plan().batches(plan.rows, scenario.training_of("fedvs"), 0)
    of = sequence.batch(0)
    yield "share_data", one, one.share_data
    for learner in clients.values():
        shared = learner.share_data()
        shared.run()
        shared.commit()
        for receiver, handle in shared.result.items():
            clients[receiver].keep(parcel(learner.party, handle))
    yield "share_model", one, lambda: one.share_model(0)
    models = {}
    for learner in clients.values():
        (operation := learner.share_model(0)).run()
        models[learner.party] = operation.result
    yield "coded_embed", one, lambda: one.coded_embed(of, {n: models[n][1] for n in models})
    arrived = []
    for learner in clients.values():
        (operation := learner.coded_embed(of, {n: models[n][learner.party] for n in models})).run()
        arrived.append(parcel(learner.party, operation.result))
    used, sharers = arrived[: plan.threshold], tuple(clients)
    yield "decode", coded_server, lambda: coded_server.decode(of, used, sharers)
    (decoded := coded_server.decode(of, used, sharers)).run()
    responders = [each.sender for each in used]
    make = lambda: coded_server.coded_step(of, decoded.result, responders, sharers)  # noqa: E731
    yield "coded_step", coded_server, make
    (step := make()).run()
    yield "client_step", one, lambda: one.client_step(of, parcel(0, step.result))


def test_a_coded_runs_operation_that_is_made_changes_nothing() -> None:
    kinds = []
    for kind, learner, make in coded_operations():
        _ = learner.model
        before = everything(learner)
        make()
        assert everything(learner) == before, kind
        kinds.append(kind)
    assert kinds == ["share_data", "share_model", "coded_embed", "decode", "coded_step", "client_step"]
