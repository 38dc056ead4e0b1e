"""The section of a report about one results folder, its scenario in words, and what its protocols differ in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from vflsim.errors import ResultsError
from vflsim.files import text
from vflsim.kinds import TABLES
from vflsim.party_names import names_of
from vflsim.plotting.style import metric_label
from vflsim.reporting.answer import Conclusion, answer, closed_forms, left_out, measures, reasons
from vflsim.reporting.figures import BRIEF, CAPTIONS, Drawn, Ink, curves, drawn, looks, timeline
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.folder import MANIFEST, SCENARIO
from vflsim.results.store.manifest import Manifest
from vflsim.results.tables import comparison_table, difference_table
from vflsim.results.tables.ranking import budget_tables
from vflsim.results.tables.sections import ENERGY_TITLE, answers_table, conditions_of_results, energy_table
from vflsim.tables import DataTable
from vflsim.tables.formats import TABLES_FILE, unpacked
from vflsim.vocabulary.amounts import Amount

ROWS = 300
"""Most rows of a table."""
_WHOLE = {ENERGY_TITLE: "energy_by_party.parquet of each run"}
"""What has all rows of a table, by its title."""
VIEWS = ("explained", "evaluated")
"""Ends of the names of folders beside the results that have tables, too."""


@final
@dataclass(frozen=True)
class Section:
    """The content of a report's section about one results folder; ``data`` is that of its charts."""

    key: str
    name: str
    lead: str
    answer: Conclusion
    comparison: DataTable
    budgets: list[DataTable]
    reasons: DataTable | None
    data: dict[str, Any]
    figures: list[Drawn]
    facts: list[tuple[str, str]]
    described: list[DataTable]
    scenario: str
    more: list[DataTable]
    views: list[DataTable]
    failed: DataTable | None
    repeat: str
    versions: DataTable
    hashes: DataTable | None


def section(results: Results, ink: Ink, key: str, brief: bool, share: float) -> Section:
    """Make the section of a results folder; ``key`` begins the ids of its elements. Raises ResultsError.

    ``brief``: with the most telling figures alone; ``share`` of a page's size for the data of its charts.
    """
    summary = results.estimates()
    figures = drawn(results, ink, f"{key}-", {name: CAPTIONS[name] for name in BRIEF} if brief else CAPTIONS)
    numbers = {each.name: each.numbers for each in figures}
    charted = {
        "curves": curves(results, numbers, share),
        "timeline": timeline(results, share),
        "looks": looks(results),
    }
    more = [
        closed_forms(results),
        left_out(results),
        energy_table(results, each=True),
        answers_table(results),
        measures(results, summary),
        difference_table(results, summary),
    ]
    return Section(
        key=key,
        name=results.name,
        lead=_lead(results),
        answer=answer(results, summary, numbers),
        comparison=replace(comparison_table(results), title="Comparison"),
        budgets=budget_tables(results),
        reasons=reasons(results, numbers),
        data=charted,
        figures=figures,
        facts=[*facts(results)],
        described=[each for each in (protocols(results), conditions_of_results(results), timing(results)) if each],
        scenario=text(results.folder / SCENARIO),
        more=[each.limited(ROWS, _WHOLE.get(each.title, "summary.parquet")) for each in more if each],
        views=[*_views(results.folder)],
        failed=failed(results.runs),
        repeat=_repeat(results),
        versions=versions(results.runs),
        hashes=_hashes(results),
    )


def _lead(results: Results) -> str:
    """Count what was run."""
    seconds = sum(run.info.wall_clock_s for run in results.runs)
    timing = ", timing only" if all(run.info.timing_only for run in results.runs) else ""
    protocols, seeds = len(results.protocols), len(results.seeds)
    counted = f"{protocols} protocol{'s' * (protocols != 1)}, {seeds} seed{'s' * (seeds != 1)}"
    return f"{counted}, {len(results.runs)} runs{timing}; {Amount(seconds, 's', form='three')} of computing"


def _views(folder: Path) -> Iterator[DataTable]:
    """Read the tables that ``vflsim explain`` and ``vflsim evaluate`` have written beside the results."""
    whole = folder.resolve()
    for end in VIEWS:
        place = whole.with_name(f"{whole.name}-{end}") / TABLES_FILE
        if place.is_file():
            try:
                yield from unpacked(text(place))
            except ValueError:
                raise ResultsError("holds no tables of vflsim", str(place), remedy=f"remove {place.parent}") from None


def failed(runs: Iterable[StoredRun]) -> DataTable | None:
    """List the runs that failed with their errors; None if there are none."""
    rows = [(run.protocol, str(run.seed), run.info.status, run.info.error or "—") for run in runs if run.failed]
    header = ("protocol", "seed", "how", "why")
    return DataTable(header, rows, "Runs that failed", left=(0, 2, 3)).limited(ROWS, "run.json") if rows else None


def _repeat(results: Results) -> str:
    """Return the commands that repeat the study."""
    version = _one(run.info.versions.get("vflsim", "") for run in results.runs)
    timing = " --timing-only" if all(run.info.timing_only for run in results.runs) else ""
    threads = _one(str(run.info.threads) for run in results.runs)
    threads = "" if threads in ("", "1") else f" --threads {threads}"
    install = f"pip install -c constraints.txt -e .   # in the source folder of vflsim {version}".rstrip()
    return f"{install}\nvflsim run {SCENARIO}{timing}{threads}   # {SCENARIO} holds the text above"


