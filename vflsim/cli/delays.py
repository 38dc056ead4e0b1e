"""``vflsim delays`` and ``vflsim calibrate``: show distributions of delays, fit them and links to measurements."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import vflsim
from vflsim.cli.app import Application, Trust, app, console, say
from vflsim.errors import ScenarioError, VflsimError
from vflsim.vocabulary.amounts import Amount, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from vflsim.api.fits import Fits
    from vflsim.tables import Cell
    from vflsim.timing.delays import DelayKind
    from vflsim.timing.measured.calibration import Calibration, FittedTime
    from vflsim.timing.measured.fitting import Fit

delays_app = Application(help="Distributions of delays: show one, or fit some to measurements.", no_args_is_help=True)
app.add_typer(delays_app, name="delays")

_LONG, _DIGITS = 40, 6
"""The most characters of a number in a formula; others are written to so many digits."""
FIGURES = Path("results", "delay-figures")
"""Default folder of figures."""


@delays_app.command("show")
def show_command(
    law: Annotated[str, typer.Argument(help="A delay as in a scenario: '{kind: exponential, mean: 2 s}'.")],
    out: Annotated[Path, typer.Option("--out", help="The figure (.png, .svg or .pdf), or its folder.")] = FIGURES,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    samples: Annotated[int, typer.Option(help="Number of samples.", min=100, max=10_000_000)] = 100_000,
) -> None:
    """Print moments and quantiles of a delay; draw its density, cdf and survival over samples."""
    delay = _delay(law)
    import numpy as np

    from vflsim.plotting import delays as plots
    from vflsim.plotting.script import picture_file
    from vflsim.results.store.write import write_file
    from vflsim.streams import BLOCK, Uniforms
    from vflsim.timing.measured.fitting import LEVELS

    place = picture_file(out, _file_name(law), "vflsim delays show --out")
    page, table = console(), Table.grid(padding=(0, 3, 0, 0))
    variance = delay.variance()
    shortest, longest = delay.support
    facts = [
        ("mean", _time(delay.expectation())),
        ("variance", f"{variance:.6g} s²"),
        ("standard deviation", _time(variance**0.5)),
        ("support", f"{_time(shortest)} to {_time(longest)}"),
        *((f"{100 * q:g} %", _time(float(delay.quantile(q)))) for q in LEVELS),
    ]
    for name, value in facts:
        table.add_row(name, Text(value, justify="right"))
    page.print(table)
    page.print()
    say(_formula(delay))
    if not plots.can_draw(delay):
        say(f"no figure: its times must be distinct, and between {plots.SHORTEST:g} s and {plots.LONGEST:g} s")
        return
    uniforms = Uniforms(seed, 0, "show").blocks(0, -(-samples // BLOCK), delay.uniforms)
    picture = plots.law(delay, np.asarray(delay.sample(uniforms))[:samples], law)
    say(str(write_file(place, picture.rendered(place.suffix))))


@delays_app.command("fit")
def fit_command(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet, NPY, or text with one number a line.", metavar="FILE")],
    column: Annotated[str | None, typer.Option(help="Column of a table.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the values: s, ms, us, ns, min, h.")] = "s",
    out: Annotated[Path, typer.Option("--out", help="The figure (.png, .svg or .pdf), or its folder.")] = FIGURES,
) -> None:
    """Fit every family to measured delays by maximum likelihood; rank by AIC, an exponential before its near equals."""
    from vflsim.plotting.script import picture_file
    from vflsim.results.store.write import write_file
    from vflsim.timing.measured.fitting import LEVEL, SAMPLES

    place = picture_file(out, f"{file.stem}-fit", "vflsim delays fit --out")
    fits = vflsim.fit(file, column=column, unit=unit)
    observed = fits.observed
    page = console()
    say(f"{file}: {len(observed):,} observations, mean {_time(observed.mean())}, median {_time(_median(observed))}")
    page.print()
    page.print(_ranking(fits))
    say(
        "Ranked by AIC. The exponential law stands before all that are not clearly better than it (likelihood-ratio "
        f"test at {100 * LEVEL:g} %)."
    )
    say(
        f"KS: Kolmogorov–Smirnov distance. p: from {SAMPLES} samples of each fitted law, fitted again, so the least is "
        f"{1 / (SAMPLES + 1):g}; none where too few can be fitted. A law is rejected unless p > {LEVEL:g}. The best of "
        "several laws is best partly by chance."
    )
    page.print()
    _recommend(page, fits)
    page.print()
    picture = fits.figure()
    say(str(write_file(place, picture.rendered(place.suffix))))


def _recommend(page: Console, fits: Fits) -> None:
    """Print what a scenario can take: the best law that is not rejected, if there is one, and the delays themselves."""
    from vflsim.tables import DataTable
    from vflsim.timing.measured.fitting import quantiles
    from vflsim.vocabulary import plain_yaml

    def entry(title: str, delay: dict[str, Any]) -> None:
        page.print(Text(f"# {title}\n{plain_yaml.dump({'upload_delay': delay})}".rstrip()), soft_wrap=True)

    themselves = "the observations themselves"
    if fits.good and fits.best.delay is not None and fits.best.rejected:
        rows = quantiles(fits.best.delay, fits.observed)
        worst = max(rows, key=lambda row: row.errors)
        times = [[Amount(each, "s", form=".6g") for each in (row.observed, row.law)] for row in rows]
        cells: list[tuple[Cell, ...]] = [
            (f"{100 * row.level:g} %", *each) for row, each in zip(rows, times, strict=True)
        ]
        where = f"the {worst.part} (at {100 * worst.level:g} %)"
        title = f"{fits.best.kind}, the first in rank, is rejected: it misses {where} most"
        page.print(DataTable(("quantile", "observed", fits.best.kind), cells, title=title))
        page.print()
    if fits.recommended is not None:
        entry(f"the best law that is not rejected: {fits.recommended.kind}", fits.entry)
    elif fits.good:
        say("None of these laws fits. If one of them were right, that would be said of about 1 in 100 files at most.")
        themselves += ", which a scenario should take here"
    if fits.resampled is not None:
        entry(themselves, fits.resampled)


def _delay(text: str) -> DelayKind:
    """Parse a delay, as in a scenario. Modules of the user's own may stand in the working directory."""
    from pydantic import TypeAdapter, ValidationError

    from vflsim.scenario import own_modules
    from vflsim.scenario.document import Document, failure
    from vflsim.scenario.translation import Known, problems_of
    from vflsim.timing.delays import AnyDelay
    from vflsim.vocabulary.plain_yaml import parse_value

    name = "vflsim delays show"
    raw, origins = parse_value(text, name)
    if problems := own_modules.look_in_folder(own_modules.rooted({"delay": raw}, Path())):
        raise failure(problems, Document({}, name))
    adapter: TypeAdapter[DelayKind] = TypeAdapter(AnyDelay)
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        raise failure(problems_of(error, raw, Known(raw, adapter.json_schema)), Document(raw, name, origins)) from None


