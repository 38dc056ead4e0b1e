"""What a scenario about a table of one's own says unless told otherwise: groups of columns, and all other sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_BEGINNING = re.compile(r"([^\W_]+)[\W_]")
_MOST_GROUPS = 8
SECTIONS = """
# Every client turns its columns into an embedding. The server joins the embeddings and predicts from them.
models:
  client: {{kind: mlp, hidden: [16], embedding: 8}}
  aggregate: concat
  server: {{kind: mlp, hidden: [16]}}
training:
  batch: {batch}
  client_optimizer: {{kind: adam, lr: 0.01}}
  server_optimizer: {{kind: adam, lr: 0.01}}
timing:
  server: {{compute: 1 ms}}
  clients: {{compute: 2 ms, upload_delay: {{kind: exponential, mean: 20 ms}}}}
protocols:
  wait: {{kind: synchronous}}
  async: {{kind: asynchronous}}
stop: {{epochs: 20}}
evaluate: {{every: {rounds} rounds}}
"""


class Groups(NamedTuple):
    """Columns in groups, one for each party; ``names`` is empty where the rule gives none. ``rule`` says why so."""

    columns: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    rule: str


def groups_of(columns: Sequence[str]) -> Groups:
    """Propose who holds which columns: by how their names begin, else the first half and the second half.

    A beginning is what stands before the first space, underscore, dot or the like. It counts if all columns have one,
    and two to eight beginnings have two columns at least each.

    Example: ``groups_of(["bank_age", "bank_sum", "shop_visits", "shop_spent"]).names``
    """
    groups: dict[str, list[str]] = {}
    for name in columns:
        beginning = _BEGINNING.match(name)
        groups.setdefault(beginning[1] if beginning else "", []).append(name)
    if "" not in groups and 2 <= len(groups) <= _MOST_GROUPS and min(map(len, groups.values())) >= 2:
        return Groups(tuple(map(tuple, groups.values())), tuple(groups), "grouped by how their names begin")
    half = (len(columns) + 1) // 2
    halves = (tuple(columns[:half]), tuple(columns[half:]))
    return Groups(tuple(filter(None, halves)), (), "cut into two halves, in their order in the file")


def sections(rows: int) -> str:
    """Write the sections about models, training, time, protocols and the end for a table of so many rows, as YAML."""
    training = max(1, rows * 4 // 5)
    batch = 32 if rows < 10_000 else 256
    rounds = max(1, training // batch)  # about an epoch
    return SECTIONS.format(batch=batch if training >= batch else "all", rounds=rounds)
