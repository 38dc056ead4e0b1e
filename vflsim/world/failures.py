"""What a world says when a run cannot go on."""

from __future__ import annotations

from collections.abc import Iterable

from vflsim.errors import DeadlockError, ForeignAwaitError, RunError, VflsimError
from vflsim.streams import few


def foreign(waited: str) -> ForeignAwaitError:
    """The error for a coroutine that awaited something that is not a verb of its node."""
    return ForeignAwaitError(
        f"awaited {waited}, which no world knows",
        allowed="the verbs of the node: node.sleep, node.recv, node.compute, …",
        remedy="replace asyncio.sleep(s) by node.sleep(s); a protocol must not know which world it runs in",
    )


def blame(error: BaseException, who: str, now: float) -> BaseException:
    """``error`` with the party and the virtual time it belongs to, cause and traceback kept.

    What is not ours becomes the cause of a ``RunError``; what is no ``Exception`` (Ctrl-C) is left alone.
    """
    where = f"{who} at {now:.6g} s"
    if not isinstance(error, Exception):
        return error
    if isinstance(error, VflsimError):
        told = error
    elif isinstance(error, RuntimeError) and str(error) == "no running event loop":
        told = foreign("something of asyncio")  # asyncio itself has noticed that virtual time is not its own
    else:
        told = RunError(f"{type(error).__name__}: {error}")
    if told is not error:
        told.__cause__ = error
    if not told.where:
        told.where = where
        told.args = (told.what, where, told.allowed, told.remedy)
    return told


def deadlock(waits: Iterable[tuple[str, object]], now: float) -> DeadlockError:
    """The error that says who waits for what, given each task's name and what it waits for."""
    waiting: dict[str, list[str]] = {}
    for who, what in waits:
        waiting.setdefault(str(what), []).append(who)
    told = few([f"{few(who)} wait{'s' * (len(who) == 1)} for {what}" for what, who in waiting.items()], "; ")
    return DeadlockError(
        f"deadlock: nothing can happen any more; {told or 'every party has returned'}",
        f"{now:.6g} s",
        remedy="a party must send what another waits for, or the protocol must stop waiting (timeout, quorum)",
    )
