"""EASTER Fig. 4 and 5: communication time to the target against the swept bandwidth or latency.

The first folder has training up to the target, the second a timing-only sweep in which nothing but messages takes time.
Training changes no time, so the time is the rounds to the target × the mean round of the sweep.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from vflsim.errors import ResultsError, VflsimError
from vflsim.plotting.looks import kinds_of, protocol_styles
from vflsim.plotting.script import picture_file
from vflsim.plotting.style import Picture, legend, picture, plain_number, remark, target_label
from vflsim.results import Results, write_file
from vflsim.results.statistics import outcomes
from vflsim.results.statistics.costs import target_from_text
from vflsim.results.sweeps import Sweep


def communication_times(training: Results, sweep: Sweep, target: str) -> pd.DataFrame:
    """Return rounds, the mean round and their product, in seconds: a row per protocol and value of the sweep.

    ``reached`` of ``n`` seeds reached the target; for protocols where not all did, rounds are the mean of what
    each run took at least.
    """
    summary = training.estimates(target_from_text(target))
    rounds = summary[(summary["measure"] == "rounds_to_target") & summary["baseline"].isna()].set_index("protocol")
    if rounds.empty:
        raise ResultsError(f"no protocol was measured against {target}", str(training.folder))
    found = sweep.estimates("round_duration")
    found = found[found["protocol"].isin(rounds.index)]
    own = rounds.loc[found["protocol"]]
    runs = outcomes(training, target_from_text(target)).query("measure == 'rounds_to_target'")
    needed = own["mean"].fillna(runs.groupby("protocol")["value"].mean()).to_numpy(dtype=float)
    columns = {"rounds": needed, "round_s": found["mean"], "time_s": needed * found["mean"]}
    reached = {"reached": own["reached"].to_numpy(), "n": own["n"].to_numpy()}
    return found[["position", "value", "protocol"]].assign(**columns, **reached).reset_index(drop=True)


def drawn(times: pd.DataFrame, kinds: Mapping[str, str], label: str, names: list[str] | None, target: str) -> Picture:
    """Draw a line per protocol. With ``names`` the values stand side by side, otherwise on a logarithmic axis."""
    protocols = list(dict.fromkeys(times["protocol"]))
    styles, handles = protocol_styles(kinds), []
    with picture(5.6, 4.0, {"times": times}) as figure:
        axes = figure.add_subplot()
        for name in protocols:
            own, style = times[times["protocol"] == name], styles[name]
            x = own["position"] if names else own["value"].astype(float)
            all_reached = bool((own["reached"] == own["n"]).all())
            handles += axes.plot(
                x, own["time_s"], color=style.color, linestyle=style.dash, marker=style.marker, markersize=4,
                markerfacecolor=style.color if all_reached else "white",
            )  # fmt: skip
        if names:
            axes.set_xticks(range(len(names)), names)
        else:
            values = np.sort(times["value"].astype(float).unique())
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(values))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(label)
        axes.set_ylabel(f"communication time to {target_label(target)} [s]")
        bounds = (times["reached"] < times["n"]).any()
        remark(axes, f"mean rounds of training × mean round{'; hollow: a lower bound' if bounds else ''}")
        legend(figure, handles, protocols)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", type=Path, help="results of training, in which a target was measured")
    parser.add_argument("sweep", type=Path, help="folder of a timing-only sweep")
    parser.add_argument("--target", default="test_accuracy=0.85", help="default: %(default)s")
    parser.add_argument("--label", default="bandwidth [Mbps]", help="label of the swept axis (default: %(default)s)")
    parser.add_argument("--names", help="names of the swept values, with commas; without them they are numbers")
    parser.add_argument("--out", type=Path, help="PNG to write (default: SWEEP/communication.png)")
    given = parser.parse_args()
    try:
        sweep = Sweep.open(given.sweep)
        times = communication_times(Results.open(given.training), sweep, given.target)
        figure = drawn(
            times,
            kinds_of(sweep),
            given.label,
            given.names and given.names.split(","),
            given.target.replace("=", " ≥ "),
        )
        print(write_file(picture_file(given.out or given.sweep, "communication", "--out"), figure.png()))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