def _ranking(fits: Iterable[Fit]) -> Any:
    from vflsim.api.fits import parameters_of
    from vflsim.tables import DataTable

    header = ("family", "AIC", "log-likelihood", "KS", "p", "parameters")
    rows: list[tuple[Cell, ...]] = []
    for fit in fits:
        if fit.delay is None:
            rows.append((fit.kind, "", "", "", "", f"no fit: {fit.why_not}"))
            continue
        parameters = ", ".join(f"{key} = {_short(value)}" for key, value in parameters_of(fit.delay).items())
        p_value = "" if math.isnan(fit.ks_p_value) else Amount(fit.ks_p_value, form=".2g")
        sizes = (Amount(each, form=",.1f") for each in (fit.aic, fit.log_likelihood))
        rows.append((fit.kind, *sizes, Amount(fit.ks_statistic, form=".4f"), p_value, parameters))
    return DataTable(header, rows, left=(0, 5))


def _file_name(law: str) -> str:
    """Turn a delay into a file name: ``kind-gamma-shape-2-mean-1-s``."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", law).strip("-.").lower()[:60].strip("-.") or "delay"


def _short(value: Any) -> str:
    return f"[{', '.join(map(_short, value))}]" if isinstance(value, list) else f"{value:.5g}"


def _formula(delay: DelayKind) -> str:
    import sympy

    x = sympy.Symbol("x", real=True)
    try:
        formula = delay.sympy(x)
        long = {
            number: sympy.Float(number, _DIGITS) for number in formula.atoms(sympy.Rational) if len(str(number)) > _LONG
        }
        return f"P(delay ≤ x) = {formula.xreplace(long)}"
    except VflsimError as error:
        return f"no formula: {error.what}"
    except RecursionError:  # from sympy, for extreme parameters
        return "no formula: it is too long"


def _time(seconds: float) -> str:
    return f"{float(seconds):.6g} s"


def _median(observed: Any) -> float:
    return float(observed[(len(observed) - 1) // 2])


@app.command()
def calibrate(
    source: Annotated[
        Path | None, typer.Argument(help="A results folder with events, or a log (.csv).", metavar="SOURCE")
    ] = None,
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
    encryption: Annotated[
        bool, typer.Option("--encryption", help="Measure what ciphertexts take on this machine, as codecs.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Fit compute models, latencies and bandwidths to what was measured, as timing for scenarios."""
    from vflsim.vocabulary import plain_yaml

    if encryption != (source is None) or (encryption and (run or out or figure)):
        what = "--encryption beside another source or option" if encryption else "no source"
        raise ScenarioError(what, "vflsim calibrate", "a results folder, a log (.csv), or --encryption by itself")
    if source is None:
        _measure_encryption()
        return
    if out is not None and out.suffix.lower() not in (".yaml", ".yml"):
        raise ScenarioError(f"{out} is no YAML file", "vflsim calibrate --out", "a file that ends in .yaml")
    place = None
    if figure is not None:
        from vflsim.plotting.script import picture_file

        place = picture_file(figure, "calibration", "vflsim calibrate --figure")
    from vflsim.results.store.write import write_file
    from vflsim.studies.calibrate import calibrate as calibrate_source

    fitted = calibrate_source(source, run, alike=alike, after=after, trust=trust)
    page = console()
    page.print(_table(fitted))
    for note in fitted.notes:
        say(note)
    text = plain_yaml.dump(fitted.preset())
    if out is None:
        page.print()
        page.print(Text(text.rstrip()), soft_wrap=True)
    else:
        say(f"{write_file(out, text)}: vflsim run SCENARIO --set timing=null --set timing.preset={out}")
    if place is not None:
        from vflsim.plotting.delays import calibration

        say(str(write_file(place, calibration(fitted).rendered(place.suffix))))


