"""Text that changes while work is under way: in a terminal, or in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text


class InTerminal:
    """The last lines of a terminal; they vanish at the end."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def start(self) -> None:
        """Begin to show lines."""
        self._live.start()

    def update(self, lines: Sequence[Text]) -> None:
        """Show these lines instead."""
        self._live.update(Group(*lines))

    def stop(self) -> None:
        """Remove the lines."""
        self._live.update("")
        self._live.stop()


class InNotebook:
    """One output of a notebook's cell, changed in place. Rich's own ``Live`` needs ipywidgets there."""

    def __init__(self) -> None:
        self._handle: Any = None

    def start(self) -> None:
        """Make the output."""
        self._handle = import_module("IPython.display").display(Text(), display_id=True)

    def update(self, lines: Sequence[Text]) -> None:
        """Show these lines instead."""
        self._handle.update(Text("\n").join(lines))

    def stop(self) -> None:
        """Leave an empty output."""
        self.update([])


def live_on(console: Console) -> InTerminal | InNotebook | None:
    """Return what shows changing lines on a console; None where they cannot change, as in a file or a pipe."""
    if console.is_jupyter:
        return InNotebook()
    return InTerminal(console) if console.is_terminal else None
