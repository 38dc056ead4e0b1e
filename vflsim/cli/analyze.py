"""``vflsim analyze``: what a scenario's timing follows without being simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from vflsim.cli.app import Overrides, ScenarioFile, app, console, known, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from vflsim.runner.analysis import Analysis


@app.command()
def analyze(
    scenario: ScenarioFile,
    protocol: Annotated[list[str] | None, typer.Option(help="Only this protocol (may be repeated).")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the formulas as LaTeX, and nothing else.")] = False,
    overrides: Overrides = None,
) -> None:
    """Print the closed forms of a scenario's timing: formulas and numbers, or why there are none."""
    loaded = load(scenario, overrides)
    from vflsim.runner.analysis import analyse
    from vflsim.runner.checks import read_and_check

    for name in protocol or ():
        known(name, loaded.protocols, "protocol", "vflsim analyze --protocol")
    data = read_and_check(loaded)
    names = [name for name in loaded.protocols if not protocol or name in protocol]
    found = [analyse(loaded, name, data.of(loaded.training_of(name))) for name in names]
    page = console()
    if latex:
        page.print(Text(_latex(found)), soft_wrap=True)
    else:
        _show(page, loaded.name, found)


def _show(page: Console, title: str, analyses: Sequence[Analysis]) -> None:
    """The numbers of all protocols in one table; below it, for each one, where they come from."""
    from vflsim.results.layout import TextTable, say
    from vflsim.runner.findings import HEADER, row
    from vflsim.timing.analysis.findings import ClosedForm

    cells = [row(each.protocol, finding) for each in analyses for finding in each.findings]
    page.print(TextTable(HEADER, cells, title=f"{title}: closed forms", left=(0, 1, 8)))
    for each in analyses:
        page.print()
        page.print(Text(each.protocol, style="bold"))
        said: set[str] = set()
        for finding in each.findings:
            if not isinstance(finding, ClosedForm):
                say(page, f"  {finding.name}: none: {finding.reason}")
                continue
            lines = [formula.text for formula in finding.formulas()]
            for line in (line for line in lines if line not in said):
                say(page, f"  {line}")
            said |= set(lines)
        forms = [finding for finding in each.findings if isinstance(finding, ClosedForm)]
        conditions = dict.fromkeys(condition for form in forms for condition in form.conditions)
        for form in (form for form in forms if form.error > 0):
            conditions[f"{form.name}: by quadrature, the mean to within {form.error:.1g} {form.unit}"] = None
        for condition in conditions:
            page.print(Text(f"  – {condition}", style="dim"), soft_wrap=True)


def _latex(analyses: Sequence[Analysis]) -> str:
    """One align environment a protocol; what has no closed form is a comment that says why."""
    from vflsim.timing.analysis.findings import ClosedForm

    lines: list[str] = []
    for each in analyses:
        lines.append(f"% {each.protocol}")
        lines += [f"% {f.name}: none: {f.reason}" for f in each.findings if not isinstance(f, ClosedForm)]
        formulas = dict.fromkeys(x.latex for f in each.findings if isinstance(f, ClosedForm) for x in f.formulas())
        if formulas:
            lines += [r"\begin{align*}", " \\\\\n".join(f"  {formula}" for formula in formulas), r"\end{align*}"]
    return "\n".join(lines)
