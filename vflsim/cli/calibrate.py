"""``vflsim calibrate``: the timing of a scenario from a run's events, or from a log of the user's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from vflsim.cli.app import app, console, say
from vflsim.cli.output import Trust

if TYPE_CHECKING:
    from vflsim.timing.measured.calibration import Calibration, FittedTime


@app.command()
def calibrate(
    source: Annotated[Path, typer.Argument(help="A results folder with events, or a log (.csv).", metavar="SOURCE")],
    run: Annotated[
        str | None, typer.Option("--run", help="One of several runs.", metavar="PROTOCOL/SEED", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the timing here (.yaml), in place of printing it.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw measured against fitted times (.png, .svg or .pdf).")
    ] = None,
    alike: Annotated[
        bool, typer.Option("--alike", help="Fit all clients together: one entry, for any number of clients.")
    ] = False,
    after: Annotated[
        float, typer.Option("--after", help="Leave out what begins in the first S seconds.", min=0, metavar="S")
    ] = 0.0,
    trust: Trust = False,
) -> None:
    """Fit compute models, latencies and bandwidths to what was measured, as timing for scenarios."""
    from vflsim.errors import ScenarioError
    from vflsim.scenario import emit

    if out is not None and out.suffix.lower() not in (".yaml", ".yml"):
        raise ScenarioError(f"{out} is no YAML file", "vflsim calibrate --out", "a file that ends in .yaml")
    place = None
    if figure is not None:
        from vflsim.plotting.script import picture_file

        place = picture_file(figure, "calibration", "vflsim calibrate --figure")
    from vflsim.results.store.write import write_file
    from vflsim.studies.calibrate import calibrate as calibrate_source

    found = calibrate_source(source, run, alike=alike, after=after, trust=trust)
    page = console()
    page.print(_table(found))
    for note in found.notes:
        say(note)
    text = emit.dump(found.preset())
    if out is None:
        page.print()
        page.print(Text(text.rstrip()), soft_wrap=True)
    else:
        say(f"{write_file(out, text)}: vflsim run SCENARIO --set timing=null --set timing.preset={out}")
    if place is not None:
        from vflsim.plotting.calibration import calibration

        say(str(write_file(place, calibration(found).rendered(place.suffix))))


def _table(found: Calibration) -> Any:
    from vflsim.tables import DataTable
    from vflsim.vocabulary.amounts import Amount, quantity

    header = ("party", "what", "n", "mean", "law", "fitted", "KS", "R²", "residual p95")
    rows = [
        (
            fit.party,
            fit.activity,
            len(fit.measured.seconds),
            quantity(float(fit.measured.seconds.mean()), "s"),
            fit.law.kind,
            _growth(fit),
            "" if math.isnan(fit.ks) else Amount(fit.ks, form=".3f"),
            "" if math.isnan(fit.r_squared) else Amount(fit.r_squared, form=".3f"),
            quantity(fit.residual_p95, "s"),
        )
        for fit in found.fits
    ]
    notes = [
        "KS: Kolmogorov–Smirnov distance of the law. R²: the share of the variance that the size explains.",
        "Residual p95: 95 % of times are as near to the fitted mean.",
    ]
    return DataTable(header, rows, notes=notes, left=(0, 1, 4, 5))


def _growth(fit: FittedTime) -> str:
    """Say how a time grows with its size, or why it does not."""
    from vflsim.vocabulary.amounts import quantity

    if not fit.per_unit:
        return f"no rate: {fit.why_not}" if fit.why_not else ""
    if fit.additive:
        return f"bytes / {8 * fit.rate / 1e6:.4g} Mbit/s + latency"
    return f"({quantity(fit.fixed, 's')} + FLOPs / {fit.rate / 1e9:.4g} GFLOPS) × law"
