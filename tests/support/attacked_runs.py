"""Tiny runs of every protocol kind, kept in folders: their models are rebuilt, and attacked."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from protocols_by_kind import KINDS
from tiny_worlds import raw

from vflsim.results.read import Results
from vflsim.scenario import load
from vflsim.studies.study import run_study

NOTHING_UPLOADED = {
    "centralised": "all features are at the server",
    "local": "no client takes part",
    **dict.fromkeys(("secureboost", "secureboost-first"), "clients upload sums of encrypted gradients"),
    **dict.fromkeys(("he_lr", "he_lr-shares"), "clients upload ciphertexts"),
}
"""Kinds whose server gets no embeddings, and why."""


def finished(protocols: dict[str, Any], folder: Path, **changes: Any) -> Results:
    """The results of a tiny study."""
    more = {"stop": {"rounds": 6}, "seeds": [0], "record": "summary"}
    run_study(load(raw(protocols, **{**more, **changes})), folder)
    return Results.open(folder, trust=True)


def of_kind(kind: str, **changes: Any) -> Results:
    """The results of a kind in ``KINDS``, remembered across tests."""
    key = kind, repr(changes)
    if key not in _kept:
        _kept[key] = finished({kind: KINDS[kind]}, Path(mkdtemp(prefix="vflsim-attacked-")) / "study", **changes)
    return _kept[key]


_kept: dict[tuple[str, str], Results] = {}
