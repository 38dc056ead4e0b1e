"""The table of what protocols differ in beside their timing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflsim.results.facts.conditions import Conditions
from vflsim.text_table import TextTable

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

TITLE = "What differs beside timing"
_HEADER = ("protocol", "features used", "labels at", "optimiser of the clients", "of the server", "local steps")
_NOTE = (
    "Local steps: the steps of a client on what it receives in one exchange. Optimisers: learning rate, then the rest."
)


def conditions_table(found: Mapping[str, Conditions]) -> TextTable:
    """Tabulate the conditions of protocols, by their names: a row for each."""
    rows = [
        (
            name,
            f"{each.features:,} of {each.features_in_data:,}",
            each.labels,
            "; ".join(each.client_optimizers) or "—",
            "; ".join(each.server_optimizers) or "—",
            str(each.local_steps or "—"),
        )
        for name, each in found.items()
    ]
    return TextTable(_HEADER, rows, title=TITLE, notes=[_NOTE], left=(0, 2, 3, 4))


def conditions_of_results(results: RunSet) -> TextTable | None:
    """Tabulate the conditions of a study's protocols; None where no run trained."""
    found = {run.protocol: run.info.conditions for run in results.runs if run.info.conditions is not None}
    ordered = {name: found[name] for name in results.protocols if name in found}
    return conditions_table(ordered) if ordered else None
