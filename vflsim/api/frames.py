"""A frame of one's own as the data of a scenario, with defaults for all that is not said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from vflsim.errors import DataError, ScenarioError, VflsimError, nearest
from vflsim.shipped import result_name
from vflsim.streams import few

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from vflsim.learning.data.labels import Survey
    from vflsim.learning.data.table import Table
    from vflsim.scenario.models import Scenario


class ArrowFrame(Protocol):
    """A frame that gives its columns to Arrow, as those of polars do."""

    def to_arrow(self) -> pa.Table:
        """Return the columns."""


Frame: TypeAlias = "pd.DataFrame | ArrowFrame | pa.Table | str | Path"
Said: TypeAlias = "Scenario | str | Path | Mapping[str, Any] | None"
_FORMS = "a frame of pandas or polars, an Arrow table, or the path of a .csv, .csv.gz or .parquet file"
_REPLACED = {"name", "file", "parties", "align", "labels", "label"}
"""Keys of ``data`` that say where data come from: the frame takes their place."""
_NO_FEATURES = ("id", "group", "split_column")
"""Keys of ``data`` that name columns which are no features."""
_UNREADABLE = {
    "text": "text with {0.distinct:,} different values in {1:,} rows",
    "id": "another value in each row",
    "time": "a time",
    "other": "empty, or neither number nor text",
}


@contextmanager
def scenario_for(
    said: Said,
    out: str | Path | None,
    frame: Frame | None,
    label: str | None,
    parties: Mapping[str, Sequence[str]] | None,
    active: str | None,
    protocols: str | Sequence[str] | Mapping[str, Any],
    timing_only: bool,
) -> Iterator[tuple[Scenario, Sequence[str]]]:
    """Give the scenario to run, and which of its protocols (none: all).

    A frame in memory is written beside its results, as Parquet; if the study fails before there are results, that file
    is removed. Errors name the frame in its place. Raises ``ScenarioError`` and ``DataError``.
    """
    from vflsim.scenario.load import as_scenario

    protocols = [protocols] if isinstance(protocols, str) else protocols
    if frame is not None:
        out = Path(out) if out is not None else None
        with _framed(said, out, frame, label, parties, active, protocols, timing_only) as scenario:
            yield scenario, ()
        return
    if alone := [
        key for key, value in (("label", label), ("parties", parties), ("active", active)) if value is not None
    ]:
        what, remedy = f"{alone[0]} says what a frame holds, and there is none", "say frame=…, or leave it out"
        raise ScenarioError(what, "run", "with frame", remedy)
    if said is None:
        raise ScenarioError("there is nothing to run", "run", "a scenario, or frame with label")
    if isinstance(protocols, Mapping):
        what, remedy = "protocols are entries, and the scenario has its own", "write them into the scenario"
        raise ScenarioError(what, "run", "names of its protocols; entries with frame", remedy)
    yield as_scenario(said), protocols


@contextmanager
def _framed(
    said: Said,
    out: Path | None,
    frame: Frame,
    label: str | None,
    parties: Mapping[str, Sequence[str]] | None,
    active: str | None,
    protocols: Sequence[str] | Mapping[str, Any],
    timing_only: bool,
) -> Iterator[Scenario]:
    from vflsim.results.store.write import write_file
    from vflsim.scenario.load import load
    from vflsim.studies.study import default_folder

    raw = _raw(said)
    table = _composed(raw, frame, label, parties, active, protocols)
    if table is None:
        yield load(raw)
        return
    content = _parquet(table.columns)
    beside = Path("results") / str(raw["name"]) if out is None else out
    path = beside.with_name(f"{beside.name}-{sha256(content).hexdigest()[:12]}.parquet").absolute()
    raw["data"]["file"] = str(path)
    scenario = load(raw)  # before anything is written
    folder, made = out or default_folder(scenario, timing_only), not path.exists()
    try:
        if made:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
        yield scenario
    except BaseException as error:
        if made and not folder.exists():
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()
        if isinstance(error, VflsimError):
            error.where = error.where.replace(str(path), "frame")
        raise


def _composed(
    raw: dict[str, Any],
    frame: Frame,
    label: str | None,
    parties: Mapping[str, Sequence[str]] | None,
    active: str | None,
    protocols: Sequence[str] | Mapping[str, Any],
) -> Table | None:
    """Complete ``raw`` to a scenario about a frame; return the columns of one that is no file yet."""
    from vflsim.learning.data.labels import survey

    data = {key: value for key, value in raw.get("data", {}).items() if key not in _REPLACED}
    categorical = _names(data.get("categorical"))
    table = _table(frame, [*categorical, *([] if label is None else [label])])
    if label is None:
        what, remedy = "label is not said: the column to predict", 'name one of the columns: label="y"'
        raise ScenarioError(what, "frame", _some(table.names), remedy)
    contents = survey(table, str(label), categorical).without(_names(data.get("drop")))
    data["file"], data["label"] = str(table.path.absolute()), contents.label
    raw.setdefault("name", result_name(table.path))
    raw["partition"] = _partition(contents, parties, active, raw.get("partition"))
    used = {*contents.features} if parties is None else {name for each in raw["partition"]["columns"] for name in each}
    used |= {str(data[key]) for key in _NO_FEATURES if data.get(key) is not None}
    texts = [column.name for column in contents.of("category") if column.name in used]
    others = [column.name for column in contents.columns if column.name not in used]
    for key, names in (("categorical", texts), ("drop", others)):
        if isinstance(data.get(key, ()), list | tuple):
            data[key] = [*dict.fromkeys([*_names(data.get(key)), *names])]
    for key, value in _defaults(contents.rows, active is not None).items():
        raw.setdefault(key, value)
    raw["data"], raw["protocols"] = data, _protocols(raw["protocols"], protocols)
    return None if isinstance(frame, str | Path) else table


def _names(value: Any) -> list[str]:
    """Return the names in a list of a scenario; none of what is no list, which the scenario then refuses."""
    return [*map(str, value)] if isinstance(value, list | tuple) else []


def _raw(said: Said) -> dict[str, Any]:
    """Return what is said besides the frame, as a mapping that may lack sections."""
    from vflsim.scenario.load import as_scenario

    raw = {} if said is None else dict(said) if isinstance(said, Mapping) else dict(as_scenario(said).document.raw)
    for key in ("data", "partition", "protocols"):
        if key in raw and not isinstance(raw[key], Mapping):
            raise ScenarioError(f"{raw[key]!r} is no section", key, "a mapping of keys to values")
    return raw


def _defaults(rows: int, active: bool) -> dict[str, Any]:
    from vflsim.scenario.document import parse
    from vflsim.scenario.proposal import sections

    raw = parse(sections(rows)).raw
    if active:
        raw["models"]["active"] = raw["models"]["client"]
    return raw


def _table(frame: Any, text: Sequence[str]) -> Table:
    """Return the columns of a frame. Raises DataError for anything else."""
    import pandas as pd
    import pyarrow as pa

    from vflsim.learning.data.labels import table_at
    from vflsim.learning.data.table import Table

    if isinstance(frame, str | Path):
        return table_at(Path(frame), text)
    if not isinstance(frame, pd.DataFrame | pa.Table):
        convert = getattr(frame, "to_arrow", None) or getattr(frame, "to_pandas", None)
        if convert is None:
            raise DataError(f"a {type(frame).__name__} is no frame", "frame", _FORMS)
        frame = convert()
    try:
        columns = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        what, remedy = f"cannot be read as columns: {error}", "give each column a name of its own, and one type"
        raise DataError(what, "frame", "unique names, and values of one type in each column", remedy) from error
    if not columns.num_rows:
        raise DataError("holds no rows", "frame", "at least one row of data")
    return Table(Path("frame"), columns.replace_schema_metadata(None), lambda row: f"row {row + 1}")


def _parquet(columns: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(columns, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _partition(
    contents: Survey, parties: Mapping[str, Sequence[str]] | None, active: str | None, said: Any
) -> dict[str, Any]:
    """Return who holds which columns: as ``parties``, or else the scenario, says; or proposed."""
    from vflsim.scenario.proposal import groups_of

    if parties is None:
        if active is not None:
            what = f"active is {active!r}, but no parties are named"
            raise ScenarioError(what, "active", "one of parties", 'say parties={"bank": ["a", "b"], …}')
        if said is not None:
            return dict(said)
        groups = groups_of(contents)
        return {"by": "explicit", "columns": groups.columns, **({"names": groups.names} if groups.names else {})}
    if not isinstance(parties, Mapping):
        what, remedy = f"parties are a {type(parties).__name__}", 'say parties={"bank": ["a", "b"], "shop": ["c"]}'
        raise ScenarioError(what, "parties", "a mapping of names to columns", remedy)
    held = {
        str(name): [columns] if isinstance(columns, str) else [*map(str, columns)] for name, columns in parties.items()
    }
    if active is not None and active not in held:
        what, remedy = f"there is no party {active!r}", nearest(active, held) or "name the party that holds the label"
        raise ScenarioError(what, "active", _some([*held]), remedy)
    if len(held) <= (active is not None):
        what = "there is no client: no party" + (" besides the active one" if held else "")
        raise ScenarioError(what, "parties", "the names of parties, with the columns that each holds")
    order = sorted(held, key=lambda name: name != active)  # the server's columns come first
    owners: dict[str, str] = {}
    for name in order:
        for column in held[name]:
            _check_column(column, name, owners, contents)
            owners[column] = name
        if not held[name]:
            raise ScenarioError("holds no columns", f"parties: {name}", "at least one", "leave the party out")
    return {"by": "explicit", "columns": [held[name] for name in order], "names": order, "active": active is not None}


def _check_column(column: str, party: str, owners: Mapping[str, str], contents: Survey) -> None:
    """Raise ScenarioError unless a party may hold this column."""
    where = f"parties: {party}"
    known = {each.name: each for each in contents.columns}
    if column == contents.label:
        what, remedy = f"{column!r} is the label", "leave it out: the server holds the label"
        raise ScenarioError(what, where, "columns of features", remedy)
    if column not in known:
        remedy = nearest(column, known) or "correct the name"
        raise ScenarioError(f"there is no column {column!r}", where, _some([*known]), remedy)
    if column in owners:
        again = "twice" if owners[column] == party else f"at {owners[column]!r}, too"
        raise ScenarioError(
            f"the column {column!r} stands {again}", where, "every column once", "leave one of them out"
        )
    if (kind := known[column].kind) in _UNREADABLE:
        what = f"the column {column!r} is {_UNREADABLE[kind].format(known[column], contents.rows)}"
        told = f"{{'data': {{'categorical': [{column!r}]}}}}"
        remedy = f"leave it out, encode it before, or call its values categories: vflsim.run({told}, …)"
        raise ScenarioError(what, where, "numbers, or text that repeats", remedy)


def _protocols(there: Mapping[str, Any], wanted: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the protocols to run: entries, or names of those that the scenario has, or kinds."""
    if isinstance(wanted, Mapping):
        return dict(wanted)
    return {name: there.get(name, {"kind": name}) for name in wanted} or dict(there)


def _some(names: Sequence[str]) -> str:
    return few([repr(name) for name in names])
