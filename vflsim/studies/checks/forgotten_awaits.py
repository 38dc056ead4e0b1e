"""Find coroutines that code from outside calls and never awaits, so that they do nothing."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import iscoroutine
from pathlib import Path

_NODE = re.compile(r"^\w+Node\.")
"""The class of a node that is not the usual one, such as that of a trace."""
_PACKAGE = str(Path(__file__).parents[2])


@contextmanager
def forgotten_awaits() -> Iterator[list[str]]:
    """Collect the calls inside that nobody awaited, each with its place; none of those that vflsim makes itself.

    The list is complete when the block has ended. All other warnings are given again then.
    """
    calls: list[str] = []
    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(1)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", "coroutine .* was never awaited", RuntimeWarning)
            yield calls
    finally:
        sys.set_coroutine_origin_tracking_depth(depth)
    for warning in caught:
        coroutine = warning.source
        if not iscoroutine(coroutine):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            continue
        for file, line, function in coroutine.cr_origin or ():
            if not file.startswith(_PACKAGE):
                called = _NODE.sub("Node.", coroutine.__qualname__)
                calls.append(f"{called}(…) at {file}:{line}, {function}")
