"""A scenario about a table of one's own: what it says unless told otherwise, and comments on what the table holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from vflsim.errors import DataError
from vflsim.learning.data.labels import Survey, SurveyedColumn
from vflsim.streams import few
from vflsim.vocabulary.plain_yaml import WIDTH, dump, flow

_BEGINNING = re.compile(r"([^\W_]+)[\W_]")
_MOST_GROUPS = 8
_KINDS = {
    "number": "numbers",
    "category": "categories",
    "id": "ids",
    "text": "texts",
    "time": "times",
    "other": "empty or neither numbers nor text",
}
_HEAD = """\
# {file}: who learns what about {label}?
#
#   vflsim check {scenario}   what it runs, with durations, bytes and memory
#   vflsim run {scenario}     runs it; results go to results/{name}
# Keys behind a # have their defaults. Any key can be overridden for one run: --set training.batch=64

name: {name}
"""
_ABSENT = (
    "  # id: null # a column that names the rows, and is no feature",
    "  # drop: [] # columns that are no features",
    "  # categorical: [] # columns whose values, text or numbers, are names",
    "  # missing: null # no number is missing; mean, zero or indicator would fill it",
)
"""Keys of ``data`` for which a table gives no reason."""
_OTHER_KEYS = """\
  # encoding: codes # of categories; one_hot: the 0/1 columns themselves are features
  # group: null # a column whose equal values mark rows that belong together, such as a person's
  # test_fraction: 0.2 # of the rows, by split_seed; of each class alike
  # validation_fraction: 0.0 # for early stopping and tuning
  # split_seed: 0
  # split_column: null # a column of train, validation and test, in place of these
  # scale: standard # or minmax, none; fitted on each party's training rows
  # train_rows: null # fewer of the training rows, for a quick trial
"""
_NO_METRICS = "# metrics: {} # further metrics of every evaluation: `vflsim list metrics`"
_FOCAL = "  # {kind: focal} lets easy rows, as those of a frequent class are, count for less than those of a rare one\n"
_F1 = """\
# {}: accuracy hides how they fare, the mean F1 of the classes does not.
metrics: {{f1: {{kind: macro_f1}}}}"""
_SECTIONS = """
# Every client turns its columns into an embedding. The server joins the embeddings and predicts from them.
models:
  client: {{kind: mlp, hidden: [16], embedding: 8}} # or linear, deepfm, …: `vflsim list client-models`
  aggregate: concat # or mean, sum, max, …: `vflsim list aggregates`
  server: {{kind: mlp, hidden: [16]}}
  # active: null # the model of the server's own features, with partition.active
training:
  batch: {batch} # or all
  client_optimizer: {{kind: adam, lr: 0.01}}
  server_optimizer: {{kind: adam, lr: 0.01}}
  # loss: auto # that of the task; `vflsim list losses` shows others
{loss}  # batches: shared # or own: each client draws its own
  # dtype: float32

# How long things take: fixed, random or measured times, and links. `vflsim list delays` shows the laws.
timing:
  # network: fair # how messages share links: `vflsim list networks`
  server: {{compute: 1 ms}}
  clients: {{compute: 2 ms, upload_delay: {{kind: exponential, mean: 20 ms}}}}

# What to compare, under names of your own: `vflsim list protocols`.
protocols:
  wait: {{kind: synchronous}}
  async: {{kind: asynchronous}}

