"""The errors of a run that cannot continue."""

from __future__ import annotations

from collections.abc import Iterable

from vflsim.errors import DeadlockError, ForeignAwaitError, RunError, StandstillError, VflsimError
from vflsim.streams import few

STANDSTILL = 1_000_000
"""Events and verbs at one instant after which a run is declared stuck."""


def foreign(waited: str) -> ForeignAwaitError:
    """Return the error for a coroutine that awaited something other than a verb of its node."""
    return ForeignAwaitError(
        f"awaited {waited}, which no world knows",
        allowed="the verbs of the node: node.sleep, node.recv, node.compute, …",
        remedy="replace asyncio.sleep(s) by node.sleep(s); a protocol must not know which world it runs in",
    )


def blame(error: BaseException, who: str, now: float) -> BaseException:
    """Return ``error`` with its party and virtual time; cause and traceback stay.

    An error from outside vflsim becomes the cause of a ``RunError``; one that is no ``Exception`` (Ctrl-C) stays.
    """
    where = f"{who} at {now:.6g} s"
    if not isinstance(error, Exception):
        return error
    if isinstance(error, VflsimError):
        ours = error
    elif isinstance(error, RuntimeError) and str(error) == "no running event loop":
        ours = foreign("something of asyncio")  # asyncio itself has noticed that virtual time is not its own
    else:
        ours = RunError(f"{type(error).__name__}: {error}")
    if ours is not error:
        ours.__cause__ = error
    if not ours.where:
        ours.where = where
        ours.args = (ours.what, where, ours.allowed, ours.remedy)
    return ours


def deadlock(waits: Iterable[tuple[str, object]], now: float) -> DeadlockError:
    """Return the error that names all waits, given pairs of a task's name and the object of its wait."""
    waiting: dict[str, list[str]] = {}
    for who, what in waits:
        waiting.setdefault(str(what), []).append(who)
    listed = few([f"{few(who)} wait{'s' * (len(who) == 1)} for {what}" for what, who in waiting.items()], "; ")
    return DeadlockError(
        f"deadlock: nothing can happen any more; {listed or 'every party has returned'}",
        f"{now:.6g} s",
        remedy="a party must send what another waits for, or the protocol must stop waiting (timeout, quorum)",
    )


def stuck(events: int) -> StandstillError:
    """Return the error of a run whose clock has not moved for so many events and verbs."""
    return StandstillError(
        f"{events} events without the clock moving: the protocol loops without any time passing",
        allowed="something in every loop that takes time: compute, a link, a delay",
        remedy="give the server a compute time, or limit the run with stop: {rounds: …}",
    )
