"""The scenario of results, loaded again: digests come first, and modules that it names are imported only with trust.

Importing a module runs its code, and results may come from others. A built-in kind runs no code of theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.results.store.manifest import Manifest, entry_of
from vflsim.results.store.run import StoredRun
from vflsim.results.store.schema import FileFacts
from vflsim.results.store.write import SCENARIO, changes
from vflsim.scenario.load import rooted_document_of, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import origins

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
