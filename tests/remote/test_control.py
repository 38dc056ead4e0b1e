"""Control messages: what is allowed, and nothing else."""

import json
from typing import cast

import pytest
from tiny_worlds import data_of, tiny

from vflsim.protocols.capabilities import Peering
from vflsim.remote import control
from vflsim.remote.control import MOST_BYTES, ControlError, packed, unpacked
from vflsim.remote.party import checked_facts
from vflsim.scenario.resolve import setting

EXAMPLES: list[control.Control] = [
    control.Hello(party=3, scenario="0" * 64, rows="1" * 64, version="0.1", machine="here"),
    control.Welcome(),
    control.Refused(why="no"),
    control.Prepare(protocol="wait", seed=7, run="0123456789abcdef", again=True, first=2**32),
    control.Introduced(port=7001, facts={"magnitude": 1.5}),
    control.Peer(party=2, host="10.0.0.2", port=7001, facts={}, here=False),
    control.Joined(protocol="coded", seed=7),
    control.Ready(unreached=(3,)),
    control.Voucher(party=2, key="0f" * 32, signature="00ff", certificate="-----BEGIN CERTIFICATE-----"),
    control.Start(in_s=0.2, at=12.5, machine="here"),
    control.Counted(updates=2),
    control.NoiseAdded(batch=(-1, 4)),
    control.Spent(at=2.25),
    control.Passing(to=3, message="model_share", round=-1, size=600, at=0.5),
    control.IsDue(sender=2, number=4, at=0.75),
    control.Dropped(sender=2, number=5),
    control.Withdrawn(number=9),
    control.WentDown(),
    control.CameUp(number=2, round=17, at=1.25),
    control.Away(party=2, at=1.5),
    control.Back(party=2, at=2.5),
    control.EvaluateNow(number=1, splits=("validation", "test"), free=True, wired=False),
    control.Stopped(reason="rounds"),
    control.Done(),
    control.Written(),
    control.Failed(what="it broke", where="client-1"),
    control.Beat(),
    control.Bye(),
]


def test_every_kind_has_an_example() -> None:
    kinds = {each.model_fields["kind"].default for each in control._Control.__subclasses__()}
    assert {example.kind for example in EXAMPLES} == kinds


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.kind)
def test_a_message_comes_back_as_it_went(message: control.Control) -> None:
    assert unpacked(packed(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.kind)
def test_a_key_more_or_a_changed_kind_is_refused(message: control.Control) -> None:
    said = json.loads(packed(message))
    for changed in ({**said, "more": 1}, {**said, "kind": "unheard"}):
        with pytest.raises(ControlError):
            unpacked(json.dumps(changed).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"kind": "counted", "updates": -1}',
        b'{"kind": "counted", "updates": 9007199254740991}',
        b'{"kind": "counted", "updates": "1"}',
        b'{"kind": "counted", "updates": 1.5}',
        b'{"kind": "start", "in_s": 1e9, "at": 0, "machine": ""}',
        b'{"kind": "introduced", "port": 0, "facts": {}}',
        b'{"kind": "introduced", "port": 1, "facts": {"magnitude": null}}',
        b'{"kind": "introduced", "port": 1, "facts": {"magnitude": "NaN"}}',
        b'{"kind": "due", "sender": 1, "number": 0, "at": -1.0}',
        b'{"kind": "up", "number": 1, "round": -1, "at": 0.5}',
        b'{"kind": "evaluate", "number": 1, "splits": ["secret"], "free": true, "wired": true}',
        b'{"kind": "hello", "party": 1, "scenario": "zz", "version": "", "machine": ""}',
        b" " * (MOST_BYTES + 1),
    ],
)
def test_other_bytes_are_one_error(data: bytes) -> None:
    with pytest.raises(ControlError):
        unpacked(data)


def test_the_facts_of_the_protocol_are_taken_and_no_others() -> None:
    scenario = tiny({"coded": {"kind": "fedvs", "K": 1}})
    protocol = cast("Peering", scenario.protocols["coded"].protocol)
    told = protocol.public_facts(setting(scenario, "coded", data_of(scenario)), 2)
    assert checked_facts(protocol, told) == told
    for wrong in ({}, {**told, "more": 1.0}, {"other": 1.0}):
        with pytest.raises(ControlError, match=r"allowed: \['magnitude'\]"):
            checked_facts(protocol, wrong)
