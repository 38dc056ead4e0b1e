"""Which knob an error is about, so that the page can show it beside that knob."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vflsim.errors import VflsimError
from vflsim.exploring.knobs import Knobs

_PLACES = (
    (re.compile(r"timing\.clients(\.\d+)?\.upload_delay\b"), "delay"),
    (re.compile(r"timing\.clients(\.\d+)?\.select\b"), "stragglers"),
    (re.compile(r"timing\.network\b"), "network"),
    (re.compile(r"timing\.(server|clients(\.\d+)?)\.link\.(up|down)\b"), "bandwidth"),
    (re.compile(r"timing\.(server|clients(\.\d+)?)\.link\.latency\b"), "latency"),
    (re.compile(r"(protocols\.[\w+-]+\.)?training\.batch\b"), "batch"),
    (re.compile(r"protocols\.[\w+-]+\.([tKT])\b"), ""),
    (re.compile(r"partition\b"), "clients"),
)
"""Keys of a scenario, and the knob that sets them (empty: the one that the key names)."""


def complaints(error: VflsimError) -> list[dict[str, Any]]:
    """Return the problems of an error: the ``text`` of each, and the ``knob`` it is about (None: no single one)."""
    head, *rest = str(error).splitlines()
    parts = [line.strip() for line in rest] if re.search(r"\b\d+ problems$", head) else [str(error)]
    return [{"knob": _knob(text), "text": text} for text in parts]


def _knob(text: str) -> str | None:
    return next(_found(text), None)


def _found(text: str) -> Iterator[str]:
    first = re.match(r"(\w+)\b", text)
    if first and first[1] in Knobs.model_fields:
        yield first[1]
    for place, knob in _PLACES:
        if match := place.match(text):
            yield knob or match[1]
