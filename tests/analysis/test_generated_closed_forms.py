"""Closed forms of generated scenarios: atoms beside densities, equal atoms at several clients, clients without delays.

``VFLSIM_CLOSED_FORMS=334 pytest tests/analysis/test_generated_closed_forms.py`` checks so many scenarios a protocol;
``python tests/support/closed_form_checks.py`` 2,000 in all, prints all that is wrong, and simulates every tenth.

What is outside of its 99.9 % interval is checked again with another seed and eight times as many rounds, at the same
level: the level of a wrong alarm is some 10⁻⁶ a check.
"""

import os
from itertools import product
from typing import Any

import pytest
from closed_form_checks import seen
from closed_form_worlds import KINDS, LAWS, delays, worlds
from hypothesis import HealthCheck, given, settings, strategies as st
from thorough import examples, is_thorough
from tiny_worlds import raw

EXAMPLES = int(os.environ.get("VFLSIM_CLOSED_FORMS", examples(2)))
DEPTH = 2 if is_thorough() or "VFLSIM_CLOSED_FORMS" in os.environ else 1
"""How deep delays are made of parts: some mixtures of maxima of mixtures take half a minute."""
OFTEN = settings(
    max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
FEW = 100
"""Rounds in each of 20 runs."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_closed_forms_of_any_delays_agree_with_rounds_that_are_drawn(kind: str) -> None:
    @OFTEN
    @given(worlds(kind, DEPTH))
    def all_is_well(said: dict[str, Any]) -> None:
        assert seen(said, FEW).wrong == []

    all_is_well()


MIXED = {"kind": "mixture", "weights": [1, 1, 2], "parts": [0, 0.2, {"kind": "uniform", "low": 0.1, "high": 0.4}]}
COIN = {"kind": "mixture", "weights": [1, 3], "parts": [0.1, 0.3]}
DEGENERATE: dict[str, list[Any]] = {
    "no delays": [0, 0, 0, 0],
    "constants": [0.1, 0.1, 0.1, 0.1],
    "constants and one random": [0, 0, 0, {"kind": "exponential", "mean": 1}],
    "different constants": [0.1, 0.2, 0.3, 0.3],
    "coins": [COIN, COIN, COIN, COIN],
    "constant mixtures": [{"kind": "mixture", "weights": [1, 0], "parts": [0.2, 5]}] * 3 + [0.2],
    "a maximum that is constant": [
        {"kind": "maximum", "parts": [0.5, {"kind": "uniform", "low": 0, "high": 0.3}]}, 0.5, COIN, 0.1
    ],
    "atoms beside densities": [MIXED, MIXED, 0.2, COIN],
    "an atom at zero": [MIXED, 0, 0, {"kind": "exponential", "mean": 0.3}],
}  # fmt: skip
PROTOCOLS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "centralised": {"kind": "centralised"},
    "ignore": {"kind": "ignore", "exclude": "1"},
    "deadline": {"kind": "ignore", "deadline": 20},
    "cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
    "t": {"kind": "t_synchronous", "t": 2},
    "all": {"kind": "t_synchronous", "t": 4},
    "asynchronous": {"kind": "asynchronous"},
    "fedvs": {"kind": "fedvs", "K": 1},
    "finished": {"kind": "fedvs", "K": 1, "late": "finished"},
}


@pytest.mark.sampled(30)
@pytest.mark.parametrize(("protocol", "delays_are"), [*product(PROTOCOLS, DEGENERATE)])
def test_degenerate_delays_have_closed_forms_or_a_reason(protocol: str, delays_are: str) -> None:
    clients = [
        {"select": str(client), "upload_delay": delay} for client, delay in enumerate(DEGENERATE[delays_are], start=1)
    ]
    server = {"compute": 0.05 if delays_are == "no delays" else 0}
    assert seen(_world(PROTOCOLS[protocol], clients, server), FEW).wrong == []


@pytest.mark.sampled(20)
@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("protocol", ["synchronous", "cancel", "asynchronous", "fedvs"])
def test_every_kind_of_delay_beside_constants_has_closed_forms_or_a_reason(protocol: str, kind: str) -> None:
    """At one client of four; two others are constant and alike."""

    @settings(OFTEN, max_examples=examples(1))
    @given(delays(kind=kind), st.sampled_from([0, 0.2]))
    def all_is_well(delay: dict[str, Any], constant: float) -> None:
        clients = [{"select": "all", "upload_delay": constant}, {"select": "4", "upload_delay": delay}]
        assert seen(_world(PROTOCOLS[protocol], clients, {"compute": 0.1}), FEW).wrong == []

    all_is_well()


def _world(protocol: dict[str, Any], clients: list[dict[str, Any]], server: dict[str, Any]) -> dict[str, Any]:
    return raw(
        {"it": protocol},
        timing={"network": "dedicated", "server": server, "clients": clients},
        training__last_batch="drop",
        record="rounds",
    )
