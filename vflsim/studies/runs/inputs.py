"""Digests of what a run reads beside its scenario: data files, traces, and the source of the user's own modules."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from vflsim.files import opened
from vflsim.scenario.depends import owns_code, run_part
from vflsim.scenario.models import Scenario

UNSEEN = "unseen"
"""Stands for the digest of a class without a source file: made in a notebook or a console."""
_FILES = {"file", "labels", "parties"}


def inputs_of(scenario: Scenario, protocol: str) -> dict[str, str]:
    """Return the SHA-256 of every file that a run of ``protocol`` reads, by path.

    Of a module of the user's own, the modules of the same folder that it imports count, too.
    """
    part = run_part(scenario, protocol)
    files = {Path(path) for path in _files(part)}
    modules = {*_modules(part)}
    if owns_code(scenario, protocol):
        modules.add(type(scenario.protocols[protocol].protocol).__module__)
    unseen = {}
    for name in sorted(modules):
        module = sys.modules.get(name)
        if module is None or (file := getattr(module, "__file__", None)) is None:
            unseen[name] = UNSEEN
        else:
            files |= _imported(module, Path(file).resolve().parent)
    return {str(path): _digest(path, *_state(path)) for path in sorted(files)} | unseen


def _files(part: Any) -> Iterator[str]:
    for key, value in part.items() if isinstance(part, Mapping) else enumerate(part) if isinstance(part, list) else ():
        if key in _FILES:
            yield from (path for path in (value if isinstance(value, list) else [value]) if isinstance(path, str))
        yield from _files(value)


def _modules(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping) and part.get("kind") == "module" and isinstance(part.get("path"), str):
        yield part["path"].partition(":")[0]
    for value in part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ():
        yield from _modules(value)


def _imported(module: ModuleType, folder: Path) -> set[Path]:
    """Return the source files of a module, and of all that it imports from ``folder``."""
    found: dict[Path, ModuleType] = {}
    left = [module]
    while left:
        each = left.pop()
        path = Path(getattr(each, "__file__", None) or "").resolve()
        if path in found or not _beneath(path, folder):
            continue
        found[path] = each
        values = [*vars(each).values()]
        made = (value if isinstance(value, type | FunctionType) else type(value) for value in values)
        left += [value for value in values if isinstance(value, ModuleType)]
        left += [sys.modules[name] for name in {thing.__module__ for thing in made} if name in sys.modules]
    return set(found)


def _beneath(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    except OSError:
        return 0, 0


@cache
def _digest(path: Path, changed: int, size: int) -> str:
    """Compute a file's digest; once for each state of the file."""
    try:
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "missing"
