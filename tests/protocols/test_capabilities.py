"""Capabilities of protocols: who has them, and what a class from outside does not inherit."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from both_paths import assert_same_bytes, quick
from tiny_worlds import RANDOM_TIMING, data_of, tiny

from vflsim.analysis.stages import Unanalysable
from vflsim.protocol import Embedding, Protocol, Synchronous
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.capabilities import closed_forms_of, outgrown, vectorised_by_hand
from vflsim.protocols.synchronous import Ignore
from vflsim.scenario.resolve import setting


class Pausing(Synchronous):
    """Rounds after which a client pauses."""

    kind: Literal["pausing"] = "pausing"  # type: ignore[assignment]

    async def client(self, node: Any) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))
            await node.sleep(5.0)


class OwnIgnore(Ignore):
    """Rounds of the fastest, whose clients are those of ``synchronous``."""

    kind: Literal["own_ignore"] = "own_ignore"  # type: ignore[assignment]

    async def client(self, node: Any) -> None:
        await Synchronous().client(node)


class Confirmed(OwnIgnore):
    """The same, whose author says that closed forms and recurrence hold."""

    kind: Literal["confirmed"] = "confirmed"  # type: ignore[assignment]
    closed_forms = Ignore.closed_forms
    recurrence = Ignore.recurrence


class Renamed(Ignore):
    kind: Literal["renamed"] = "renamed"  # type: ignore[assignment]


def test_rounds_of_a_class_with_its_own_client_are_traced() -> None:
    assert_same_bytes(quick("synchronous", timing=RANDOM_TIMING).with_protocols({"it": Pausing()}))
    clients = {"select": "all", "compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "(3*m) ms"}}
    scenario = quick("synchronous", timing={"clients": clients}).with_protocols({"it": Pausing()})
    plain, pausing = (
        closed_forms_of(each, setting(scenario, "it", data_of(scenario)))[0] for each in (Synchronous(), Pausing())
    )
    assert pausing.mean.low == pytest.approx(plain.mean.low + 5.0)


def test_a_class_with_its_own_client_does_not_inherit_what_was_made_for_another() -> None:
    scenario = tiny("synchronous").with_protocols({"it": OwnIgnore(deadline=9)})
    with pytest.raises(Unanalysable, match="the server waits for some time"):  # what its trace says
        closed_forms_of(OwnIgnore(deadline=9), setting(scenario, "it", data_of(scenario)))
    assert vectorised_by_hand(OwnIgnore(deadline=9)) is None


@pytest.mark.parametrize("protocol", [Confirmed(deadline=9), Renamed(deadline=9)], ids=lambda each: each.kind)
def test_a_class_that_says_so_or_changes_no_coroutine_keeps_them(protocol: Protocol) -> None:
    timing = {"clients": {"select": "all", "compute": "1 ms"}}
    scenario = tiny("synchronous", timing=timing).with_protocols({"it": protocol})
    assert closed_forms_of(protocol, setting(scenario, "it", data_of(scenario)))
    assert vectorised_by_hand(protocol) is protocol


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda each: each.__name__)
def test_built_in_protocols_have_outgrown_nothing(kind: type[Protocol]) -> None:
    protocol = kind.model_construct()
    assert not any(outgrown(protocol, name) for name in ("closed_forms", "recurrence") if hasattr(kind, name))
