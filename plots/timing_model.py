"""The figure of docs/timing.md: one synchronous round of two clients, with every interval labelled."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from vflsim.plotting.style import Picture, frame, picture, x_axis
from vflsim.results import Results, write_file

ROUND = 1
"""The second round: the first has no gradient before it."""
ROWS = ("client 1", "client 2", "server", "server's up-link", "server's down-link")
COLORS = {"compute": "#9DB4DA", "upload": "#F6D9A4", "latency": "#D5EADB", "transfer": "#7CC0A5", "waits": "#FFFFFF"}
NAMES = {
    "compute.embed": "embed",
    "compute.client_step": "client\nstep",
    "compute.server_step": "server\nstep",
    "upload": "upload\ndelay",
    "transfer.gradient": "gradient",
    "transfer.embedding": "embedding",
}


def stretches(events: pd.DataFrame) -> Iterator[tuple[str, float, float, str, str]]:
    """Yield (row, from, to, what, label) for each party's activities and the server's links."""
    for event in events.itertuples():
        what, _, _ = event.kind.partition(".")
        label = NAMES.get(event.kind, "latency")
        client = event.peer if event.party == "server" else event.party
        if what in ("compute", "upload"):
            yield event.party.replace("-", " "), event.start_s, event.end_s, what, label
        elif what == "latency":
            yield client.replace("-", " "), event.start_s, event.end_s, what, "latency"
        else:
            link = "server's up-link" if event.party == "server" else "server's down-link"
            yield link, event.start_s, event.end_s, what, f"{label}\n{client.replace('-', ' ')}"
            came = events[
                events["kind"].str.startswith("latency")
                & (events["party"] == event.party)
                & (events["peer"] == event.peer)
                & (events["end_s"] <= event.start_s)
            ]["end_s"].max()
            if came < event.start_s:
                yield (
                    client.replace("-", " "),
                    came,
                    event.start_s,
                    "waits",
                    f"waits for\n{link.replace(' ', chr(10), 1)}",
                )
            yield client.replace("-", " "), event.start_s, event.end_s, what, "moves"


def bar(axes: Axes, y: float, began: float, lasted: float, what: str, label: str) -> None:
    """One stretch of time with its name in it."""
    hatch, behind = (
        ("////", {"facecolor": "white", "edgecolor": "none", "pad": 0.6}) if what == "waits" else (None, None)
    )
    style = {"color": COLORS[what], "edgecolor": "#444444", "linewidth": 0.6, "hatch": hatch, "zorder": 2}
    axes.barh(y, lasted, left=began, height=0.72, **style)
    turned = 90 if label == "latency" else 0
    written = {"ha": "center", "va": "center", "fontsize": 6, "linespacing": 0.95, "rotation": turned, "zorder": 3}
    axes.text(began + lasted / 2, y, label, bbox=behind, **written)


def draw(results: Results) -> Picture:
    """The figure, from the events and rounds of the first run."""
    run = results.runs[0]
    rounds = run.frame("rounds").set_index("round")
    start, end = rounds.loc[ROUND, ["start_s", "end_s"]]
    events = run.frame("events").astype({"party": str, "kind": str, "peer": object})
    events = events[(events["start_s"] >= start) & (events["end_s"] <= end)]
    shown = frame(("row", "start_s", "end_s", "what", "label"), [*stretches(events)])
    with picture(9.6, 3.9, {"stretches": shown}) as figure:
        axes = figure.subplots()
        for row, began, ended, what, label in shown.itertuples(index=False):
            if ended > began:
                bar(axes, -ROWS.index(row), began - start, ended - began, what, label)
        over = end - start
        for x, side, gap, text in (
            (0.0, "left", 0.003, "step before ends:\nthe round begins"),
            (over, "right", -0.003, "server step ends:\nthe round is over"),
        ):
            axes.axvline(x, color="#222222", linewidth=0.9, linestyle=(0, (3, 2)), zorder=4)
            axes.text(x + gap, 0.5, text, ha=side, va="bottom", fontsize=7)
        axes.set_yticks([-n for n in range(len(ROWS))], ROWS)
        axes.set_ylim(-len(ROWS) + 0.4, 1.0)
        axes.grid(visible=False)
        x_axis(axes, "time since the round began", "s", logarithmic=False)
        axes.set_xlim(-0.01, over + 0.01)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="results of scenarios/timing/two_clients.yaml")
    parser.add_argument("--out", type=Path, help="PNG to write (default: RESULTS/timing_model.png)")
    given = parser.parse_args()
    print(write_file(given.out or given.results / "timing_model.png", draw(Results.open(given.results)).png()))
