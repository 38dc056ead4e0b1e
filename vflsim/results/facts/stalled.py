"""Stalled clients: at the end of the run they wait for a message that can no longer come."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field


class StalledClient(BaseModel, frozen=True, extra="forbid"):
    """A client that is up and takes part, but waits in vain.

    It has waited for message ``kind`` of ``round`` since ``since_s`` (s). ``rounds`` rounds have been completed since,
    and no message or work in progress can end the wait.
    """

    client: int = Field(ge=1)
    kind: str
    round: int
    since_s: float = Field(ge=0)
    rounds: int = Field(ge=1)

    def sentence(self) -> str:
        """Describe the wait in a sentence."""
        return (
            f"client {self.client} has waited for {self.kind!r} of round {self.round} since {self.since_s:.6g} s; "
            f"{self.rounds:,} rounds have been completed since, and nothing under way can answer it"
        )


def stalled_note(stalled: Sequence[StalledClient]) -> str:
    """Describe a run's stalled clients (at least one): the first in full, then the number of others."""
    more = "" if len(stalled) == 1 else f" (and {len(stalled) - 1} more stalled: see run.json)"
    return stalled[0].sentence() + more
