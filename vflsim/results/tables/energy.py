"""The table of energy by party and by what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflsim.results.store.schema import SERVER
from vflsim.text_table import TextTable
from vflsim.vocabulary.amounts import quantity

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

TITLE = "Energy by party"
_STATES = ("idle", "compute", "radio")
_NOTE = (
    "Means over finished runs, to their ends. Radio: with upload delays. Bytes are the radio's, operations compute's."
)


def energy_table(results: RunSet, each: bool = False) -> TextTable | None:
    """Tabulate the mean energy of a run, in J: a row for the server and one for all clients, or for ``each`` party.

    None where no party of a finished run says what it draws.
    """
    frame = results.energy
    failed = [(run.protocol, run.seed) for run in results.failed]
    frame = frame[[run not in failed for run in zip(frame["protocol"], frame["seed"], strict=True)]]
    if frame.empty:
        return None
    who = frame["party"] if each else frame["party"].where(frame["party"] == SERVER, "clients")
    sums = frame.groupby([frame["protocol"], frame["seed"], who, frame["state"]], sort=False)["joules"].sum()
    means = sums.groupby(["protocol", "party", "state"], sort=False).mean().unstack("state")[[*_STATES]]
    rows = [
        (str(protocol), str(party), *(quantity(float(joules), "J") for joules in (*own, own.sum())))
        for (protocol, party), own in zip(means.index, means.to_numpy(), strict=True)
    ]
    return TextTable(("protocol", "party", *_STATES, "all"), rows, title=TITLE, notes=[_NOTE], left=(0, 1))
