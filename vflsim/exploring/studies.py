"""The study that the page starts: a process of its own, whose progress and report the page shows."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError, ScenarioError, printable
from vflsim.reporting.watch import Follower
from vflsim.results.store.write import REPORT, write_file
from vflsim.scenario import emit

_TOLD = 4_000
"""Characters of its output that are shown, from the end."""
_GRACE_S = 30.0


def saved(raw: Mapping[str, Any], source: str, folder: Path, overwrite: bool = False) -> Path:
    """Write a scenario to ``NAME.yaml`` in ``folder``; an existing file only with ``overwrite``.

    Raises ScenarioError if the file exists, and ResultsError if it cannot be written.
    """
    file = folder / f"{raw['name']}.yaml"
    if file.exists() and not overwrite:
        raise ScenarioError("this file exists", file.name, "a new name", "choose another name, or replace the file")
    return write_file(file, f"# Made by vflsim explore from {printable(source, '')}.\n\n{emit.dump(dict(raw))}")


class RunningStudy:
    """At most one study at a time, in the folder where the server was started. Threads may ask.

    ``program`` is the command line before ``run``.
    """

    def __init__(self, folder: Path, program: Sequence[str] = (sys.executable, "-m", "vflsim")) -> None:
        self._folder, self._program, self._changing = folder, program, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._place = tempfile.TemporaryDirectory(prefix="vflsim-explore-")
        self._results: Path | None = None

    def start(self, raw: Mapping[str, Any], timing_only: bool) -> None:
        """Start ``vflsim run`` on a scenario. Raises ResultsError while another study runs."""
        with self._changing:
            if self._process is not None and self._process.poll() is None:
                raise ResultsError("a study is running", str(self._results), remedy="wait for its end, or stop it")
            scenario = write_file(Path(self._place.name) / f"{raw['name']}.yaml", emit.dump(dict(raw)))
            results = Path("results") / f"{raw['name']}{'-timing' if timing_only else ''}"
            command = [*self._program, "run", str(scenario), "--out", str(results)]
            command += ["--timing-only"] if timing_only else []
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    command,
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # it is asked to end once, by ``close``, and not by the terminal as well
                )
            self._results = results

    def stop(self) -> None:
        """Ask the study to end, as Ctrl-C does: it keeps finished runs, and checkpoints of others."""
        with self._changing:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)

    def state(self) -> dict[str, Any]:
        """Say how the study is: ``state`` (none, running, finished, failed), ``results``, ``progress``, ``output``.

        ``report`` says whether its report is there.
        """
        with self._changing:
            if self._process is None or self._results is None:
                return {"state": "none", "report": False}
            status = self._process.poll()
            state = "running" if status is None else "failed" if status else "finished"
            output = self._log.read_text(encoding="utf-8", errors="replace")[-_TOLD:]
            progress = Follower(self._folder / self._results).progress() if status is None else ""
            there = status is not None and self._report.is_file()
            return {
                "state": state,
                "results": str(self._results),
                "progress": progress,
                "output": output,
                "report": there,
            }

    def report(self) -> bytes | None:
        """Return the report of the study that has ended; None without one."""
        with self._changing:
            ended = self._process is not None and self._process.poll() is not None
            return self._report.read_bytes() if ended and self._report.is_file() else None

    def close(self) -> None:
        """End the study, and forget its output."""
        self.stop()
        if self._process is not None:
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._place.cleanup()

    @property
    def _log(self) -> Path:
        return Path(self._place.name) / "output.txt"

    @property
    def _report(self) -> Path:
        assert self._results is not None, "a study was started"
        return self._folder / self._results / REPORT
