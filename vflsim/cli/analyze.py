"""Commands on a scenario before it runs, and on its timing: ``vflsim analyze``, ``check``, ``explore``, ``timing``."""

from __future__ import annotations

import contextlib
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

import vflsim
from vflsim.cli.app import (
    Overrides,
    Protocols,
    ScenarioFile,
    Seeds,
    Threads,
    Workers,
    app,
    completed,
    console,
    overriding,
    say,
)
from vflsim.errors import DataError, ScenarioError
from vflsim.party_names import name_from_now_on
from vflsim.shipped import scenario_file
from vflsim.vocabulary.amounts import Amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from vflsim.analysis.findings import Finding, Range
    from vflsim.api.scenarios import Analyses
    from vflsim.studies.checks.rounds import Analysis
    from vflsim.tables import Cell


@app.command()
def analyze(
    scenario: ScenarioFile,
    protocol: Annotated[list[str] | None, typer.Option(help="Only this protocol (may be repeated).")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the formulas as LaTeX, and nothing else.")] = False,
    overrides: Overrides = None,
) -> None:
    """Print the closed forms of a scenario's timing: formulas and numbers, or why there are none."""
    analyses = vflsim.analyze(scenario, overriding(overrides), protocols=protocol or ())
    name_from_now_on(analyses.scenario.document.raw)
    page = console()
    if latex:
        page.print(Text(analyses.latex), soft_wrap=True)
    else:
        _show(page, analyses.scenario.name, [*analyses.values()])
        shown: list[object] = []
        for name in analyses:
            _show_choices(page, analyses, name, shown)


def _show(page: Console, title: str, analyses: Sequence[Analysis]) -> None:
    """Print the numbers of all protocols in one table, then the formulas and conditions of each protocol."""
    from vflsim.analysis.findings import QUANTILES, ClosedForm, Simulated
    from vflsim.api.scenarios import formulas_of
    from vflsim.tables import DataTable
    from vflsim.tables.terminal import say

    shown = {each.protocol: [_row(each.protocol, finding) for finding in each.findings] for each in analyses}
    header = ("protocol", "quantity", "mean", "sd", *(f"p{100 * level:g}" for level in QUANTILES), "known")
    cells = [row for each in shown.values() for row, _ in each]
    importance = (0, 1, 2, 8, 6, 4, 3, 5, 7)
    page.print(DataTable(header, cells, title=f"{title}: closed forms", left=(0, 1, 8), importance=importance))
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


def _row(protocol: str, finding: Finding) -> tuple[tuple[Cell, ...], Finding]:
    """Return a finding's row, times in seconds, and the finding, which has no closed form if its numbers fail."""
    from vflsim.analysis.findings import QUANTILES, ClosedForm, NoClosedForm, Simulated
    from vflsim.analysis.rounds import numbered

    nothing = ["–"] * (1 + len(QUANTILES))
    if isinstance(finding, Simulated):
        name = f"{finding.name} [{finding.unit}]"
        return (protocol, name, _amount(finding.mean), *nothing, "simulated"), finding
    if not isinstance(finding, ClosedForm):
        return (protocol, finding.name, "–", *nothing, "no closed form: see below"), finding
    name = f"{finding.name} [{finding.unit}]" if finding.unit else finding.name
    if finding.clients:
        name += f" of {numbered(finding.clients)}"
    try:
        sd = "–" if finding.sd is None else Amount(finding.sd, form=".5g")
        quantiles = [_amount(finding.quantile(level)) for level in QUANTILES]
        return (protocol, name, _amount(finding.mean), sd, *quantiles, finding.exactness), finding
    except Exception as error:
        return _row(protocol, NoClosedForm.because_of(finding.name, error))


def _amount(known: Range | None) -> Cell:
    """Return a number or its bounds; a dash for none."""
    return "–" if known is None else known.amount


def _show_choices(page: Console, analyses: Analyses, name: str, shown: list[object]) -> None:
    """Print the protocol's tables of choices, but for tables that were ``shown`` for another entry."""
    from vflsim.analysis.findings import NoClosedForm
    from vflsim.analysis.stages import Unanalysable
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


@app.command()
def check(
    scenario: ScenarioFile,
    overrides: Overrides = None,
    seeds: Seeds = None,
    protocol: Protocols = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run no rounds: predict no real time, and do not try out code of your own.")
    ] = False,
    workers: Workers = 1,
    threads: Threads = 1,
) -> None:
    """Check a scenario; print what it would run, with durations in virtual and real time, bytes and memory."""
    page = console()
    try:
        with page.status("measuring …") if page.is_terminal and not quick else nullcontext():
            result = vflsim.check(
                scenario, overriding(overrides, seeds), protocols=protocol or (), quick=quick, workers=workers,
                threads=threads,
            )  # fmt: skip
    except DataError:
        say(f"{scenario}: the scenario itself is valid, but its data cannot be used")
        raise
    from vflsim.results.facts import conditions_table
    from vflsim.studies.checks.describe import described

    loaded = result.scenario
    page.print(Text.assemble((f"{scenario} is valid", "green")), soft_wrap=True)
    say(f"{loaded.name}: {len(loaded.protocols)} protocols × {len(loaded.seeds)} seeds = {result.runs} runs")
    for line in described(loaded, result.data):
        say(line)
    page.print()
    page.print(result.table)
    page.print()
    page.print(conditions_table({each.protocol: each.conditions for each in result.expectations if each.conditions}))


