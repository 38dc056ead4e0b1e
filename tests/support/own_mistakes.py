"""Scenarios with a mistake in a class of a user's own: the error names file, line and key, and says what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tiny_worlds import raw

import vflsim
from vflsim.errors import ScenarioError
from vflsim.scenario.models import Scenario


def entry(module: str, name: str, *keys: str) -> str:
    """Return what a scenario says of a class: ``name`` is that of its attribute, or ``attribute, key: value``."""
    attribute, _, more = name.partition(", ")
    return f'{{kind: module, path: "{module}:{attribute}"{"".join(f", {key}" for key in (*keys, more) if key)}}}'


def assert_refused_with_file_line_and_remedy(
    folder: Path,
    section: Sequence[str],
    key: str,
    expected: tuple[str, str],
    read: Callable[[Scenario], object] = lambda scenario: scenario,
) -> None:
    """A scenario whose last lines are ``section`` is refused, when it is loaded or by ``read``.

    The error has the words and the remedy of ``expected``, and names the last line and its key.
    """
    path, said = folder / "s.yaml", raw("synchronous")
    said.pop(section[0].partition(":")[0], None)
    YAML(typ="safe").dump(said, path)
    lines = [*path.read_text().splitlines(), *section]
    path.write_text("\n".join(lines) + "\n")
    words, remedy = expected
    with pytest.raises(ScenarioError, match=words) as caught:
        read(vflsim.load(path))
    for each in (f"{path}:{len(lines)}", key, remedy):
        assert each in str(caught.value)
