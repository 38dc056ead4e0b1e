"""Decides whether a checkpoint reached under one set of stop rules is also reachable under another.

The end of a run does not affect anything before it. The exception is noise that is calibrated for the whole run
(``scenario.depends.course_part``).
"""

from __future__ import annotations

from collections.abc import Mapping

from vflsim.stopping.end_rule import Plain
from vflsim.stopping.rules import RULES

Rules = Mapping[str, Plain]
"""Stop rules as plain values, by name."""
Place = Mapping[str, float]
"""The progress of a run: ``time``, ``rounds``, ``updates`` and ``wall_clock`` (times in seconds)."""


def hindrance(place: Place, before: Rules, now: Rules) -> str:
    """Name a rule of ``now`` that may end a run before ``place``, which it reached under ``before``; empty for none."""

    def passes(key: str, limit: Plain) -> bool:
        if key in place:
            return bool(limit > place[key])
        return key in before and RULES[key].later(limit, before[key])

    return next((key for key, limit in now.items() if not passes(key, limit)), "")


def ends_alike(reason: str | None, end: Place, before: Rules, now: Rules) -> bool:
    """Whether a run that ``reason``, by a rule of ``before``, ended at ``end`` also ends there under ``now``."""
    key = next((key for key, rule in RULES.items() if reason in rule.reasons(before.get(key))), None)
    if key is None or key not in now or now[key] != before.get(key):
        return False
    others = {other: limit for other, limit in now.items() if other != key}
    return not hindrance(end, before, others)
