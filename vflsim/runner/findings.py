"""Findings as rows of a table."""

from __future__ import annotations

from vflsim.runner.rounds import numbered
from vflsim.timing.analysis.findings import QUANTILES, ClosedForm, Finding, Range

HEADER = ("protocol", "quantity", "mean", "sd", *(f"p{100 * level:g}" for level in QUANTILES), "known")
"""Columns of the table; times in seconds."""


def row(protocol: str, finding: Finding) -> tuple[str, ...]:
    """One finding: what it is of, its numbers, and how well they are known."""
    if not isinstance(finding, ClosedForm):
        return (protocol, finding.name, *["–"] * (2 + len(QUANTILES)), "no closed form: see below")
    name = f"{finding.name} [{finding.unit}]" if finding.unit else finding.name
    if finding.clients:
        name += f" of {numbered(finding.clients)}"
    sd = "–" if finding.sd is None else f"{finding.sd:.5g}"
    quantiles = ["–" if (value := finding.quantile(level)) is None else said(value) for level in QUANTILES]
    return (protocol, name, said(finding.mean), sd, *quantiles, finding.exactness)


def said(value: Range) -> str:
    """A number, or two that it lies between; one where they are the same to five digits."""
    low, high = f"{value.low:.5g}", f"{value.high:.5g}"
    return low if low == high else f"{low} … {high}"
