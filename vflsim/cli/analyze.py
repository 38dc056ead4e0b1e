"""``vflsim analyze``: closed forms of a scenario's timing, without simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from vflsim.cli.app import Overrides, ScenarioFile, app, console, known, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from vflsim.analysis.findings import ClosedForm, Formula
    from vflsim.learning.data.loaded import LoadedData
    from vflsim.scenario.models import Scenario
    from vflsim.studies.checks.closed_forms import Analysis


@app.command()
def analyze(
    scenario: ScenarioFile,
    protocol: Annotated[list[str] | None, typer.Option(help="Only this protocol (may be repeated).")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the formulas as LaTeX, and nothing else.")] = False,
    overrides: Overrides = None,
) -> None:
    """Print the closed forms of a scenario's timing: formulas and numbers, or why there are none."""
    loaded = load(scenario, overrides)
    from vflsim.studies.checks.closed_forms import analyse
    from vflsim.studies.checks.data import read_and_check

    for name in protocol or ():
        known(name, loaded.protocols, "protocol", "vflsim analyze --protocol")
    data = read_and_check(loaded, training=False)
    names = [name for name in loaded.protocols if not protocol or name in protocol]
    found = [analyse(loaded, name, data.of(loaded.training_of(name))) for name in names]
    page = console()
    if latex:
        page.print(Text(_latex(found)), soft_wrap=True)
    else:
        _show(page, loaded.name, found)
        shown: list[object] = []
        for name in names:
            _show_choices(page, loaded, name, data.of(loaded.training_of(name)), shown)


def _show(page: Console, title: str, analyses: Sequence[Analysis]) -> None:
    """Print the numbers of all protocols in one table, then the formulas and conditions of each protocol."""
    from vflsim.analysis.findings import ClosedForm
    from vflsim.cli.findings import HEADER, rows
    from vflsim.text_table import TextTable, say

    shown = {each.protocol: list(rows(each.protocol, each.findings)) for each in analyses}
    cells = [row for each in shown.values() for row, _ in each]
    page.print(TextTable(HEADER, cells, title=f"{title}: closed forms", left=(0, 1, 8)))
    for protocol, pairs in shown.items():
        page.print()
        page.print(Text(protocol, style="bold"))
        printed: set[str] = set()
        findings = [finding for _, finding in pairs]
        for finding in findings:
            if not isinstance(finding, ClosedForm):
                say(page, f"  {finding.name}: none: {finding.reason}")
                continue
            lines = [formula if isinstance(formula, str) else formula.text for formula in _formulas(finding)]
            for line in (line for line in lines if line not in printed):
                say(page, f"  {line}")
            printed |= set(lines)
        forms = [finding for finding in findings if isinstance(finding, ClosedForm)]
        conditions = dict.fromkeys(condition for form in forms for condition in form.conditions)
        for form in (form for form in forms if form.error > 0):
            conditions[f"{form.name}: by quadrature, the mean to within {form.error:.1g} {form.unit}"] = None
        for condition in conditions:
            page.print(Text(f"  – {condition}", style="dim"), soft_wrap=True)


def _show_choices(page: Console, scenario: Scenario, name: str, data: LoadedData, shown: list[object]) -> None:
    """Print the protocol's tables of choices, but for tables that were ``shown`` for another entry."""
    from vflsim.analysis.cycles import Unanalysable
    from vflsim.analysis.findings import NoClosedForm
    from vflsim.protocols.capabilities import Analysable
    from vflsim.protocols.defaults import outgrown
    from vflsim.scenario.resolve import setting
    from vflsim.text_table import TextTable, say

    protocol = scenario.protocols[name].protocol
    if not isinstance(protocol, Analysable) or outgrown(protocol, "closed_forms"):
        return
    try:
        tables = protocol.choices(setting(scenario, name, data))
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
            page.print(TextTable((table.key, *table.columns), table.rows, title=title, notes=table.notes))


def _latex(analyses: Sequence[Analysis]) -> str:
    """Return one align environment per protocol, with a comment for every missing closed form."""
    from vflsim.analysis.findings import ClosedForm

    lines: list[str] = []
    for each in analyses:
        lines.append(f"% {each.protocol}")
        lines += [f"% {f.name}: none: {f.reason}" for f in each.findings if not isinstance(f, ClosedForm)]
        found = [formula for f in each.findings if isinstance(f, ClosedForm) for formula in _formulas(f)]
        lines += [f"% {formula}" for formula in found if isinstance(formula, str)]
        formulas = dict.fromkeys(formula.latex for formula in found if not isinstance(formula, str))
        if formulas:
            lines += [r"\begin{align*}", " \\\\\n".join(f"  {formula}" for formula in formulas), r"\end{align*}"]
    return "\n".join(lines)


def _formulas(form: ClosedForm) -> Sequence[Formula | str]:
    """Return the formulas of a closed form, or a line with the error if they cannot be written."""
    from vflsim.analysis.findings import NoClosedForm

    try:
        found = form.formulas()
        for formula in found:
            _ = formula.text, formula.latex
    except Exception as error:
        return [f"{NoClosedForm.because_of(f'formula of {form.name}', error)}"]
    return found
