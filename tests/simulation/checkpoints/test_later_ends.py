"""A run that continues from the checkpoint of a shorter one writes the very bytes of one that ran so long at once."""

from pathlib import Path

import pytest
from kept_runs import KeptAt, files_of, whole
from protocols_by_kind import KINDS, SOME
from tiny_worlds import RANDOM_TIMING, raw, run

from vflsim.scenario import load

SHORT, LONG = {"rounds": 3}, {"rounds": 6}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", SOME)
def test_a_run_with_a_later_end_continues_from_a_shorter_one(kind: str, tmp_path: Path) -> None:
    short, long = (
        load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop=stop, evaluate={"every": "2 rounds"}))
        for stop in (SHORT, LONG)
    )
    _, last = whole(short)
    run(short, keeper=KeptAt(tmp_path / "kept", [last]))
    longer = run(long, keeper=KeptAt(tmp_path / "kept"))
    assert "resumed from" in longer.note
    assert files_of(longer, tmp_path / "longer", long) == files_of(run(long), tmp_path / "whole", long)
