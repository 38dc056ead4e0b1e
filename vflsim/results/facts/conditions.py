"""What protocols differ in beside their timing: features, labels, optimisers and local steps, in ``run.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from vflsim.text_table import TextTable

if TYPE_CHECKING:
    from vflsim.results.read import Results

TITLE = "What differs beside timing"
_HEADER = ("protocol", "features used", "labels at", "optimiser of the clients", "of the server", "local steps")
_NOTE = (
    "Local steps: the steps of a client on what it receives in one exchange. Optimisers: learning rate, then the rest."
)


class Conditions(BaseModel):
    """What a protocol trains with. Protocols that differ in it are not compared by their timing alone.

    ``features`` are those that the trained models see, of all ``features_in_data``. ``client_optimizers`` and
    ``server_optimizers`` are the update rules of the weights there, in words (``adam 0.01``); empty without weights.
    ``local_steps`` is how many steps a client takes on what it receives in one exchange; 0 without clients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    features: int = Field(ge=0)
    features_in_data: int = Field(ge=0)
    labels: Literal["server", "server and clients"]
    client_optimizers: tuple[str, ...]
    server_optimizers: tuple[str, ...]
    local_steps: int = Field(ge=0)


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


def conditions_of_results(results: Results) -> TextTable | None:
    """Tabulate the conditions of a study's protocols; None where no run trained, or none has them (older versions)."""
    found = {run.protocol: run.info.conditions for run in results.runs if run.info.conditions is not None}
    ordered = {name: found[name] for name in results.protocols if name in found}
    return conditions_table(ordered) if ordered else None
