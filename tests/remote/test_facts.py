"""Facts about their data that clients tell each other."""

from typing import cast

import pytest
from tiny_worlds import data_of, tiny

from vflsim.protocols.capabilities import Peering
from vflsim.remote.control import ControlError
from vflsim.remote.party import checked_facts
from vflsim.scenario.resolve import setting


def test_the_facts_of_the_protocol_are_taken_and_no_others() -> None:
    scenario = tiny({"coded": {"kind": "fedvs", "K": 1}})
    protocol = cast("Peering", scenario.protocols["coded"].protocol)
    told = protocol.public_facts(setting(scenario, "coded", data_of(scenario)), 2)
    assert checked_facts(protocol, told) == told
    for wrong in ({}, {**told, "more": 1.0}, {"other": 1.0}):
        with pytest.raises(ControlError, match=r"allowed: \['magnitude'\]"):
            checked_facts(protocol, wrong)
