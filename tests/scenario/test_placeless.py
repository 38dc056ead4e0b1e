"""The text of a scenario that parties on several machines compare."""

import json
from pathlib import Path
from typing import Any

from tiny_worlds import raw

from vflsim.scenario import load
from vflsim.scenario.load import placeless

DATA = {"parties": ["bank.csv", "shop.csv"], "labels": "labels.csv", "label": "y", "id": "id"}


def written(folder: Path, measured: str, **changes: Any) -> str:
    folder.mkdir()
    (folder / "delays.csv").write_text(measured)
    timing = {"clients": [{"select": "all", "upload_delay": {"kind": "empirical", "file": "delays.csv"}}]}
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(raw(data={**DATA, **changes}, partition={"by": "views"}, timing=timing)))
    return placeless(load(file))


def test_folders_do_not_matter_and_measured_delays_do(tmp_path: Path) -> None:
    here = written(tmp_path / "here", "0.1\n0.2\n")
    assert str(tmp_path) not in here
    assert written(tmp_path / "there", "0.1\n0.2\n") == here
    assert written(tmp_path / "measured-again", "0.1\n0.3\n") != here
    assert written(tmp_path / "other-data", "0.1\n0.2\n", labels="others.csv") != here
