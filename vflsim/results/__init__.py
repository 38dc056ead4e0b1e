"""Results: write, read, summarise and verify what runs record."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflsim.results.read import NotRecordedError as NotRecordedError, Results as Results, StoredRun as StoredRun
    from vflsim.results.statistics import summarise as summarise
    from vflsim.results.store.folder import run_folder as run_folder
    from vflsim.results.store.pages import RunInfo as RunInfo
    from vflsim.results.store.schema import RunTables as RunTables
    from vflsim.results.store.write import write_file as write_file, write_run as write_run
    from vflsim.results.tables import comparison_table as comparison_table, write_summary as write_summary
    from vflsim.results.verify import verify_folder as verify_folder, verify_run as verify_run

_MODULES = {
    "read": ("NotRecordedError", "Results", "StoredRun"),
    "tables": ("comparison_table", "write_summary"),
    "store.folder": ("run_folder",),
    "store.pages": ("RunInfo",),
    "store.schema": ("RunTables",),
    "statistics": ("summarise",),
    "verify": ("verify_folder", "verify_run"),
    "store.write": ("write_file", "write_run"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for: an error message needs the layout of text, and not pandas."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
