"""Trial of a stop rule on the columns of a scenario: it must answer with text, and repeat its answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vflsim.vocabulary.stop_rule import Row, StopRule, as_answer, row_of

_ROWS = 12


def try_out(rule: StopRule, columns: Sequence[str]) -> None:
    """Ask a rule about rows with these columns. Raises ValueError for the first mistake."""
    name, rows = type(rule).__name__, list[Row]()
    known = rule.columns
    if not isinstance(known, tuple) or not all(isinstance(each, str) for each in known):
        raise ValueError(f"{name}.columns is {known!r}; allowed: a tuple of names; mend 'columns' of the class")
    if unknown := [each for each in known if each not in columns]:
        raise ValueError(f"there is no column {unknown[0]!r}; allowed: {', '.join(columns)}; choose one of them")
    for number in range(_ROWS):
        values = dict.fromkeys(columns, 1 / (number + 1))
        values |= {"time_s": 0.5 * number, "round": number, "updates": 2 * number}
        values |= {"train_loss": math.nan} if not number else {}
        rows.append(row_of(values))
        first, again = (as_answer(rule.ends(tuple(rows)), name) for _ in range(2))
        if first != again:
            what = f"{name}.ends answers {first!r}, then {again!r} about the same rows"
            raise ValueError(f"{what}; allowed: a function of the rows alone; keep no state; mend 'ends' of the class")
