"""The table of what differs between protocols beside timing: of a scenario, or of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflsim.results.facts import Conditions
from vflsim.tables import DataTable

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

CONDITIONS_TITLE = "What differs beside timing"
_HEADER = ("protocol", "features used", "labels at", "optimiser of the clients", "of the server", "local steps")
_IMPORTANCE = 3, 4, 5, 1, 2
_CONDITIONS_NOTE = (
    "Local steps: the steps of a client on what it receives in one exchange. Optimisers: learning rate, then the rest."
)


def conditions_table(by_name: Mapping[str, Conditions]) -> DataTable:
    """Tabulate the conditions of protocols, by their names: a row for each."""
    drops = any(each.party_dropout for each in by_name.values())
    rows = [
        (
            name,
            f"{each.features:,} of {each.features_in_data:,}",
            each.labels,
            "; ".join(each.client_optimizers) or "—",
            "; ".join(each.server_optimizers) or "—",
            str(each.local_steps or "—"),
            *([f"{each.party_dropout:g}"] if drops else []),
        )
        for name, each in by_name.items()
    ]
    header = (*_HEADER, *(["party dropout"] if drops else []))
    importance = (0, *range(len(_HEADER), len(header)), *_IMPORTANCE)
    return DataTable(header, rows, CONDITIONS_TITLE, [_CONDITIONS_NOTE], (0, 2, 3, 4), importance=importance)


def conditions_of_results(results: RunSet) -> DataTable | None:
    """Tabulate the conditions of a study's protocols; None where no run trained."""
    known = {run.protocol: run.info.conditions for run in results.runs if run.info.conditions is not None}
    ordered = {name: known[name] for name in results.protocols if name in known}
    return conditions_table(ordered) if ordered else None
