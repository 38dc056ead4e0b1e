"""Clients that a run ended without: they waited for what could no longer come."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field


class StalledClient(BaseModel):
    """A client that has been of no use for long, though it is up and takes part.

    It has waited for ``kind`` of ``round`` since ``since_s`` (s). So many ``rounds`` have been completed since, and
    nothing under way can answer it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: int = Field(ge=1)
    kind: str
    round: int
    since_s: float = Field(ge=0)
    rounds: int = Field(ge=1)

    def said(self) -> str:
        """The fact as a sentence."""
        return (
            f"client {self.client} has waited for {self.kind!r} of round {self.round} since {self.since_s:.6g} s; "
            f"{self.rounds:,} rounds have been completed since, and nothing under way can answer it"
        )


def stalled_note(stalled: Sequence[StalledClient]) -> str:
    """What is said about a run's stalled clients, of which there is at least one: the first in full, then how many."""
    more = "" if len(stalled) == 1 else f" (and {len(stalled) - 1} more stalled: see run.json)"
    return stalled[0].said() + more
