"""The console script, called in this process. Its fixture is in conftest.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    """What a command left behind: its exit status, and what it printed."""

    status: int | str | None
    out: str
    err: str
