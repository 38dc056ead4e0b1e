"""When to write checkpoints of a run, and how to resume from one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError
from vflsim.simulation.checkpoints.files import Checkpoint, CheckpointFiles
from vflsim.simulation.checkpoints.snapshot import Return, Snapshot, take, went_elsewhere
from vflsim.simulation.conductor import Course
from vflsim.vocabulary.on_demand import Tensor

_SHARE = 10
"""Least interval between checkpoints, as a multiple of the time that the last one took."""


class Keeper:
    """Keeps checkpoints of one run in ``folder``, ``every`` so many wall-clock seconds (None: only on request).

    With ``resume`` the run continues from the newest checkpoint with the same ``fingerprint``; ``until`` are its stop
    rules (see ``CheckpointFiles``). Invariants:
    checkpoints never change the run, not even its last bits; if one fails, the run continues and the previous one
    stays.
    """

    def __init__(
        self,
        folder: Path,
        every: float | None,
        fingerprint: Mapping[str, str],
        resume: bool,
        until: Mapping[str, Any] | None = None,
    ) -> None:
        self._files = CheckpointFiles(folder, fingerprint, until)
        self._settings = folder, every, fingerprint, resume, until
        self._every, self._resume = every, resume
        self._course: Course | None = None
        self._successor: Keeper | None = None
        self._return: Return | None = None
        self._stop = self._wanted = False
        self._timer: threading.Timer | None = None
        self._kept_at = -1
        self._began = 0.0
        self._notes: dict[str, None] = {}
        self.took = self.back = 0.0
        """Seconds that the latest checkpoint took, and that the return to the resumed one took."""

    @property
    def note(self) -> str:
        """A note for the user; empty if there is none."""
        return "; ".join(self._notes)

    def request(self, stop: bool = False) -> None:
        """Request a checkpoint between two events, and then, with ``stop``, a ``KeyboardInterrupt``.

        Any thread and signal handlers may call it. A run that ends first ends as usual; a run still returning to its
        checkpoint is interrupted at once.
        """
        self._stop, self._wanted = self._stop or stop, True
        if self._successor is not None:
            self._successor.request(stop)
        course = self._course
        if course is not None and (stop or self._return is None):
            course.world.visit(self._visit)

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if the run is to stop: before it begins, when there is nothing to keep."""
        if self._stop:
            raise KeyboardInterrupt

    def apart(self, name: str) -> Keeper:
        """Return a keeper of the same run on another path: in a folder ``name`` of this one's, with its requests."""
        folder, every, fingerprint, resume, until = self._settings
        self._successor = Keeper(folder / name, every, {**fingerprint, "path": name}, resume, until)
        if self._stop:
            self._successor.request(stop=True)
        return self._successor

    # --- a run without events ---------------------------------------------------------------------------------------

    @contextmanager
    def at_rounds(self) -> Iterator[Checkpoint | None]:
        """Keep checkpoints of a run that asks ``due`` between rounds; give the one to resume from, if any.

        Raises ``CheckpointError`` if the checkpoints belong to a different run.
        """
        checkpoint = self._newest()
        self._plan()
        try:
            yield checkpoint
        finally:
            if self._timer is not None:
                self._timer.cancel()

    @property
    def due(self) -> bool:
        """Whether somebody has requested a checkpoint, which ``keep`` has not written yet."""
        return self._wanted

    def keep(self, make: Callable[[], tuple[Snapshot, Mapping[str, Tensor]]]) -> None:
        """Write a checkpoint that is due. Raises ``KeyboardInterrupt`` if the run is to stop."""
        self._wanted = False
        self._write(make)
        if self._stop:
            raise KeyboardInterrupt

    # --- along the run ----------------------------------------------------------------------------------------------

    @contextmanager
    def along(self, course: Course) -> Iterator[None]:
        """Keep checkpoints while the body executes the run.

        Raises ``CheckpointError`` before the body if the checkpoints belong to a different run, and after it if the run
        never reached its checkpoint.
        """
        self._accompany(course)
        try:
            yield
        finally:
            self._course = None
            if self._timer is not None:
                self._timer.cancel()
        if self._return is not None:
            raise went_elsewhere("it ended before")

    def _accompany(self, course: Course) -> None:
        began, checkpoint = time.monotonic(), self._newest()
        if checkpoint is not None:
            self._began = began
            self._return = Return(course, *checkpoint)
            course.world.visit(self._arrive, self._kept_at)
        self._course = course
        if self._return is None:
            self._continue()
        elif self._stop:
            course.world.visit(self._visit)

    def _newest(self) -> Checkpoint | None:
        """Return the checkpoint to resume from, if any; note it, and those that are passed over.

        Raises ``KeyboardInterrupt`` for a run that was asked to stop before it began.
        """
        self.check()
        checkpoint = self._files.newest() if self._resume else None
        self._notes |= dict.fromkeys(self._files.passed_over)
        if checkpoint is not None:
            position = checkpoint.snapshot.position
            self._kept_at = position.events
            self._notes[f"resumed from {position.time_s:.6g} s, round {position.counts['rounds']}"] = None
        elif self._files.passed_over:
            self._notes["no checkpoint is sound: started anew"] = None
        return checkpoint

    def _arrive(self) -> None:
        assert self._return is not None, "the run returns to a checkpoint"
        self._return.arrive()
        self._return = None
        self.back = time.monotonic() - self._began
        self._continue()

    def _continue(self) -> None:
        self._plan()
        if self._wanted and self._course is not None:  # requested during the return
            self._course.world.visit(self._visit)

    def _plan(self) -> None:
        if self._every is not None:
            self._timer = threading.Timer(max(self._every, _SHARE * self.took), self.request)
            self._timer.daemon = True
            self._timer.start()

    def _visit(self) -> None:
        """Handle a request between two events."""
        course = self._course
        if course is None or course.world.over:
            return
        self._wanted = False
        if self._return is None and course.world.events != self._kept_at:
            self._keep(course)
        if self._stop:
            raise KeyboardInterrupt

    def _keep(self, course: Course) -> None:
        self._write(partial(take, course))

    def _write(self, make: Callable[[], tuple[Snapshot, Mapping[str, Tensor]]]) -> None:
        began = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
        try:
            snapshot, storages = make()
            self._files.write(snapshot, storages)
            self._kept_at = snapshot.position.events
        except ResultsError as error:
            self._notes[f"a checkpoint could not be written: {error.what}"] = None
        self.took = time.monotonic() - began
        self._plan()
