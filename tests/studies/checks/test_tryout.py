"""Protocols from outside are tried out before anything runs: their mistakes are errors with class, place and remedy."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import pytest
from tiny_worlds import BASE, tiny

from vflsim.errors import ScenarioError
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols.synchronous import Synchronous
from vflsim.setting import Learners, split_learners
from vflsim.simulation import standstill as endless
from vflsim.studies.checks import tryout
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.tryout import refuse_broken
from vflsim.world import outages, virtual
from vflsim.world.messages import Embedding


class Own(Synchronous):
    """Synchronous, from outside the package."""

    kind: Literal["own"] = "own"  # type: ignore[assignment]


class Bare(PartyLearner):
    """A learner without any operation."""


class NotSetUp(ServerLearner):
    def __init__(self, *_: Any) -> None:
        self.embedded = True


def own(**hooks: Any) -> Any:
    """A protocol with other hooks."""
    return type("Own", (Own,), hooks)()


def refused(protocol: Any, timing_only: bool = False, **changes: Any) -> str:
    changes = {"stop": {"rounds": 12}, **changes}
    scenario = tiny("synchronous", **changes).with_protocols({"it": protocol})
    with pytest.raises(ScenarioError) as caught:
        refuse_broken(scenario, read_and_check(scenario), timing_only)
    assert "protocols.it" in caught.value.where
    return str(caught.value)


def changed(method: str, of: str, result: Callable[[Any], Any]) -> Any:
    """A protocol whose learners of the server or of clients return something else."""

    def learners(self: Any, setting: Any, seed: int) -> Any:
        made = split_learners(setting, seed)
        for learner in [made.server] if of == "server" else made.clients.values():
            before = getattr(learner, method)
            setattr(learner, method, lambda *args, before=before: result(before(*args)))
        return made

    return own(learners=learners)


def setting(name: str, value: Any) -> Callable[[Any], Any]:
    def change(operation: Any) -> Any:
        setattr(operation, name, value)
        return operation

    return change


def without(method: str, of: str) -> Any:
    """A protocol in which a learner lacks a method of the default evaluation."""

    def learners(self: Any, setting: Any, seed: int) -> Any:
        made = split_learners(setting, seed)
        for learner in [made.server] if of == "server" else made.clients.values():
            setattr(learner, method, None)
        return made

    return own(learners=learners)


async def a_mapping(self: Any, node: Any, splits: Any, number: int) -> Any:
    return {"accuracy": 0.5}


async def numbers(self: Any, node: Any, splits: Any, number: int) -> Any:
    return dict.fromkeys(splits, 0.5)


async def texts(self: Any, node: Any, splits: Any, number: int) -> Any:
    it = Handle[Any]()
    await node.compute(node.learner.operation("evaluate", lambda: it.set({"loss": "low"}), it))
    return dict.fromkeys(splits, it)


def fewer_later(scores: dict[str, float], called: list[int] = []) -> dict[str, float]:  # noqa: B006  counts calls
    called.append(1)
    return scores if len(called) == 1 else {"loss": scores["loss"]}


async def asked(self: Any, node: Any) -> Any:
    yield 1


async def no_operation(self: Any, node: Any) -> None:
    await node.compute(node.learner.embed)


async def a_bug(self: Any, node: Any) -> None:
    node.learner.nothing()


async def no_await(self: Any, node: Any) -> None:
    for k in node.rounds():
        batch = node.batch(k)
        h = await node.compute(node.learner.embed(batch))
        await node.upload("server", Embedding(batch, h, round=k))
        gradient = await node.recv("gradient", round=k)
        node.compute(node.learner.client_step(batch, gradient))


def stacked_wrongly(self: Any, setting: Any, seed: int) -> Any:
    return replace(split_learners(setting, seed), stacking=lambda *_: 3)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "clients without embed_split": (
        lambda: without("embed_split", "clients"),
        r"the learner ClientLearner of client-1 has no method embed_split\(split\)(.|\n)*override answer_evaluation",
    ),
    "a server without evaluate": (
        lambda: without("evaluate", "server"),
        r"the learner ServerLearner of server has no method evaluate\(split, answers\)(.|\n)*override evaluate",
    ),
    "evaluation of other splits": (lambda: own(evaluate=a_mapping), r"evaluate returned a mapping of \['accuracy'\]"),
    "evaluation without handles": (lambda: own(evaluate=numbers), "evaluate returned for test a value of type float"),
    "evaluation of text": (lambda: own(evaluate=texts), r"an evaluation has the scores \{'loss': 'low'\}"),
    "an undeclared score": (
        lambda: changed("scores", "server", lambda scores: scores | {"macro_f1": 0.5}),
        r"ServerLearner: an evaluation has the score 'macro_f1', which is no metric(.|\n)*"
        r"allowed: loss, accuracy(.|\n)*remedy: declare it in the scenario, `metrics: \{macro_f1: …\}`",
    ),
    "a score with a split": (
        lambda: changed("scores", "server", lambda scores: scores | {"test_accuracy": 0.5}),
        "an evaluation has the score 'test_accuracy', which is no metric",
    ),
    "other scores later": (
        lambda: changed("scores", "server", fewer_later),
        r"an evaluation has the scores loss; an earlier one had loss, accuracy(.|\n)*nan for what is undefined",
    ),
    "evaluate is no coroutine": (lambda: own(evaluate=lambda *_: {}), "evaluate returned a value of type dict"),
    "answer_evaluation is none": (
        lambda: own(answer_evaluation=lambda *_: None),
        "client-1: Own.answer_evaluation returned a value of type NoneType, and no coroutine",
    ),
    "server is no coroutine": (lambda: own(server=lambda *_: 3), "server: Own.server returned a value of type int"),
    "client yields": (lambda: own(client=asked), "client-1: Own.client returned an async generator"),
    "no operation": (lambda: own(client=no_operation), "client-1 at 0 s: node.compute got a value of type method"),
    "a forgotten await": (
        lambda: own(client=no_await),
        r"Own calls and never awaits Node.compute\(…\) at .*test_tryout.py:\d+, no_await(.|\n)*write await before",
    ),
    "a bug": (
        lambda: own(client=a_bug),
        r"client-1 at 0 s: AttributeError(.|\n)*raised in: .*test_tryout.py:\d+, a_bug",
    ),
    "a round without facts": (
        lambda: changed("server_step", "server", setting("commit", None)),
        'server_step has counts="round", and its commit returned a value of type NoneType',
    ),
    "a wrong count": (
        lambda: changed("client_step", "clients", setting("counts", "step")),
        'client_step counts=\'step\'\n  allowed: "round", "update" or None',
    ),
    "a method returns no operation": (
        lambda: changed("server_step", "server", lambda operation: operation.result),
        "node.compute got a value of type ServerStep",
    ),
    "an operation fails": (
        lambda: changed("server_step", "server", setting("run", lambda: 1 / 0)),
        "server, server_step, round 0 at .* s: server_step failed: division by zero",
    ),
    "stacking is none": (lambda: own(learners=stacked_wrongly), "TypeError: 'int' object is not iterable"),
    "facts are none": (lambda: own(facts=lambda self: 3), "TypeError: 'int' object is not a mapping"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_protocol_is_an_error_before_anything_runs(mistake: str) -> None:
    make, why = MISTAKES[mistake]
    message = refused(make())
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(message)


LEARNERS: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "a mapping": (lambda setting, seed: {}, r"Own.learners\(setting, seed\) returned a dict"),
    "a list of clients": (
        lambda setting, seed: Learners(split_learners(setting, seed).server, []),  # type: ignore[arg-type]
        "returned a list of clients",
    ),
    "one client is missing": (
        lambda setting, seed: Learners(
            (made := split_learners(setting, seed)).server, {m: made.clients[m] for m in (1, 2, 3)}
        ),
        r"returned learners of clients \[1, 2, 3\], and clients \[1, 2, 3, 4\] take part",
    ),
    "no learner": (
        lambda setting, seed: Learners(3, split_learners(setting, seed).clients),  # type: ignore[type-var]
        "returned a int as the learner of server",
    ),
    "not set up": (
        lambda setting, seed: Learners(NotSetUp(), split_learners(setting, seed).clients),
        "the learner NotSetUp of server was not set up",
    ),
}


@pytest.mark.parametrize("mistake", LEARNERS)
def test_wrong_learners_are_named_when_the_scenario_is_checked(mistake: str) -> None:
    make, why = LEARNERS[mistake]
    protocol = own(learners=lambda self, setting, seed: make(setting, seed))
    scenario = tiny("synchronous").with_protocols({"it": protocol})
    with pytest.raises(ScenarioError, match=why) as caught:
        read_and_check(scenario)
    assert "protocols.it" in caught.value.where
    assert "a PartyLearner for each party" in str(caught.value) or "super().__init__(held)" in str(caught.value)


def test_a_round_that_is_never_counted_is_noticed_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "SERVER_COMPUTATIONS", 20)
    monkeypatch.setattr(endless, "SERVER_COMPUTATIONS_A_CLIENT", 5)
    forgetful = changed("server_step", "server", setting("counts", None))
    assert "no round was counted in 41 computations of the server (server_step)" in refused(forgetful, timing_only=True)


def test_a_protocol_in_which_nobody_computes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tryout, "EVENTS", 100)
    monkeypatch.setattr(tryout, "EVENTS_A_CLIENT", 0)

    async def sleep(self: Any, node: Any) -> None:
        while True:
            await node.sleep(1)

    assert "100 events, and no party has computed anything" in refused(own(server=sleep, client=sleep))


def accepted(protocol: Any, **changes: Any) -> None:
    scenario = tiny("synchronous", **changes).with_protocols({"it": protocol})
    refuse_broken(scenario, read_and_check(scenario))


def test_a_sound_protocol_passes_also_one_that_counts_updates_alone() -> None:
    accepted(own())
    accepted(changed("server_step", "server", setting("counts", None)), stop={"updates": 30})
    accepted(changed("client_step", "clients", setting("counts", None)), stop={"time": "1 s"})


def test_what_diverges_is_left_to_the_run() -> None:
    wild = {"kind": "sgd", "lr": 1e300}
    accepted(own(), training__client_optimizer=wild, training__server_optimizer=wild)


def test_rounds_that_take_long_are_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tryout, "EVENTS", 10)
    monkeypatch.setattr(tryout, "EVENTS_A_CLIENT", 0)
    monkeypatch.setattr(tryout, "BUDGET_S", 0.0)
    accepted(own())


def test_protocols_of_the_package_are_not_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tryout, "run_protocol", None)
    scenario = tiny("synchronous")
    refuse_broken(scenario, read_and_check(scenario))


async def forgets_to_send(self: Any, node: Any) -> None:
    for k in node.rounds():
        await node.gather("embedding", senders=node.clients, round=k)
        await node.recv("embedding", round=k)


def test_a_deadlock_that_no_outage_explains_is_the_protocols_mistake() -> None:
    message = refused(own(server=forgets_to_send))
    assert "Own fails when it is tried out" in message
    assert "server" in message


def test_a_deadlock_where_clients_crash_is_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tryout, "EVENTS", 10_000)
    monkeypatch.setattr(outages, "CRASHES_WITHOUT_A_STEP", 300)
    crashing = {
        "kind": "alternating",
        "up": {"kind": "exponential", "mean": "1 s"},
        "down": "10 ms",
        "interrupted": "lost",
    }
    timing = deepcopy(BASE["timing"])
    timing["clients"][0]["availability"] = crashing
    accepted(own(server=forgets_to_send), timing=timing)


def test_a_clock_that_never_moves_is_noticed_under_a_stop_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "STANDSTILL", 500)

    async def never(self: Any, node: Any) -> None:
        while True:
            node.arrived("embedding")
            await node.sleep(0)

    assert "500 events without the clock moving" in refused(own(server=never), stop={"time": "1 s"})
