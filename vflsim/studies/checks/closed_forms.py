"""Closed forms of a scenario: the law of each protocol's rounds, or the reason why there is none."""

import math
from dataclasses import dataclass

from vflsim.analysis.cycles import Unanalysable
from vflsim.analysis.findings import ClosedForm, Finding, NoClosedForm
from vflsim.analysis.rounds import ROUND
from vflsim.learning.data.loaded import LoadedData
from vflsim.protocols.defaults import closed_forms_of, participants_of
from vflsim.results.store.closed_forms import ClosedForms, Curve, LeftOut, curves_of, table_of
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting

MOST_CLIENTS = 2_000
"""The most clients for which results include closed forms; ``analyse`` has no such limit."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Analytic findings about one protocol of a scenario."""

    protocol: str
    findings: tuple[Finding, ...]

    @property
    def round(self) -> Finding:
        """The finding about the duration of a round."""
        none = NoClosedForm(ROUND, "the protocol derives none")
        return next((each for each in self.findings if each.name == ROUND), none)


def analyse(scenario: Scenario, name: str, data: LoadedData) -> Analysis:
    """Derive the closed forms of protocol ``name``, or the reasons why there are none; errors count as reasons.

    A round lasts from the end of one server step to the end of the next, as in ``rounds.parquet``.
    """
    try:
        findings = closed_forms_of(scenario.protocols[name].protocol, setting(scenario, name, data))
    except Unanalysable as reason:
        findings = (NoClosedForm(ROUND, str(reason)),)
    except Exception as error:  # neither a failure of a delay's arithmetic nor a defect may stop a study
        findings = (NoClosedForm.because_of(ROUND, error),)
    return Analysis(name, tuple(map(_computable, findings)))


def analyse_or_simulate(scenario: Scenario, name: str, data: LoadedData) -> Analysis:
    """Derive the closed forms of protocol ``name``; simulate rounds where their duration has none."""
    found = analyse(scenario, name, data)
    none = found.round
    if not isinstance(none, NoClosedForm) or none.failed:
        return found
    from vflsim.studies.checks.simulated import simulated  # the simulators take a while to import

    return Analysis(name, (simulated(scenario, name, data, none), *(each for each in found.findings if each != none)))


def _computable(finding: Finding) -> Finding:
    """Return the finding if its (lazy) numbers can be computed, else the reason why not."""
    if not isinstance(finding, ClosedForm):
        return finding
    try:
        known = [finding.mean.low, finding.mean.high]
        known += [float(law.cdf(finding.mean.low)) for law in (finding.law, finding.slower) if law is not None]
    except Exception as error:
        return NoClosedForm.because_of(finding.name, error)
    if any(map(math.isnan, known)):
        return NoClosedForm(finding.name, "its delays are too far apart in size for the arithmetic of floats")
    return finding


def closed_forms(scenario: Scenario, data: ScenarioData) -> ClosedForms:
    """Compute the curves stored with the results, and the reasons for omissions; errors count as reasons.

    Protocols with very many clients are omitted: their curves would take longer than a run.
    """
    curves, left_out = list[Curve](), list[LeftOut]()
    for name in scenario.protocols:
        try:
            known, reasons = _curves(scenario, name, data)
        except Exception as error:
            known, reasons = [], [NoClosedForm.because_of(ROUND, error)]
        curves += known
        left_out += [LeftOut(name, each.name, each.reason, each.failed) for each in reasons]
    return ClosedForms(table_of(curves, left_out), tuple(left_out))


def _curves(scenario: Scenario, name: str, data: ScenarioData) -> tuple[list[Curve], list[NoClosedForm]]:
    """Compute a protocol's curves and the reasons for omissions; a quantity has curves of all its clients or none."""
    many = len(participants_of(scenario.protocols[name].protocol, scenario.clients, scenario.symbols))
    if many > MOST_CLIENTS:
        why = f"the curves of {many:,} clients (more than {MOST_CLIENTS:,}) would take longer than a run"
        return [], [NoClosedForm(ROUND, why)]
    curves, groups = list[Curve](), dict[str, list[Finding]]()
    reasons = list[NoClosedForm]()
    for finding in analyse(scenario, name, data.of(scenario.training_of(name))).findings:
        groups.setdefault(finding.name, []).append(finding)
    for quantity, findings in groups.items():
        without = [each for each in findings if isinstance(each, NoClosedForm)]
        reasons += without
        if not without:
            try:
                curves += curves_of(name, [each for each in findings if isinstance(each, ClosedForm)])
            except Exception as error:
                reasons.append(NoClosedForm.because_of(quantity, error))
    return curves, reasons
