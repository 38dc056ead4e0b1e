"""What is known of the protocol ``it`` of a scenario, and how near a mean of dependent rounds is."""

from __future__ import annotations

import numpy as np
from scipy import stats
from tiny_worlds import data_of

from vflsim.analysis.findings import ClosedForm, NoClosedForm
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.rounds import analyse

BATCHES = 50
WARM_UP = 100
Z = float(stats.t.ppf(1 - 0.001 / 2, BATCHES - 1))


def found(world: Scenario, name: str = "round duration") -> ClosedForm:
    findings = analyse(world, "it", data_of(world)).findings
    return next(each for each in findings if isinstance(each, ClosedForm) and each.name == name)


def reason(world: Scenario) -> str:
    (finding,) = analyse(world, "it", data_of(world)).findings
    assert isinstance(finding, NoClosedForm)
    return finding.reason


def half_width(values: np.ndarray) -> float:
    """Half the 99.9 % interval of the mean, by batch means."""
    means = values[: len(values) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    return float(Z * means.std(ddof=1) / np.sqrt(BATCHES))
