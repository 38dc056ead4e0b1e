"""Closed forms of studies, computed once for all tests: most studies of tests have one of a few timings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vflsim.results.store.closed_forms import ClosedForms, table_of
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.closed_forms import closed_forms

NOTHING_TO_THEM = ("name", "description", "seeds", "stop", "target", "record")
"""Sections that no closed form depends on."""
_known: dict[str, ClosedForms] = {}


def closed_forms_once(scenario: Scenario, data: ScenarioData) -> ClosedForms:
    """What ``closed_forms`` returns; it is called once for scenarios that differ in nothing that it depends on.

    Scenarios that read files, or have parts from outside the package, are always computed.
    """
    said = {key: value for key, value in scenario.document.raw.items() if key not in NOTHING_TO_THEM}
    key = json.dumps(said, default=str)
    if scenario.data.name not in ("digits", "breast_cancer") or '"path"' in key or '"file"' in key:
        return closed_forms(scenario, data)
    if key not in _known:
        _known[key] = closed_forms(scenario, data)
    return _known[key]


@contextmanager
def no_closed_forms() -> Iterator[None]:
    """Studies write an empty table of them: for tests of what runs leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vflsim.studies.pool.closed_forms", lambda _scenario, _data: ClosedForms(table_of([], ()), ()))
        yield
