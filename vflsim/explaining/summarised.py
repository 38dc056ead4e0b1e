"""Client summarisation (VIM Table 1): a scenario that trains again with the most, and the least, important clients."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.explaining.explain import Explanation
from vflsim.protocols.defaults import left_out
from vflsim.scenario import emit

_NAME_LENGTH = 64


def summarised(explanation: Explanation, shares: Sequence[float]) -> str:
    """Write the scenario of a study's explained protocols, each with all clients and with parts of them, as YAML.

    For each of ``shares`` (between 0 and 1), ``NAME-top-n`` trains with so many of the most important clients, by the
    mean share of norms over seeds, and ``NAME-bottom-n`` with the least important; n is at least 1. The clients keep
    their delays, batches and initial embedding models. Raises ScenarioError if a protocol cannot leave clients out, or
    if a share leaves none or all of the clients.
    """
    raw = copy.deepcopy(explanation.scenario.document.raw)
    head, entries = [], {}
    for name in explanation.protocols:
        own = explanation.clients[explanation.clients["protocol"] == name]
        order = own.groupby("client")["share"].mean().sort_values(ascending=False, kind="stable").index.tolist()
        entries[name] = raw["protocols"][name]
        for share in shares:
            count = max(1, round(share * len(order)))
            if not 0 < share < 1 or count == len(order):
                what = f"{100 * share:g} % of {len(order)} clients leaves {'none' if share <= 0 else 'nobody out'}"
                raise ScenarioError(what, "vflsim explain --top", "shares between 0 and 100 % that leave somebody out")
            for end, kept in (("top", order[:count]), ("bottom", order[-count:])):
                new = f"{name[: _NAME_LENGTH - 16]}-{end}-{count}"
                entries[new] = _entry(explanation, name, kept)
                head.append(f"# {new}: {end} {100 * share:g} %, clients {', '.join(map(str, sorted(kept)))}")
    raw["name"] = f"{raw['name'][: _NAME_LENGTH - 16]}-summarised"
    raw["protocols"] = entries
    title = "# Clients by the norm of their linear heads, from vflsim explain:"
    return "\n".join([title, *head, "", emit.dump(raw)])


def _entry(explanation: Explanation, name: str, kept: Sequence[int]) -> dict[str, Any]:
    """Return a protocol's entry with these clients alone; overrides stay."""
    scenario = explanation.scenario
    protocol = scenario.protocols[name].protocol
    excluded = tuple(client for client in range(1, scenario.clients + 1) if client not in kept)
    try:
        changed = left_out(protocol, excluded)
    except ValueError as error:
        remedy = "explain others alone: --protocol NAME"
        raise ScenarioError(f"{name}: {error}", "vflsim explain --top", remedy=remedy) from None
    raw = scenario.document.raw["protocols"][name]
    overrides = {key: value for key, value in raw.items() if key not in type(protocol).model_fields}
    return changed.model_dump(mode="json", exclude_none=True) | overrides
