"""The number of a round, as a trace gives it to a protocol: it notes who decides by it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parents[1])
_DECIDING = ("eq", "ne", "lt", "le", "gt", "ge", "mod", "rmod", "floordiv", "divmod", "and", "rand", "bool")
_REACHING = ("add", "radd", "sub", "rsub", "mul", "rmul")


class RoundNumber(int):
    """A number that calls ``decides`` with the line of code from outside that compares it, or takes a remainder of it.

    A few traced rounds do not show what happens in the tenth. Sums and products are such numbers again.

    Example::

        lines = []
        RoundNumber.of(3, lines.append) % 10  # 3, and ``lines`` has this line
    """

    decides: Callable[[str], object]

    @classmethod
    def of(cls, number: int, decides: Callable[[str], object]) -> RoundNumber:
        """Make a number."""
        made = cls(number)
        made.decides = decides
        return made

    __hash__ = int.__hash__


def _deciding(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operator(self: RoundNumber, *others: Any) -> Any:
        frame = sys._getframe(1)
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            self.decides(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return plain(self, *others)

    return operator


def _reaching(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operator(self: RoundNumber, other: Any) -> Any:
        found = plain(self, other)
        return found if found is NotImplemented else RoundNumber.of(found, self.decides)

    return operator


for _name in _DECIDING:
    setattr(RoundNumber, f"__{_name}__", _deciding(f"__{_name}__"))
for _name in _REACHING:
    setattr(RoundNumber, f"__{_name}__", _reaching(f"__{_name}__"))
