"""Closed forms of a scenario as the page shows them: the rows and curves of ``vflsim analyze``."""

from __future__ import annotations

from typing import Any

import numpy as np

from vflsim.analysis.cycles import Unanalysable
from vflsim.analysis.findings import ClosedForm
from vflsim.api.timing import Analyses
from vflsim.exploring.figures import finite
from vflsim.results.store.closed_forms import curves_of
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.closed_forms import analyse

_POINTS = 240
"""Most points of a curve; those between are left out evenly."""


def closed_forms(scenario: Scenario, data: ScenarioData, name: str) -> dict[str, Any]:
    """Return what ``vflsim analyze`` finds of a protocol: its ``rows``, and the ``curve`` of a round's duration.

    ``rows`` are those of ``vflsim.analyze(…).frame`` (None where there is no number). The curve has the times ``x``
    (seconds) and the distribution function between ``lower`` and ``upper``, equal where it is known; None without.
    """
    found = analyse(scenario, name, data.of(scenario.training_of(name)))
    frame = Analyses(scenario, data, {name: found}).frame
    rows = [finite({str(key): _plain(value) for key, value in row.items()}) for row in frame.to_dict("records")]
    curve = None
    if isinstance(found.round, ClosedForm) and found.round.law is not None:
        ((*_, x, lower, upper),) = curves_of(name, [found.round])
        some = np.unique(np.linspace(0, len(x) - 1, min(_POINTS, len(x))).astype(int))
        curve = {"x": x[some].tolist(), "lower": lower[some].tolist(), "upper": upper[some].tolist()}
    return {"protocol": name, "rows": rows, "curve": curve}


def tables(scenario: Scenario, data: ScenarioData, name: str) -> list[dict[str, Any]]:
    """Return the tables of other values of a protocol's keys that ``vflsim analyze`` prints, such as FedVS's best K.

    These may take seconds. Empty where there are none, or where they have no closed form.
    """
    try:
        found = Analyses(scenario, data, {}).choices(name)
    except Unanalysable:
        return []
    return [
        {
            "protocol": name,
            "key": each.key,
            "title": each.title,
            "columns": [each.key, *each.columns],
            "rows": [list(row) for row in each.rows],
            "best": each.best,
            "notes": list(each.notes),
        }
        for each in found
    ]


def _plain(value: Any) -> Any:
    """Return a value of a frame as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    return value
