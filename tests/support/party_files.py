"""Files of parties that lack rows, and a tiny scenario with them. Imported by the tests that need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tiny_worlds import raw

ROWS, WIDTHS = 120, (4, 3, 3)


def party_files(folder: Path, lacking: float = 0.3, seed: int = 0) -> dict[str, Any]:
    """Write three parties' files, each without a share ``lacking`` of the rows, and labels; return the data section.

    The label is the sign of the sum of the first columns. Some ids of parties have no label, some labels no party.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    features = [pd.DataFrame(rng.normal(size=(ROWS, width)).round(3)) for width in WIDTHS]
    held = rng.random((ROWS, len(WIDTHS))) >= lacking
    for number, (table, here) in enumerate(zip(features, held.T, strict=True)):
        named = table.set_axis([f"x{number}{column}" for column in table], axis=1).assign(id=range(ROWS))
        named[here].sample(frac=1, random_state=seed).to_csv(folder / f"{number}.csv", index=False)
    label = sum(table[0] for table in features) > 0
    labels = pd.DataFrame({"id": range(ROWS), "y": label.astype(int)}).iloc[5:]
    labels.sample(frac=1, random_state=seed + 1).to_csv(folder / "labels.csv", index=False)
    files = {"parties": [str(folder / f"{number}.csv") for number in range(3)], "labels": str(folder / "labels.csv")}
    return {**files, "label": "y", "id": "id", "align": "outer", "validation_fraction": 0.1}


def absent_rows(folder: Path, protocols: Any = "synchronous", lacking: float = 0.3, **changes: Any) -> dict[str, Any]:
    """A tiny scenario, as a mapping, whose parties lack rows."""
    said = raw(protocols, **{"models__client": {"kind": "linear", "embedding": 5}, **changes})
    return {
        **said,
        "data": party_files(folder, lacking),
        "partition": {"active": said["partition"].get("active", False)},
    }