def _measure_encryption() -> None:
    """Print a codec with measured times for each size of key that has a library here."""
    from vflsim.codecs.measurement import measure

    for codec in measure():
        assert codec.times is not None
        times = ", ".join(f"{key}: {1e6 * value:.6g} us" for key, value in codec.times)
        size = "key" if codec.kind == "paillier" else "degree"
        say(f"codec: {{kind: {codec.kind}, {size}: {codec.cipher_size}, times: {{{times}}}}}")


def _table(fitted: Calibration) -> Any:
    from vflsim.tables import DataTable

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
        for fit in fitted.fits
    ]
    notes = [
        "KS: Kolmogorov–Smirnov distance of the law. R²: the share of the variance that the size explains.",
        "Residual p95: 95 % of times are as near to the fitted mean.",
    ]
    return DataTable(header, rows, notes=notes, left=(0, 1, 4, 5))


def _growth(fit: FittedTime) -> str:
    """Say how a time grows with its size, or why it does not."""
    if not fit.per_unit:
        return f"no rate: {fit.why_not}" if fit.why_not else ""
    if fit.additive:
        return f"bytes / {8 * fit.rate / 1e6:.4g} Mbit/s + latency"
    return f"({quantity(fit.fixed, 's')} + FLOPs / {fit.rate / 1e9:.4g} GFLOPS) × law"