def _may_be_left_out(context: typer.Context, scenario: Path | None) -> Path | None:
    """Refuse a mistyped name before the imports that take seconds."""
    if scenario is not None and not context.resilient_parsing:
        scenario_file(scenario)
    return scenario


@app.command()
def explore(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            help="A scenario to begin with, a file or a name (default: the template of `vflsim new`).",
            metavar="[SCENARIO]",
            callback=_may_be_left_out,
            autocompletion=completed,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any free one.", min=0, max=65535)] = 8766,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Play with time on a page in this machine's browser: turn delays and links, and see at once what rounds take."""
    from vflsim.exploring.server import served

    with served(scenario, port, Path.cwd()) as (server, address):
        begun = browse and webbrowser.open(address)
        say(f"{'opened' if begun else 'open'} {address} (Ctrl-C ends this)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


# --- timing -----------------------------------------------------------------------------------------------------------


_DIGITS, _LONGEST_MS = 9, 1e12
"""Most digits of a number of clients; a compute time of 32 years."""


@app.command()
def timing(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="A device trace of FedScale or FLASH, a platform of SimGrid, or for each client a file or folder of "
            "iperf3 --json and ping.",
            metavar="SOURCE",
        ),
    ],
    form: Annotated[
        Literal["fedscale-availability", "fedscale-capacity", "flash-states", "simgrid", "links"] | None,
        typer.Option("--format", help="What the file is (default: what it looks like)."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="The platform's host that is the server (default: the first).")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", help="How many clients, or their names with commas (default: all).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Draw the clients (default: the first of the file).", min=0)
    ] = None,
    interrupted: Annotated[
        Literal["lost", "resumed"], typer.Option("--interrupted", help="What an outage does to work under way.")
    ] = "resumed",
    median: Annotated[
        float,
        typer.Option("--median", help="Compute time of the median device, where speeds are relative.", metavar="MS"),
    ] = 10.0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the timing here (.yaml), in place of printing it.")
    ] = None,
) -> None:
    """Turn a trace, a platform or measured links into timing for scenarios."""
    if out is not None and out.suffix.lower() not in (".yaml", ".yml"):
        raise ScenarioError(f"{out} is no YAML file", "vflsim timing --out", "a file that ends in .yaml")
    if not 0 < median < _LONGEST_MS:
        raise ScenarioError(f"{median:g} ms", "vflsim timing --median", f"more than 0 and less than {_LONGEST_MS:g} ms")
    from vflsim.results.store.write import write_file
    from vflsim.timing.foreign import Wishes, read_timing
    from vflsim.vocabulary import plain_yaml

    wanted = _number_or_names(clients)
    read = read_timing(sources, form, Wishes(server, wanted, seed, interrupted, median))
    names = ", ".join(read.names[:5]) + (", …" if len(read.names) > 5 else "")
    say(f"{read.preset['title']}: {len(read.names):,} clients: {names}")
    for note in read.notes:
        say(f"note: {note}")
    text = plain_yaml.dump(read.preset)
    if out is None:
        page = console()
        page.print()
        page.print(Text(text.rstrip()), soft_wrap=True)
    else:
        say(f"{write_file(out, text)}: vflsim run SCENARIO --set timing=null --set timing.preset={out}")


def _number_or_names(text: str | None) -> int | list[str] | None:
    """Read ``--clients``. Raises ScenarioError for none of them."""
    if text is None:
        return None
    where = "vflsim timing --clients"
    if text.strip().isdecimal():
        if len(text) > _DIGITS or int(text) < 1:
            raise ScenarioError(f"{text[:_DIGITS]}{'…' if len(text) > _DIGITS else ''}", where, "1 to 999,999,999")
        return int(text)
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ScenarioError(repr(text), where, "a number, or names with commas")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ScenarioError(f"client {twice[0]!r} stands twice", where, "each client once")
    return names
