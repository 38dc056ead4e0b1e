"""Decides whether a checkpoint reached under one set of stop rules is also reachable under another.

The end of a run does not affect anything before it. The exception is noise that is calibrated for the whole run
(``scenario.depends.course_part``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vflsim.scenario.stop import Stop
from vflsim.vocabulary.stop_rule import StopRule
from vflsim.vocabulary.targets import Target

Rules = Mapping[str, Any]
"""Stop rules as plain values, by name."""
Place = Mapping[str, float]
"""The progress of a run: ``time``, ``rounds``, ``updates`` and ``wall_clock`` (times in seconds)."""


def rules_of(stop: Stop) -> dict[str, Any]:
    """Return stop rules as plain values, which JSON can hold."""
    rules = stop.model_dump(mode="json", exclude_none=True, exclude={"rules"})
    if stop.rules is not None:
        rules["rules"] = {name: _plain(rule) for name, rule in stop.rules.items()}
    if stop.target is not None and stop.target.better:
        rules["target"]["better"] = dict(stop.target.better)
    return rules


def _plain(rule: StopRule) -> dict[str, Any]:
    return {"class": f"{type(rule).__module__}:{type(rule).__qualname__}", **rule.model_dump(mode="json")}


def hindrance(place: Place, before: Rules, now: Rules) -> str:
    """Name a rule of ``now`` that may end a run before ``place``, which it reached under ``before``; empty for none."""
    return next((rule for rule, limit in now.items() if not _passes(rule, limit, before.get(rule), place)), "")


def ends_alike(reason: str | None, end: Place, before: Rules, now: Rules) -> bool:
    """Whether a run that the rule ``reason`` of ``before`` ended at ``end`` also ends there under ``now``."""
    reason = "rules" if reason in before.get("rules", {}) else reason
    if reason is None or reason not in now or now[reason] != before.get(reason):
        return False
    others = {rule: limit for rule, limit in now.items() if rule != reason}
    return not hindrance(end, before, others)


def _passes(rule: str, limit: Any, before: Any, place: Place) -> bool:
    if rule in place:
        return bool(limit > place[rule])
    if before is None:
        return False
    match rule:
        case "epochs" | "epsilon":
            return bool(limit >= before)
        case "precision":
            tighter = limit["round_duration"] <= before["round_duration"]
            return bool(tighter and limit["confidence"] == before["confidence"])
        case "rules":
            return all(before.get(name) == rule for name, rule in limit.items())
        case "target":
            better = limit.get("better", {})
            return limit["held"] == before["held"] and all(
                metric in before["values"]
                and better.get(metric) == before.get("better", {}).get(metric)
                and Target(metric, before["values"][metric], better=better.get(metric)).met(value)
                for metric, value in limit["values"].items()
            )
    return False
