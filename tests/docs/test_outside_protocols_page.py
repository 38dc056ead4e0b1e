"""``docs/outside-protocols.md``: its protocol is the one that the tests run, and its scenario loads."""

import re

from pages import ROOT, code_of

import vflsim

PAGE = ROOT / "docs" / "outside-protocols.md"


def test_the_protocol_of_the_page_is_the_one_that_is_tested() -> None:
    assert code_of(PAGE)[0] == (ROOT / "tests" / "support" / "outside_protocols" / "two_trip.py").read_text()


def test_the_scenario_of_the_page_loads() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    scenario = vflsim.load(text)
    assert [entry.protocol.kind for entry in scenario.protocols.values()] == ["two_trip", "synchronous"]