stop: {{epochs: 20}} # or time, rounds, updates, a target, …
evaluate: {{every: {rounds} rounds}} # about an epoch
# target: null # such as {target}: tables say what it costs to reach this
# budget: null # such as {{time: 10 s}}: tables also rank the protocols within it; or rounds, bytes, energy
{metrics}
# measures: {{}} # further columns of the summary: `vflsim list measures`
# seeds: [0] # each protocol runs once with each; 0:5 are five, and intervals need several
# record: events # rounds keeps less, and trains faster
# codec: plain # what messages become on the wire: `vflsim list codecs`
"""


class Groups(NamedTuple):
    """Columns in groups, one for each party, and their ``names`` where the ``rule``, in words, gives them some."""

    columns: list[list[str]]
    names: list[str] | None
    rule: str


def groups_of(table: Survey) -> Groups:
    """Propose who holds which features: by how their names begin, else the first half and the second half.

    A beginning is what stands before the first space, underscore, dot or the like. It counts if all features have one,
    and two to eight beginnings have two features at least each. Raises DataError for a table without features.
    """
    columns = table.features
    if not columns:
        what = "no column besides the label is a number that differs from a count of the rows, or a category"
        raise DataError(what, str(table.path), "at least one feature", "name categories, or encode texts as numbers")
    groups: dict[str, list[str]] = {}
    for name in columns:
        beginning = _BEGINNING.match(name)
        groups.setdefault(beginning[1] if beginning else "", []).append(name)
    if "" not in groups and 2 <= len(groups) <= _MOST_GROUPS and min(map(len, groups.values())) >= 2:
        return Groups([*groups.values()], [*groups], "those whose names begin alike")
    half = (len(columns) + 1) // 2
    halves = [each for each in (columns[:half], columns[half:]) if each]
    return Groups(halves, None, "half of them each, in the order of the file")


def sections(rows: int, table: Survey | None = None) -> str:
    """Write the sections about models, training, time, protocols and the end for a table of so many rows, as YAML."""
    training = max(1, rows * 4 // 5)
    batch = 32 if rows < 10_000 else 256
    rare = "" if table is None else _rare(table)
    regression = table is not None and not table.counts
    return _SECTIONS.format(
        batch=batch if training >= batch else "all",
        rounds=max(1, training // batch),
        loss=_FOCAL if rare else "",
        target="{test_rmse: 1}" if regression else "{test_f1: 0.8}" if rare else "{test_accuracy: 0.9}",
        metrics=_F1.format(rare) if rare else _NO_METRICS,
    )


def proposed(table: Survey, name: str, file: str, scenario: str) -> str:
    """Write a commented scenario called ``name`` about a table.

    ``file`` is the table's path as the scenario says it, ``scenario`` the scenario's own. Raises DataError for labels
    that cannot be learnt, and for a table without features.
    """
    head = _HEAD.format(file=flow(table.path.name), label=flow(table.label), name=name, scenario=scenario)
    return "\n".join([head, _data(table, file), _partition(table)]) + sections(table.rows, table)


def _data(table: Survey, file: str) -> str:
    counted = [
        f"{words} ({len(each)}): {_some(each)}"
        for kind, words in _KINDS.items()
        if (each := [column for column in table.columns if column.kind == kind])
    ]
    ids, categories = table.of("id")[:1], table.of("category")
    dropped = [each for each in table.of("id", "text", "time", "other") if each not in ids]
    gaps = [each for each in table.of("number") if each.missing]
    no_id, no_drop, no_categories, no_gaps = _ABSENT
    lines = [
        *_wrapped(f"{table.rows:,} rows. Columns besides the label: {'; '.join(counted)}."),
        "data:",
        f"  file: {flow(file)}",
        f"  label: {flow(table.label)} # {_label(table)}",
        f"  {_task(table)}",
        f"  id: {flow(ids[0].name)} # another value in each row: no feature" if ids else no_id,
        _line("drop", dropped, f"no features: {_some(dropped)}") or no_drop,
        _line("categorical", categories, f"texts that repeat: {_some(categories, 'values')}") or no_categories,
        *([f"  # empty cells: {_some(gaps, 'rows')}", "  missing: mean # or zero, indicator"] if gaps else [no_gaps]),
        _OTHER_KEYS,
    ]
    return "\n".join(lines)


def _partition(table: Survey) -> str:
    groups = groups_of(table)
    listed = [_listed(each, table.features) for each in groups.columns]
    lines = [
        f"# Who holds which columns: {groups.rule}. `vflsim list partitions` shows other ways.",
        "partition:",
        "  by: explicit",
        "  columns: # a list for each client",
        *(f"    {line}" for line in dump(listed).splitlines()),
        f"  names: {flow(groups.names)}"
        if groups.names
        else "  # names: null # such as [bank, shop], for all that people read",
        "  # active: false # true: the first list is that of the server, which holds the label; say models.active, too",
    ]
    return "\n".join(lines) + "\n"


def _listed(group: Sequence[str], features: Sequence[str]) -> list[str]:
    """Return columns as a range, if they stand side by side, or by their names."""
    start = features.index(group[0])
    side_by_side = len(group) > 2 and list(features[start : start + len(group)]) == list(group)
    return [f"{group[0]}..{group[-1]}"] if side_by_side and not any(".." in name for name in group) else list(group)


def _line(key: str, columns: Sequence[SurveyedColumn], told: str) -> str:
    """Write a key with a list of columns and what is told of them, above it if both are long; nothing without any."""
    names = [each.name for each in columns]
    line = f"  {key}: {flow(names)} # {told}"
    if not columns or len(line) <= WIDTH:
        return line if columns else ""
    return "\n".join(f"  {each}" for each in [*_wrapped(told), *dump({key: names}).splitlines()])


def _label(table: Survey) -> str:
    if not table.counts:
        values = table.target.values
        return f"amounts from {values.min():.6g} to {values.max():.6g}; best scaled to about 1"
    counts = [f"{flow(name)} ({count:,} rows)" for name, count in table.counts.items()]
    return f"{len(counts)} classes, the rarest first: {few(counts)}"


def _task(table: Survey) -> str:
    if table.ambiguous:
        return "task: regression # so many whole numbers are taken for amounts; multiclass takes them for classes"
    return f"# task: auto # {table.target.task}, by the labels; or say binary, multiclass, regression"


def _rare(table: Survey) -> str:
    """Name the rarest class and its share if it has less than half of an even share of the rows."""
    if not table.counts:
        return ""
    name, count = next(iter(table.counts.items()))
    rare = 2 * count * len(table.counts) < table.rows
    return f"{count / table.rows:.1%} of the rows are of class {flow(name)}" if rare else ""


def _some(columns: Sequence[SurveyedColumn], counted: Literal["", "rows", "values"] = "") -> str:
    """Name columns, with the number of their missing ``rows`` or of their different ``values``."""
    amounts = {"": "", "rows": " ({0.missing:,} rows)", "values": " ({0.distinct:,} values)"}[counted]
    return few([flow(each.name) + amounts.format(each) for each in columns])


def _wrapped(text: str) -> Iterator[str]:
    """Write a comment in lines that are not too long."""
    line = "#"
    for word in text.split(" "):
        if len(line) + len(word) > WIDTH:
            yield line
            line = "#"
        line += f" {word}"
    yield line
