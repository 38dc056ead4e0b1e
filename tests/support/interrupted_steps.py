"""Interrupt a study at a server step, on whatever path its runs are. Imported by tests of sweeps and tuning."""

from __future__ import annotations

from typing import Any

import pytest

from vflsim.learning.learners.server import ServerLearner
from vflsim.learning.programs.lockstep import SumProgram
from vflsim.learning.programs.own_pace import OwnPaceProgram


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the ``step``-th server step of all runs together."""
    count = iter(range(step))

    def interrupting(name: str, kind: type[ServerLearner] | type[SumProgram] | type[OwnPaceProgram]) -> None:
        take = getattr(kind, name)

        def stepped(*arguments: Any) -> Any:
            if next(count, None) is None:
                raise KeyboardInterrupt
            return take(*arguments)

        monkeypatch.setattr(kind, name, stepped)

    interrupting("_run_step", ServerLearner)
    interrupting("play", SumProgram)
    interrupting("play", OwnPaceProgram)
