"""Format findings as rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vflsim.analysis.findings import QUANTILES, ClosedForm, Finding, NoClosedForm, Simulated
from vflsim.analysis.rounds import numbered

HEADER = ("protocol", "quantity", "mean", "sd", *(f"p{100 * level:g}" for level in QUANTILES), "known")
"""Columns of the table; times in seconds."""


def row(protocol: str, finding: Finding) -> tuple[str, ...]:
    """Format one finding: its quantity, its numbers, and whether they are exact."""
    nothing = ["–"] * (1 + len(QUANTILES))
    if isinstance(finding, Simulated):
        return (protocol, f"{finding.name} [{finding.unit}]", str(finding.mean), *nothing, "simulated")
    if not isinstance(finding, ClosedForm):
        return (protocol, finding.name, "–", *nothing, "no closed form: see below")
    name = f"{finding.name} [{finding.unit}]" if finding.unit else finding.name
    if finding.clients:
        name += f" of {numbered(finding.clients)}"
    sd = "–" if finding.sd is None else f"{finding.sd:.5g}"
    quantiles = ["–" if (value := finding.quantile(level)) is None else str(value) for level in QUANTILES]
    return (protocol, name, str(finding.mean), sd, *quantiles, finding.exactness)


def rows(protocol: str, findings: Iterable[Finding]) -> Iterator[tuple[tuple[str, ...], Finding]]:
    """Yield (row, finding); a finding whose numbers end in an error has no closed form."""
    for finding in findings:
        try:
            yield row(protocol, finding), finding
        except Exception as error:
            none = NoClosedForm.because_of(finding.name, error)
            yield row(protocol, none), none