def versions(runs: Sequence[StoredRun]) -> DataTable:
    """List versions and the machine, and what differs between runs."""
    names = dict.fromkeys(name for run in runs for name in run.info.versions)
    rows = [(name, _each(run.info.versions.get(name, "—") for run in runs)) for name in names]
    rows += [("device", _each(run.info.device for run in runs))]
    rows += [("threads", _each(str(run.info.threads) for run in runs))]
    rows += [("path", _each(run.info.path for run in runs))]
    same = all(run.info.reproducible for run in runs)
    note = (
        "The same versions, device and threads give the same tables, byte for byte."
        if same
        else "Some runs stopped by the wall clock or ran in real time: repeating them gives other tables."
    )
    return DataTable(("what", "which"), rows, "Versions", (note,), (0, 1))


def _hashes(results: Results) -> DataTable | None:
    """List the digests of the study's files; None if it has no manifest."""
    manifest = Manifest.read(results.folder)
    if manifest is None:
        return None
    rows = [(name, facts.sha256) for name, facts in sorted(manifest.files.items())]
    notes = (f"SHA-256, as in {MANIFEST}; each run.json has those of its run’s tables. vflsim verify compares them.",)
    return DataTable(("file", "SHA-256"), rows, "Digests", notes, (0, 1)).limited(ROWS, MANIFEST)


def _one(values: Iterator[str]) -> str:
    """Return the value that all runs share, else nothing."""
    distinct = {*values}
    return distinct.pop() if len(distinct) == 1 else ""


def _each(values: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(values))


_SECTIONS = {
    "data": "Data",
    "partition": "Clients",
    "models": "Models",
    "training": "Training",
    "codec": "Codec",
    "stop": "A run stops at",
    "evaluate": "Evaluation",
}
_ELSEWHERE = {"name", "protocols", "timing", "seeds", "target", "budget"}


def in_words(value: Any) -> str:
    """Write a part of a scenario in words: ``polynomial (degree 2, embedding 32)``, ``300 Mbps``."""
    if isinstance(value, Mapping):
        rest = {key: item for key, item in value.items() if key != "kind"}
        if value.get("kind") == "constant" and {*rest} == {"value"}:
            return in_words(rest["value"])
        pairs = ", ".join(f"{str(key).replace('_', ' ')} {in_words(item)}" for key, item in rest.items())
        kind = str(value.get("kind", "")).replace("_", "-")
        if not kind:
            return pairs
        return f"{kind} ({pairs})" if pairs else kind
    if isinstance(value, list):
        return ", ".join(map(in_words, value)) if value else "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def facts(results: Results) -> Iterator[tuple[str, str]]:
    """Yield a heading and a sentence for each part of the scenario, those that all protocols share."""
    info, scenario = results.runs[0].info, results.scenario
    clients = sorted({client for run in results.runs for client in run.info.participants})
    yield "Parties", f"a server and {len(clients)} client{'s' * (len(clients) != 1)}"
    yield "Seeds", ", ".join(map(str, results.seeds))
    if targets := results.targets:
        yield "Target", "; ".join(metric_label(str(target)) for target in targets)
    if results.budgets:
        yield "Budget", "; ".join(map(str, results.budgets))
    for key, heading in _SECTIONS.items():
        if key in scenario:
            text = in_words(scenario[key]).removeprefix("name ").removeprefix("clients ")
            rows = ", ".join(f"{count:,} {split}" for split, count in info.rows.items())
            yield heading, f"{text}; {rows} rows" if key == "data" and rows else text
    for key, value in scenario.items():
        if key not in _SECTIONS and key not in _ELSEWHERE:
            yield str(key).replace("_", " ").capitalize(), in_words(value)


def timing(results: Results) -> DataTable | None:
    """Make the table of parties' timing: the server, then each selection of clients; later rows refine earlier ones."""
    block = results.scenario.get("timing")
    if not isinstance(block, Mapping):
        return None
    rows = [("server", block["server"])] if isinstance(block.get("server"), Mapping) else []
    clients, names = block.get("clients"), names_of(results.scenario).values()
    for each in clients if isinstance(clients, list) else [clients]:
        if isinstance(each, Mapping):
            rest = {key: value for key, value in each.items() if key != "select"}
            select = in_words(each.get("select", "all"))
            title = select if select in names else "all clients" if select == "all" else f"clients {select}"
            rows.append((title, rest))
    keys = list(dict.fromkeys(key for _, row in rows for key in row))
    cells = [(name, *(in_words(row[key]) if key in row else "" for key in keys)) for name, row in rows]
    header = ("party", *(key.replace("_", " ") for key in keys))
    others = {key: value for key, value in block.items() if key not in ("server", "clients")}
    notes = [f"{in_words(others)}"] if others else []
    notes += ["Later rows refine earlier ones. i counts the clients of a selection, m all clients; N is their number."]
    return DataTable(header, cells, "Timing", notes, range(len(header))) if rows else None


def protocols(results: Results) -> DataTable:
    """Make the table of the protocols: a description of each, and their differences."""
    meaning = {
        str(kind.model_fields["kind"].default): (kind.__doc__ or "").strip().splitlines()[0].replace("``", "")
        for kind in TABLES["protocols"]
    }
    rows = []
    for name in results.protocols:
        entry = results.scenario["protocols"].get(name)
        entry = {"kind": entry} if isinstance(entry, str) else dict(entry or {})
        kind = str(entry.pop("kind", name))
        short = meaning.get(kind, "a protocol of the scenario’s own")
        rows.append((name, kind.replace("_", "-"), short, in_words(entry) or "—"))
    header = ("protocol", "kind", "in short", "its own settings")
    return DataTable(header, rows, "Protocols", left=(0, 1, 2, 3))
