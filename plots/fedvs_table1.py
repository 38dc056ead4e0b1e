"""FedVS Table 1 from its sweep: best test accuracy by kind of client and number of layers, mean ± 95 % over seeds."""

import argparse
import sys
from pathlib import Path
from typing import Any

from vflsim.errors import VflsimError
from vflsim.intervals import t_interval
from vflsim.results import Results
from vflsim.results.sweeps import Sweep

COLUMNS = {"mlp": "MLP", "cnn": "CNN", "polynomial": "PN"}


def layers(client: dict[str, Any]) -> int:
    """Count a client's layers, as the table does."""
    return int(client.get("degree", 0)) or len(client.get("hidden", client.get("channels", ())))


def accuracy(results: Results) -> str:
    """Average each seed's best test accuracy, in per cent."""
    best = t_interval(results.metrics.groupby("seed")["test_accuracy"].max() * 100)
    return f"{best.mean:.2f}" + (f" ± {best.half_width:.2f}" if best.n > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path, help="folder that the sweep of scenarios/fedvs/table1.yaml has written")
    try:
        sweep = Sweep.open(parser.parse_args().sweep)
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    found = {(client["kind"], layers(client)): accuracy(results) for client, results in sweep}
    print("| layers | " + " | ".join(COLUMNS.values()) + " |")
    print("|---|" + "---|" * len(COLUMNS))
    for number in sorted({number for _, number in found}):
        print(f"| {number} | " + " | ".join(found.get((kind, number), "") for kind in COLUMNS) + " |")


if __name__ == "__main__":
    main()
