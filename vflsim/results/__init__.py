"""Results: write, read, summarise and verify what runs record."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflsim.results.read import NotRecordedError, Results, StoredRun
    from vflsim.results.statistics.summary import summarise
    from vflsim.results.store.schema import RunInfo, RunTables
    from vflsim.results.store.write import run_folder, write_file, write_run
    from vflsim.results.tables.comparison import comparison_table, write_summary
    from vflsim.results.verify.runs import verify_folder, verify_run

_MODULES = {
    "read": ("NotRecordedError", "Results", "StoredRun"),
    "tables.comparison": ("comparison_table", "write_summary"),
    "store.schema": ("RunInfo", "RunTables"),
    "statistics.summary": ("summarise",),
    "verify.runs": ("verify_folder", "verify_run"),
    "store.write": ("run_folder", "write_file", "write_run"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "NotRecordedError",
    "Results",
    "RunInfo",
    "RunTables",
    "StoredRun",
    "comparison_table",
    "run_folder",
    "summarise",
    "verify_folder",
    "verify_run",
    "write_file",
    "write_run",
    "write_summary",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for: an error message needs the layout of text, and not pandas."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
