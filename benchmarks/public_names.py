"""List what users can name at another revision and not here: commands, options, keys, kinds, columns, names in Python.

``python benchmarks/public_names.py REVISION`` needs git. It prints a row for every sort of name with its numbers, and
every name that is gone; it exits with 1 if there is one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHORT = {"seeds": [0], "protocols.wait.stop": {"time": "20 s"}}
Names = dict[str, list[str]]


def main() -> None:
    """Compare the names; see above."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", before, sys.argv[1]], cwd=ROOT, check=True)
        try:
            old, new = names_of(before), names_of(ROOT)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True)
    gone = {sort: sorted({*old[sort]} - {*new[sort]}) for sort in old}
    for sort, names in gone.items():
        print(f"{sort}: {len(old[sort])} → {len(new[sort])}, gone {len(names)}", *names, sep="\n  ")
    sys.exit(any(gone.values()))


def names_of(tree: Path) -> Names:
    """Return the names of a checkout, from a process that imports it."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "--here"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr}")
    names: Names = json.loads(done.stdout.splitlines()[-1])
    return names


def here() -> Names:
    """Return the names of the vflsim that this process imports."""
    import pyarrow.parquet as pq
    from typer.main import get_command

    import vflsim
    import vflsim.protocol
    from vflsim.cli import app
    from vflsim.kinds import TABLES
    from vflsim.scenario.models import Scenario

    fields = ((f"{table}: {kind.model_fields['kind'].default}", kind) for table in TABLES for kind in TABLES[table])
    kinds = [name for first, kind in fields for name in (first, *(f"{first}.{key}" for key in kind.model_fields))]
    parts = {"": (schema := Scenario.model_json_schema()), **schema["$defs"]}
    with tempfile.TemporaryDirectory() as folder:
        vflsim.run(vflsim.load("quickstart", SHORT), folder, protocols=["wait"], progress=False)
        files = sorted(Path(folder).rglob("*.parquet"))
        columns = {f"{file.name}: {column}" for file in files for column in pq.read_schema(file).names}
        facts = {key for file in Path(folder).rglob("run.json") for key in keys_of(json.loads(file.read_text()))}
    return {
        "commands and options": sorted(options_of(get_command(app), "vflsim")),
        "keys of scenarios": [f"{part}.{key}" for part, said in parts.items() for key in said.get("properties", {})],
        "kinds and their keys": kinds,
        "columns": sorted(columns),
        "keys of run.json": sorted(facts),
        "names of vflsim": sorted(vflsim.__all__),
        "names of vflsim.protocol": sorted(name for name in vars(vflsim.protocol) if not name.startswith("_")),
    }


def options_of(command: Any, path: str) -> Iterator[str]:
    """Yield a command, its options, and those of its subcommands."""
    yield path
    yield from (f"{path} {option}" for parameter in command.params for option in parameter.opts)
    for name, inner in getattr(command, "commands", {}).items():
        yield from options_of(inner, f"{path} {name}")


def keys_of(facts: object, path: str = "") -> Iterator[str]:
    """Yield all keys of nested mappings."""
    for name, value in facts.items() if isinstance(facts, dict) else ():
        yield f"{path}{name}"
        yield from keys_of(value, f"{path}{name}.")


if __name__ == "__main__":
    if sys.argv[1:] == ["--here"]:
        print(json.dumps(here()))
    else:
        main()
