"""Describes the scenario of a results folder in words, and the differences between its protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vflsim.kinds import TABLES
from vflsim.plotting.style import metric_label
from vflsim.reporting.tables import Sheet
from vflsim.results.read import Results
from vflsim.results.statistics.targets import targets_of
from vflsim.results.tables.sections import conditions_of_results

_SECTIONS = {
    "data": "Data",
    "partition": "Clients",
    "models": "Models",
    "training": "Training",
    "codec": "Codec",
    "stop": "A run stops at",
    "evaluate": "Evaluation",
}
_ELSEWHERE = {"name", "protocols", "timing", "seeds", "target"}


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
    if targets := targets_of(results):
        yield "Target", "; ".join(metric_label(str(target)) for target in targets)
    for key, heading in _SECTIONS.items():
        if key in scenario:
            text = in_words(scenario[key]).removeprefix("name ").removeprefix("clients ")
            rows = ", ".join(f"{count:,} {split}" for split, count in info.rows.items())
            yield heading, f"{text}; {rows} rows" if key == "data" and rows else text
    for key, value in scenario.items():
        if key not in _SECTIONS and key not in _ELSEWHERE:
            yield str(key).replace("_", " ").capitalize(), in_words(value)


def timing(results: Results) -> Sheet | None:
    """Make the table of parties' timing: the server, then each selection of clients; later rows refine earlier ones."""
    said = results.scenario.get("timing")
    if not isinstance(said, Mapping):
        return None
    rows = [("server", said["server"])] if isinstance(said.get("server"), Mapping) else []
    clients = said.get("clients")
    for each in clients if isinstance(clients, list) else [clients]:
        if isinstance(each, Mapping):
            rest = {key: value for key, value in each.items() if key != "select"}
            select = in_words(each.get("select", "all"))
            rows.append(("all clients" if select == "all" else f"clients {select}", rest))
    keys = list(dict.fromkeys(key for _, row in rows for key in row))
    cells = tuple((name, *(in_words(row[key]) if key in row else "" for key in keys)) for name, row in rows)
    header = ("party", *(key.replace("_", " ") for key in keys))
    others = {key: value for key, value in said.items() if key not in ("server", "clients")}
    notes = [f"{in_words(others)}"] if others else []
    notes += ["Later rows refine earlier ones. i counts the clients of a selection, m all clients; N is their number."]
    return Sheet("Timing", header, cells, tuple(notes), tuple(range(len(header)))) if rows else None


def protocols(results: Results) -> Sheet:
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
    return Sheet("Protocols", header, tuple(rows), left=(0, 1, 2, 3))


def conditions(results: Results) -> Sheet | None:
    """Make the table of differences besides timing: features, labels, optimisers and local steps."""
    table = conditions_of_results(results)
    return None if table is None else Sheet.of(table)
