"""The page of the command line, from the commands themselves: the words of ``--help``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from vflsim.cli.app import app


def commands() -> str:
    """Write the page."""
    import vflsim.cli  # noqa: F401  registers the commands

    root = get_command(app)
    page = ["# Command line", root.help or ""]
    for name, command in sorted(_leaves("vflsim", root)):
        context = command.make_context(name, [], resilient_parsing=True)
        usage = command.get_usage(context).removeprefix("Usage: ").replace("{", "").replace("}", "")
        page += [f"## `{name}`", command.help or "", f"```text\n{usage}\n```"]
        rows = [record for each in command.params if (record := each.get_help_record(context))]
        if rows:
            page.append("\n".join(["| argument or option | meaning |", "|---|---|", *(_row(*row) for row in rows)]))
    return "\n\n".join(page) + "\n"


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for each, inner in command.commands.items():
        yield from _leaves(f"{name} {each}", inner)


def _row(option: str, meaning: str) -> str:
    escaped = meaning.replace("|", "\\|").replace("[", "\\[").replace("*", "\\*").replace("<", "&lt;")
    return f"| `{option.replace('|', chr(92) + '|')}` | {escaped} |"
