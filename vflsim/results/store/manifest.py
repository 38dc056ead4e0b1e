"""``manifest.json``: the digest of every ``run.json``, and of the files beside the runs of a study.

There are two levels: ``run.json`` lists the files of its run, ``manifest.json`` lists every ``run.json``. A change
shows unless both are rewritten. ``manifest.json`` is not signed, so rewriting it hides a change. ``run.json`` holds
wall-clock figures, so no two studies have the same ``manifest.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

from pydantic import BaseModel

from vflsim.errors import ResultsError
from vflsim.results.store.folder import MANIFEST, RUN, SCENARIO, set_aside
from vflsim.results.store.pages import FileFacts, read_page
from vflsim.results.store.run import StoredRun
from vflsim.results.store.write import changes, facts_of, write_file
from vflsim.scenario.load import rooted_document_of, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import origins

_SHARE = 10
"""Least time between two writings of the manifest, in durations of one writing."""


class Manifest(BaseModel, frozen=True, extra="forbid"):
    """Content of ``manifest.json``: digests by path inside the results folder."""

    files: dict[str, FileFacts]

    @classmethod
    def read(cls, folder: Path | str) -> Manifest | None:
        """Read the manifest of a results folder; None if there is none. Raises ResultsError if it is damaged."""
        remedy = "run the scenario again with --resume: it lists the runs whose own digests hold"
        try:
            return read_page(cls, Path(folder) / MANIFEST, remedy)
        except FileNotFoundError:
            return None

    def text(self) -> str:
        """Return the text of the file, ordered by path."""
        files = {name: self.files[name].model_dump() for name in sorted(self.files)}
        return json.dumps({"files": files}, indent=1, ensure_ascii=False) + "\n"


def entry_of(protocol: str, seed: int) -> str:
    """Return the path of a run's page inside its results folder."""
    return f"{protocol}/seed-{seed}/{RUN}"


@final
class ManifestWriter:
    """Keeps ``manifest.json`` up to date during a study. Only the process that holds the folder's lock uses it.

    Invariant: whenever the process is killed, every file listed on disk is as listed. So an entry is removed before its
    file is replaced, and added afterwards. Resuming the study lists runs that a killed process had not listed.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        self._files: dict[str, FileFacts] = {}
        self._dropped: dict[str, FileFacts] = {}
        self._before: dict[str, FileFacts] = {}
        self._aside: Path | None = None
        self._next = 0.0

    def begin(self, kept: Iterable[tuple[str, int]], left: Iterable[tuple[str, int]]) -> None:
        """List the scenario and the ``kept`` runs; drop what the study will replace, such as the runs ``left``.

        Raises ResultsError if the file cannot be written.
        """
        path = self._folder / MANIFEST
        self._files = self._facts([SCENARIO, *(entry_of(*run) for run in kept)])
        self._before = self._facts(entry_of(*run) for run in left)
        if path.exists():
            with contextlib.suppress(ResultsError):  # damaged: a new one takes its place
                if (listed := Manifest.read(self._folder)) is not None:
                    self._dropped = {name: listed.files[name] for name in listed.files.keys() - self._files.keys()}
            self._aside = set_aside(path)
            self._write()

    def add(self, protocol: str, seed: int) -> None:
        """List a run that has just been written. Raises ResultsError if the file cannot be written."""
        self._files |= self._facts([entry_of(protocol, seed)])
        if time.monotonic() >= self._next:
            self._write()

    def written(self, protocol: str, seed: int) -> bool:
        """Whether a run has been written since ``begin``, even if an interruption prevented ``add``."""
        name = entry_of(protocol, seed)
        return self._facts([name]).get(name) != self._before.get(name)

    def finish(self, pages: Iterable[str]) -> None:
        """List the written pages, and the files that the study did not replace."""
        same = {name: facts for name, facts in self._dropped.items() if not [*changes(self._folder, {name: facts})]}
        self._files = same | self._files | self._facts(pages)
        self._write()
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)

    def undo(self) -> None:
        """Restore the file from before ``begin``, without using disk space."""
        if self._aside is not None:
            os.replace(self._aside, self._folder / MANIFEST)

    def _facts(self, names: Iterable[str]) -> dict[str, FileFacts]:
        return {name: facts_of(self._folder / name) for name in names if (self._folder / name).is_file()}

    def _write(self) -> None:
        began = time.monotonic()
        write_file(self._folder / MANIFEST, Manifest(files=self._files).text())
        now = time.monotonic()
        self._next = now + _SHARE * (now - began)


# --- scenario ---------------------------------------------------------------------------------------------------------


_DIGITS = 64
"""Of a SHA-256; ``inputs`` has words in place of the digests of files that were not there."""


def stored_scenario(folder: Path, runs: Sequence[StoredRun]) -> Scenario:
    """Load the scenario of ``runs`` from their results folder.

    If it names modules, the digests of these runs and of the modules' files must hold, and the runs be ``trusted``.
    Raises ResultsError if not, and ScenarioError as :func:`vflsim.scenario.load.load`.
    """
    document = rooted_document_of(folder / SCENARIO)
    if modules := origins(document.raw):
        refuse_untrusted(folder, runs, modules)
    return validate(document)


def refuse_untrusted(folder: Path, runs: Sequence[StoredRun], modules: Mapping[str, str]) -> None:
    """Raise ResultsError unless ``modules`` (their files by name) may be imported: trusted, and unchanged."""
    _refuse_changed(folder, runs)
    if not all(run.trusted for run in runs):
        named = ", ".join(f"{name} ({file})" for name, file in modules.items())
        raise ResultsError(
            f"names modules, whose code would run: {named}",
            str(folder / SCENARIO),
            "results that name none, or modules that you trust",
            "if they are your own, or you have read them, repeat the command with --trust "
            f"(in Python: vflsim.open_results({str(folder)!r}, trust=True)), which imports them",
        )


def _refuse_changed(folder: Path, runs: Sequence[StoredRun]) -> None:
    """Raise ResultsError for the first file that is not as it was when the runs were written."""
    for problem in _changes(folder, runs):
        remedy = f"restore it, or run the scenario again; vflsim verify {folder} lists all changes"
        what = f"names modules, which are not imported: {problem}"
        raise ResultsError(what, str(folder / SCENARIO), "unchanged results and modules", remedy)


def _changes(folder: Path, runs: Sequence[StoredRun]) -> Iterator[str]:
    manifest = Manifest.read(folder)
    listed = {} if manifest is None else manifest.files
    pages = [SCENARIO, *(entry_of(run.info.protocol, run.seed) for run in runs)]
    yield from changes(folder, {name: listed[name] for name in pages if name in listed})
    for run in runs:
        yield from changes(run.folder, run.info.files)
        for path, digest in (run.info.inputs or {}).items():
            if path.endswith(".py") and len(digest) == _DIGITS and Path(path).is_file():
                yield from changes(folder, {path: FileFacts(sha256=digest)})
