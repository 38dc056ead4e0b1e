"""``vflsim analyze``: closed forms of a scenario's timing, without simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

import vflsim
from vflsim.cli.app import Overrides, ScenarioFile, app, console, overriding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from vflsim.api.timing import Analyses
    from vflsim.studies.checks.closed_forms import Analysis


@app.command()
def analyze(
    scenario: ScenarioFile,
    protocol: Annotated[list[str] | None, typer.Option(help="Only this protocol (may be repeated).")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the formulas as LaTeX, and nothing else.")] = False,
    overrides: Overrides = None,
) -> None:
    """Print the closed forms of a scenario's timing: formulas and numbers, or why there are none."""
    found = vflsim.analyze(scenario, overriding(overrides), protocols=protocol or ())
    page = console()
    if latex:
        page.print(Text(found.latex), soft_wrap=True)
    else:
        _show(page, found.scenario.name, [*found.values()])
        shown: list[object] = []
        for name in found:
            _show_choices(page, found, name, shown)


def _show(page: Console, title: str, analyses: Sequence[Analysis]) -> None:
    """Print the numbers of all protocols in one table, then the formulas and conditions of each protocol."""
    from vflsim.analysis.findings import ClosedForm, Simulated
    from vflsim.api.timing import formulas_of
    from vflsim.cli.findings import HEADER, rows
    from vflsim.tables import DataTable
    from vflsim.tables.terminal import say

    shown = {each.protocol: list(rows(each.protocol, each.findings)) for each in analyses}
    cells = [row for each in shown.values() for row, _ in each]
    page.print(DataTable(HEADER, cells, title=f"{title}: closed forms", left=(0, 1, 8)))
    for protocol, pairs in shown.items():
        page.print()
        page.print(Text(protocol, style="bold"))
        printed: set[str] = set()
        findings = [finding for _, finding in pairs]
        for finding in findings:
            if not isinstance(finding, ClosedForm):
                say(page, f"  {finding.name}: none: {finding.reason}")
                if isinstance(finding, Simulated):
                    say(page, f"  – the mean: 95 % interval of {finding.rounds:,} simulated rounds")
                continue
            lines = [formula if isinstance(formula, str) else formula.text for formula in formulas_of(finding)]
            for line in (line for line in lines if line not in printed):
                say(page, f"  {line}")
            printed |= set(lines)
        forms = [finding for finding in findings if isinstance(finding, ClosedForm)]
        conditions = dict.fromkeys(condition for form in forms for condition in form.conditions)
        for form in (form for form in forms if form.error > 0):
            conditions[f"{form.name}: on a grid, the mean to within {form.error:.1g} {form.unit}"] = None
        for condition in conditions:
            page.print(Text(f"  – {condition}", style="dim"), soft_wrap=True)


def _show_choices(page: Console, analyses: Analyses, name: str, shown: list[object]) -> None:
    """Print the protocol's tables of choices, but for tables that were ``shown`` for another entry."""
    from vflsim.analysis.cycles import Unanalysable
    from vflsim.analysis.findings import NoClosedForm
    from vflsim.tables import DataTable
    from vflsim.tables.terminal import say

    try:
        tables = analyses.choices(name)
    except Unanalysable:
        return  # the reason stands with the closed forms
    except Exception as error:
        say(page, f"{name}: {NoClosedForm.because_of('other choices', error)}")
        return
    for table in tables:
        if table.same not in shown:
            shown.append(table.same)
            page.print()
            title = f"{name}: {table.title}"
            page.print(DataTable((table.key, *table.columns), table.rows, title=title, notes=table.notes))
