"""Capabilities of protocols: who has them, and what a class from outside does not inherit."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from both_paths import assert_same_bytes, quick
from tiny_worlds import RANDOM_TIMING, data_of, tiny

from vflsim.analysis.cycles import Unanalysable
from vflsim.protocol import Embedding, Protocol, Synchronous, Vectorisable
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.capabilities import CAPABILITIES
from vflsim.protocols.defaults import closed_forms_of, outgrown, vectorised_by_hand
from vflsim.protocols.ignore import Ignore
from vflsim.scenario.resolve import setting
from vflsim.simulation.vectorised import obstacles


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


class Confirmed(Pausing):
    """The same, whose author says that closed forms hold."""

    kind: Literal["confirmed"] = "confirmed"  # type: ignore[assignment]
    closed_forms = Synchronous.closed_forms


class OwnIgnore(Ignore):
    """Rounds of the fastest, whose clients are those of ``synchronous``."""

    kind: Literal["own_ignore"] = "own_ignore"  # type: ignore[assignment]

    async def client(self, node: Any) -> None:
        await Synchronous().client(node)


class Renamed(Synchronous):
    kind: Literal["renamed"] = "renamed"  # type: ignore[assignment]


VECTORISED = {"timing": {"network": "dedicated"}, "record": "rounds"}


def test_a_class_with_its_own_client_does_not_inherit_closed_forms() -> None:
    scenario = tiny("synchronous", **VECTORISED).with_protocols({"it": Pausing()})
    with pytest.raises(Unanalysable, match="Pausing has its own client, and closed_forms of Synchronous"):
        closed_forms_of(Pausing(), setting(scenario, "it", data_of(scenario)))


def test_rounds_of_a_class_with_its_own_client_are_traced() -> None:
    assert_same_bytes(quick("synchronous", timing=RANDOM_TIMING).with_protocols({"it": Pausing()}))


def test_a_class_with_its_own_client_does_not_inherit_a_recurrence_by_hand() -> None:
    assert vectorised_by_hand(Ignore(fastest=2)) is not None
    assert vectorised_by_hand(OwnIgnore(fastest=2)) is None


@pytest.mark.parametrize("protocol", [Confirmed(), Renamed()], ids=lambda each: each.kind)
def test_a_class_that_says_so_or_changes_no_coroutine_keeps_them(protocol: Protocol) -> None:
    scenario = tiny("synchronous", **VECTORISED).with_protocols({"it": protocol})
    assert closed_forms_of(protocol, setting(scenario, "it", data_of(scenario)))
    assert obstacles(scenario, "it") == []


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda each: each.__name__)
def test_built_in_protocols_have_outgrown_nothing(kind: type[Protocol]) -> None:
    protocol = kind.model_construct()
    assert [outgrown(protocol, name) for name in ("closed_forms", "recurrence") if hasattr(kind, name)] == (
        ["", ""] if issubclass(kind, Vectorisable) else [""]
    )


def test_every_capability_is_one_of_a_built_in_protocol() -> None:
    assert all(any(issubclass(kind, capability) for kind in PROTOCOLS) for capability in CAPABILITIES)
