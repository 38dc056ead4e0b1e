"""A running simulation, as a keeper of checkpoints sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from vflsim.learning.execution.deferred import DeferredExecutor
from vflsim.simulation.build import Parties
from vflsim.simulation.conductor import Conductor
from vflsim.world.kernel import World
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld


@dataclass(frozen=True, slots=True)
class Course:
    """The parts of a running simulation that a checkpoint needs: training in virtual time."""

    kernel: World
    parties: Parties
    recorder: Recorder
    conductor: Conductor

    @property
    def world(self) -> VirtualWorld:
        """The world, which counts its events."""
        assert isinstance(self.kernel, VirtualWorld), "nothing else has checkpoints"
        return self.kernel

    @property
    def executor(self) -> DeferredExecutor:
        """The executor, which can be replayed."""
        assert isinstance(self.kernel.executor, DeferredExecutor), "nothing else has checkpoints"
        return self.kernel.executor


class CourseKeeper(Protocol):
    """Keeps checkpoints of a run, and brings a new run to the newest one."""

    @property
    def note(self) -> str:
        """A note for the user about the run; empty if there is none."""

    def along(self, course: Course) -> AbstractContextManager[None]:
        """Keep checkpoints while the body executes the run. Raises ``CheckpointError``."""
