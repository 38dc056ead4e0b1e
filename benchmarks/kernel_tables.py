"""Tables and the figure of what `kernel_network.py` has measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

Row = dict[str, Any]


def last(row: Row) -> float:
    """The last upload's time ÷ that of the simulation: what a round that waits for all depends on."""
    return max(row["measured"]) / max(row["predicted"])


def first(row: Row) -> float:
    """The first upload's time ÷ that of the simulation."""
    return min(row["measured"]) / min(row["predicted"])


def slow(row: Row) -> float:
    """The slow client's time ÷ that of the simulation."""
    return float(row["measured"][0] / row["predicted"][0])


def others(row: Row) -> float:
    """The time of the last of all other clients ÷ that of the simulation."""
    return max(row["measured"][1:]) / max(row["predicted"][1:])


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield all tables, as Markdown."""
    for way in ("TCP", "TLS"):
        yield from ratios(f"equal links, {way}, the last upload", of(rows, "equal", way), last)
    yield from ratios("equal links, TCP, the first upload", of(rows, "equal", "TCP"), first)
    yield from ratios("a slow client, its own upload", of(rows, "slow", "TCP"), slow)
    yield from ratios("a slow client, the last of the others", of(rows, "slow", "TCP"), others)
    yield from far(of(rows, "far"))
    yield from stopped(of(rows, "stopped"))
    for way, what in (("up", "uploads, the last"), ("down", "downloads, the last"), ("round", "rounds")):
        yield from ratios(f"live parties, {what}", of(rows, "parties", way), last if way != "round" else whole)


def whole(row: Row) -> float:
    """The mean round ÷ that of the simulation."""
    return sum(row["measured"]) / sum(row["predicted"])


def of(rows: Sequence[Row], world: str, way: str | None = None) -> list[Row]:
    """Return the rows of a world, and of a way of sending if one is named."""
    return [row for row in rows if row["world"] == world and way in (None, row["way"])]


def ratios(title: str, rows: Sequence[Row], ratio: Callable[[Row], float]) -> Iterator[str]:
    """Yield a table of measured ÷ predicted by size and number of flows."""
    if not rows:
        return
    flows = sorted({row["flows"] for row in rows})
    cells = cells_of(rows, lambda row: (row["size"], row["flows"]), ratio)
    yield f"\n{title}; {loads(rows)}\n"
    yield " | ".join(["| bytes", *(f"{each} at once" if each > 1 else "1 alone" for each in flows)]) + " |"
    yield "|---:|" + "---|" * len(flows)
    for size in sorted({row["size"] for row in rows}):
        yield f"| {size:,} | " + " | ".join(ranged(cells[size, each], 2) for each in flows) + " |"


def far(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of what is predicted over long ways (ms), and measured ÷ predicted, by state of the connection."""
    if not rows:
        return
    ways = list(dict.fromkeys(row["way"] for row in rows))
    yield f"\nfar away, the last upload: predicted (ms), measured ÷ predicted; {loads(rows)}\n"
    yield " | ".join(["| flows | latency (ms) | bytes", *ways]) + " |"
    yield "|---:|---:|---:|" + "---|" * len(ways)
    places = sorted({(row["flows"], row["latency"], row["size"]) for row in rows})
    for flows, latency, size in places:
        alike = [row for row in rows if (row["flows"], row["latency"], row["size"]) == (flows, latency, size)]
        cells = [[row for row in alike if row["way"] == way] for way in ways]
        texts = [f"{1e3 * median(max(row['predicted']) for row in cell):.0f}: {ranged([*map(last, cell)], 2)}"
                 for cell in cells]  # fmt: skip
        yield f"| {flows} | {1e3 * latency:g} | {size:,} | {' | '.join(texts)} |"


def stopped(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of downloads beside one to a client that is stopped: the last one (s), and their mean."""
    if not rows:
        return
    ways = list(dict.fromkeys(row["way"] for row in rows))
    yield f"\nbeside one that is stopped, the last download and the mean (s); {loads(rows)}\n"
    yield " | ".join(["| flows | bytes | predicted (s)", *(f"{way}: last; mean" for way in ways)]) + " |"
    yield "|---:|---:|---:|" + "---|" * len(ways)
    for flows, size in sorted({(row["flows"], row["size"]) for row in rows}):
        cells = [[row for row in rows if (row["flows"], row["size"], row["way"]) == (flows, size, way)] for way in ways]
        ends = ["; ".join(ranged([each(row["measured"]) for row in cell], 3) for each in (max, mean)) for cell in cells]
        yield f"| {flows} | {size:,} | {max(cells[0][0]['predicted']):.3f} | {' | '.join(ends)} |"


def cells_of(
    rows: Sequence[Row], key: Callable[[Row], object], value: Callable[[Row], float]
) -> dict[object, list[float]]:
    """Return the values of rows, by their keys."""
    found: dict[object, list[float]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(value(row))
    return found


def ranged(values: Sequence[float], digits: int) -> str:
    """Return the median and the range of values."""
    if not values:
        return "–"
    middle, *ends = (round(each, digits) + 0.0 for each in (median(values), min(values), max(values)))  # no -0
    text = f"{middle:.{digits}f}"
    return text if len(values) == 1 else f"{text} ({ends[0]:.{digits}f}–{ends[1]:.{digits}f})"


def loads(rows: Sequence[Row]) -> str:
    """Say under which load of the machine rows were measured, and how often each."""
    found = [row["load"] for row in rows]
    return f"load {min(found):.1f} to {max(found):.1f}"


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw measured ÷ predicted over the size of messages, without latency."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.7, 4), layout="constrained")
    equal = of(rows, "equal", "TCP")
    for ax, ratio, title in zip(axes, (last, first), ("the last upload", "the first upload"), strict=True):
        for flows in sorted({row["flows"] for row in equal}):
            label = f"{flows} at once" if flows > 1 else "1 alone"
            bars(ax, [row for row in equal if row["flows"] == flows], ratio, label, 1.06 ** (flows - 4))
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set(yscale="log", ylim=(0.2, 30), title=f"No latency: {title}", ylabel="measured ÷ predicted")
        ticks = [0.2, 0.5, 1, 2, 5, 10, 20]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.legend(loc="upper right")
    for ax in axes:
        ax.set(xscale="log", xlabel="message [bytes]")
        ax.grid(alpha=0.3)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def bars(ax: Any, rows: Sequence[Row], value: Callable[[Row], float], label: str, beside: float) -> None:
    """Draw medians and ranges of a value by size; ``beside`` moves them, so that bars do not hide each other."""
    cells = cells_of(rows, lambda row: row["size"], value)
    sizes = sorted({row["size"] for row in rows})
    middle = [median(cells[size]) for size in sizes]
    below = [one - min(cells[size]) for one, size in zip(middle, sizes, strict=True)]
    above = [max(cells[size]) - one for one, size in zip(middle, sizes, strict=True)]
    places = [size * beside for size in sizes]
    ax.errorbar(places, middle, [below, above], marker="o", markersize=4, capsize=2, label=label)
