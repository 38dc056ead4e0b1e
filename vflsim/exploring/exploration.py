"""What the page asks for: figures, slow figures, files, studies. One exploration for each server."""

import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError, ScenarioError, VflsimError, printable
from vflsim.exploring.base import Base, differences, turned
from vflsim.exploring.figures import figures
from vflsim.exploring.knobs import complaints, read
from vflsim.exploring.slow_figures import Later, choices_at_once
from vflsim.learning.data.shelf import Shelf
from vflsim.reporting.serving import Follower
from vflsim.results.store.folder import REPORT
from vflsim.results.store.write import write_file
from vflsim.scenario.load import load
from vflsim.scenario.models import FolderName, Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.checks.data import read_and_check
from vflsim.vocabulary import plain_yaml
from vflsim.vocabulary.base import Part

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
    return write_file(file, f"# Made by vflsim explore from {printable(source, '')}.\n\n{plain_yaml.dump(dict(raw))}")


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
            scenario = write_file(Path(self._place.name) / f"{raw['name']}.yaml", plain_yaml.dump(dict(raw)))
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


class Positions(Part):
    """The body of a request for figures: positions of knobs, and the protocol whose timeline is wanted."""

    knobs: dict[str, Any]
    timeline: str | None = None


class ToBeSaved(Part):
    """The body of a request to save a scenario."""

    knobs: dict[str, Any]
    name: FolderName
    overwrite: bool = False


class ToBeRun(Part):
    """The body of a request to run a scenario."""

    knobs: dict[str, Any]
    name: FolderName
    timing_only: bool = False


class Exploration:
    """Answers the page's questions about one base. ``folder`` is where files and results go. Threads may ask."""

    def __init__(self, base: Base, source: str, folder: Path) -> None:
        self.base, self._source, self._folder = base, source, folder
        self._shelf, self._computing = Shelf(), threading.Lock()
        self._later, self.study = Later(), RunningStudy(folder)

    def answer(self, path: str, body: Any) -> Mapping[str, Any] | None:
        """Answer a question that is answered at once; None for an unknown path.

        Mistakes of the user are answers, too: ``problems``, each with the knob that it is about.
        """
        questions = {
            "/figures": self._figures,
            "/choices": self._choices,
            "/save": self._save,
            "/run": self._run,
            "/stop": self._stop,
        }
        if path not in questions:
            return None
        try:
            return questions[path](body)
        except VflsimError as error:
            return {"problems": complaints(error)}
        except Exception as error:  # a defect: the page goes on, and the terminal has the place
            traceback.print_exc()
            text = f"this failed ({type(error).__name__}: {error}); the terminal of vflsim explore says where"
            return {"problems": [{"knob": None, "text": text}]}

    def later(self, body: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the slow figures as they come."""
        try:
            asked = read(Positions, body)
            raw, _ = self._scenario(asked.knobs)
        except VflsimError as error:
            yield {"piece": "problem", "text": str(error)}
            return
        yield from self._later.of(raw, asked.timeline or "")

    def warm(self) -> None:
        """Answer once, so that the first answer takes no longer than others.

        Raises ScenarioError and DataError for a scenario that cannot be shown.
        """
        self._later.warm()
        self._figures({"knobs": dict(self.base.begin)})

    def close(self) -> None:
        """End all work."""
        self._later.stop()
        self.study.close()

    def _figures(self, body: Any) -> Mapping[str, Any]:
        asked = read(Positions, body)
        raw, scenario = self._scenario(asked.knobs)
        self._later.stop()  # it would slow this answer, which makes it obsolete
        with self._computing:
            try:
                answer = figures(scenario, ScenarioData(scenario, self._shelf), asked.timeline)
            except ValueError:
                read_and_check(scenario, training=False, shelf=self._shelf)  # names the key that does not fit the data
                raise
        return {**answer, "yaml": plain_yaml.dump(raw), "changed": differences(self.base, raw)}

    def _choices(self, body: Any) -> Mapping[str, Any]:
        _, scenario = self._scenario(read(Positions, body).knobs)
        with self._computing:
            return {"choices": choices_at_once(scenario, ScenarioData(scenario, self._shelf))}

    def _scenario(self, knobs: Mapping[str, Any], name: str | None = None) -> tuple[dict[str, Any], Scenario]:
        raw = turned(self.base, knobs, name)
        return raw, load(raw)

    def _save(self, body: Any) -> Mapping[str, Any]:
        asked = read(ToBeSaved, body)
        raw, _ = self._scenario(asked.knobs, asked.name)
        return {"saved": saved(raw, self._source, self._folder, asked.overwrite).name}

    def _run(self, body: Any) -> Mapping[str, Any]:
        asked = read(ToBeRun, body)
        raw, _ = self._scenario(asked.knobs, asked.name)
        self.study.start(raw, asked.timing_only)
        return self.study.state()

    def _stop(self, body: Any) -> Mapping[str, Any]:
        read(Part, body)
        self.study.stop()
        return self.study.state()
