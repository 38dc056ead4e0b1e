"""What a reader of a run's results has to know before believing them."""

from __future__ import annotations

from collections.abc import Iterator

from vflsim.results.facts.stalled import stalled_note
from vflsim.results.store.schema import RunInfo


def cautions(info: RunInfo) -> Iterator[str]:
    """Yield sentences without a full stop on a run that says less than its tables seem to say; none if all is well."""
    if idle := _idle(info):
        yield idle
    if info.stalled:
        yield stalled_note(info.stalled)
    if info.blinding is not None and info.blinding.rounds_missing:
        yield info.blinding.sentence()
    if info.codec is not None and info.codec.saturated:
        yield info.codec.sentence()


def _idle(info: RunInfo) -> str:
    """Name what nobody has done: no round has ended, or no client has changed its model."""
    rounds, updates = (info.counts.get(name, -1) for name in ("rounds", "updates"))
    if info.status != "finished" or rounds < 0:
        return ""
    if rounds == updates == 0 and info.stop_reason == "target":
        return "the initial models meet the target, so nothing was trained: choose a harder one"
    if rounds == updates == 0:
        scores = "" if info.timing_only else ", so the scores are those of untrained models"
        return f"no round has ended and no client has done a step{scores}: see who waits (record: events)"
    if updates == 0 and info.participants:
        return (
            f"no client has done a step in {rounds:,} rounds, so only the server has learnt: "
            'await node.compute(…) of the clients\' operation with counts="update"'
        )
    return ""
