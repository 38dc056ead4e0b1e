"""Errors with four parts: the problem, its place, the allowed values, and the remedy.

Every message that a user can meet comes from here. All arguments are positional in ``args``, so that an error survives
being rebuilt from ``type(error)(*error.args)`` (SimPy, pickling between processes).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from vflsim.party_names import titled

_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")
"""Controls, halves of surrogates, separators of lines and paragraphs, and what turns the direction of text."""


def printable(text: str, kept: str = "\n\t") -> str:
    """Return text that cannot steer a terminal: control characters, except those ``kept``, as ``\\x1b``."""
    return _STEERING.sub(
        lambda match: match[0] if match[0] in kept else match[0].encode("unicode_escape").decode("ascii"), text
    )


class VflsimError(Exception):
    """Base of every error that vflsim raises on purpose.

    ``what`` names the problem and the offending value. ``where`` is ``file:line``, a dotted key, or a party with its
    round and virtual time. ``allowed`` lists the valid values; ``remedy`` tells how to mend it.

    Example::

        error = VflsimError("t is 11", "mine.yaml:4", allowed="1 to 10", remedy="write t: 10")
        print(error)
    """

    exit_code = 1

    def __init__(self, what: str, where: str = "", allowed: str = "", remedy: str = "") -> None:
        self.what, self.where, self.allowed, self.remedy = titled(what), titled(where), titled(allowed), titled(remedy)
        super().__init__(self.what, self.where, self.allowed, self.remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.allowed:
            text += f"\n  allowed: {self.allowed}"
        if self.remedy:
            text += f"\n  remedy: {self.remedy}"
        return printable(text)

    def instead(self, said: str, by: str) -> Self:
        """Return the error with other words, such as the option that stands for an override."""
        return type(self)(*(part.replace(said, by) for part in self.args))


class ScenarioError(VflsimError):
    """A scenario file (or an override of it) cannot be run.

    Example::

        error = ScenarioError("11 is too many", "mine.yaml:4: t", "1 to 10", "write t: 10")
        error.where, error.exit_code  # ('mine.yaml:4: t', 2)
    """

    exit_code = 2


class DataError(VflsimError):
    """A data file is absent, damaged, or does not hold what the scenario needs.

    Example::

        print(DataError("is no PNG file", "digits/3.png", "PNG files", "convert it"))
    """

    exit_code = 2


class MissingLibraryError(VflsimError):
    """A library that only some commands need is not installed; the remedy names the extra that brings it."""

    exit_code = 2


class ResultsError(VflsimError):
    """A results folder is absent, incomplete, not writable, or breaks an invariant."""

    exit_code = 2


class CheckpointError(ResultsError):
    """A checkpoint does not match the run that should resume from it."""


class UnkeptStateError(CheckpointError):
    """Operations changed something of their party that a checkpoint does not keep."""


class RunError(VflsimError):
    """A run failed; ``where`` names the party, the round and the virtual time."""


class DeadlockError(RunError):
    """All parties wait for events that can no longer happen."""


class NoProgressError(RunError):
    """The clock stood still for a million events, thousands of outages passed without a server step, or nothing that
    the stop rules wait for is ever counted."""


class StandstillError(NoProgressError):
    """The clock stood still for a million events: not even a stop time can end the run."""


class IncompleteRoundError(RunError):
    """A round can never be completed: a party that it needs is down for good.

    Example::

        IncompleteRoundError("round 4 needs client 2, which is down for good").exit_code  # 1
    """


class DisconnectedError(RunError):
    """The only party whose message was awaited has gone down.

    Example::

        async def wait_for_first(node: ServerNode) -> Message | None:
            try:
                return await node.recv("embedding", senders=[1])
            except DisconnectedError:
                return None
    """


DIVERGED = "a smaller learning rate, scaled features, or, of a regression, labels scaled to about 1"
"""What helps a run that diverges."""


class NonFiniteError(RunError):
    """Training diverges: a loss, an embedding or a gradient became infinite or NaN, or ran out of a fixed point.

    Example::

        try:
            finite_loss(torch.tensor(math.nan))
        except NonFiniteError as error:
            print(error.what)
    """

    def __init__(self, what: str, where: str = "", allowed: str = "", remedy: str = "") -> None:
        super().__init__(what, where, allowed, remedy or DIVERGED)


class WeightBoundError(RunError):
    """A client's weights outgrew the bound up to which coded sums are exact."""


class BudgetError(RunError):
    """A client would release a sample more often than its noise was chosen for."""


class BlindingError(RunError):
    """Blinded embeddings cannot be added up: one is missing, or too large for the fixed point."""


class ProtocolError(RunError):
    """A protocol used a verb wrongly (awaited a foreign object, sent to nobody, …).

    Example::

        message = Gradient(round=0)
        try:
            message["duals"]
        except ProtocolError as error:
            print(error.allowed)
    """


class ForeignAwaitError(ProtocolError, TypeError):
    """A protocol awaited something that is not a verb of its node (such as ``asyncio.sleep``, a SimPy event, …)."""


class NoClosedFormError(VflsimError, NotImplementedError):
    """A distribution has no cdf in closed form; its numbers are still known.

    Example::

        NoClosedFormError("a delay of kind measured has no formula", remedy="use its cdf").remedy  # 'use its cdf'
    """


class TooLargeError(VflsimError, ValueError):
    """A distribution has too many parts to be computed."""

    exit_code = 2


@contextmanager
def of_extra(extra: str, what: str) -> Iterator[None]:
    """Have an import that fails in the body name the ``extra`` of vflsim that brings the library which ``what`` needs.

    Example::

        with of_extra("attacks", "attribution"):
            import captum
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "a library").partition(".")[0].replace("_", "-")
        problem, remedy = f"{what} needs {library}, which is not installed", f"pip install 'vflsim[{extra}]'"
        raise MissingLibraryError(problem, remedy=remedy) from error


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a remedy that names the nearest known words; empty without any."""
    import difflib

    matches = difflib.get_close_matches(word, [*known], n=2, cutoff=0.6)
    return "did you mean " + " or ".join(map(repr, matches)) + "?" if matches else ""


def no_results(folder: object, problem: str = "no such folder") -> ResultsError:
    """Make the error about a folder that holds no results."""
    return ResultsError(
        problem, str(folder), "a folder that vflsim run has written", "vflsim run prints the folder at its end"
    )


def check_known(name: str, names: Sequence[str], what: str, where: str) -> None:
    """Raise ScenarioError for a ``name`` that is not one of ``names``; ``what`` says what they name."""
    if name not in names:
        remedy = nearest(name, names) or "use one of them"
        raise ScenarioError(f"there is no {what} {name!r}", where, ", ".join(names), remedy)
