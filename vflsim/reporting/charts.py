"""Data of the charts that a reader can zoom: curves over time, rounds, bytes and energy, and the parties' timeline."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from vflsim.intervals import step_values
from vflsim.party_names import titled
from vflsim.plotting import PLOTS, protocol_styles
from vflsim.plotting.selection import length, one_seed
from vflsim.plotting.style import Numbers, frame, metric_label
from vflsim.plotting.timeline import ACTIVITIES
from vflsim.results.events import activities, activity
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.store.run import RecordedRun
from vflsim.timing.floats import Floats
from vflsim.world.record import OUTCOMES

AXES = {
    "time": ("virtual time", "s"),
    "rounds": ("server steps", ""),
    "bytes": ("bytes sent by all parties", "B"),
    "energy": ("energy of all parties", "J"),
}
"""The horizontal axes of curves, by the name of the figure with the same numbers: label and unit."""
VALUES = 12_000
"""Most numbers of one chart of curves."""
SPANS = 9_000
"""Most activities in the timeline; every protocol has the same share of them, from its beginning."""
_OTHER = ("other", "#B07AA1", (0.34, 0.94))


def embedded(data: Any) -> Markup:
    """Write data as JSON that cannot end the script element around it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def looks(shown: Results | Mapping[str, str]) -> dict[str, Any]:
    """Return the colour, dashes (pixels), marker, and whether it is hollow, of every protocol of results, or of kinds.

    Kinds are those of protocols by name.
    """
    styles = {}
    for name, style in protocol_styles(shown).items():
        dash = [] if isinstance(style.dash, str) else [round(2 * length) for length in style.dash[1]]
        styles[name] = {"color": style.color, "dash": dash, "marker": style.marker, "hollow": style.hollow}
    return styles


def curves(results: Results, drawn: Mapping[str, Numbers], share: float = 1.0) -> dict[str, Any] | None:
    """Return the main metric of every protocol against each axis; None if no finished run was evaluated.

    Each axis has ``x`` (ascending) and, for each protocol, the ``mean`` at these points with the band ``low``, ``high``
    (None after the first end of a run). References have a level instead. ``drawn`` are the numbers of figures that have
    been drawn, by name.
    """
    try:
        metric = results.main_metric
    except NotRecordedError:
        return None
    axes = {}
    for name, (label, unit) in AXES.items():
        try:
            numbers = drawn[name] if drawn.get(name) else PLOTS[name](results, metric).numbers
        except NotRecordedError:
            continue
        column = numbers["means"].columns[1]
        means = {str(key): rows for key, rows in numbers["means"].groupby("protocol", sort=False)}
        known = {key: tuple(rows[each].to_numpy(np.float64) for each in (column, "mean", "low", "high"))
                 for key, rows in means.items()}  # fmt: skip
        grid = _grid([x for x, *_ in known.values()], max(20, int(share * VALUES) // (3 * max(1, len(known)))))
        levels = numbers.get("references", frame(("protocol", "mean"), []))
        axes[name] = {
            "label": label,
            "unit": unit,
            "x": _numbers(grid, 6),
            "series": {key: _on(grid, *rows) for key, rows in known.items()},
            "levels": dict(zip(levels["protocol"], _numbers(levels["mean"], 4), strict=True)),
        }
    targets = [target.value for target in results.targets if target.metric == metric]
    return {"metric": metric_label(metric), "targets": targets, "axes": axes} if axes else None


def timeline(results: Results, share: float = 1.0) -> dict[str, Any] | None:
    """Return the activities of all parties in one seed's runs, a panel each; None if events were not kept.

    References, which exchange no message, have no panel beside others.
    """
    try:
        recorded = one_seed(results)
    except NotRecordedError:
        return None
    runs = [run for run in recorded if not run.info.reference] or recorded
    return panels(runs, int(share * SPANS) // len(runs))


def panels(runs: Sequence[RecordedRun], most: int) -> dict[str, Any]:
    """Return up to ``most`` activities of each run, from its beginning, as the page's timeline takes them."""
    looks = ACTIVITIES | {"other": _OTHER}
    kinds = {name: dict(zip(("label", "color", "rows"), look, strict=True)) for name, look in looks.items()}
    return {"kinds": kinds, "outcomes": OUTCOMES, "panels": [_panel(run, [*kinds], most) for run in runs]}


def _panel(run: RecordedRun, kinds: list[str], most: int) -> dict[str, Any]:
    """Return a run's first activities in columns; ``until``: the end of the time that is complete."""
    events = activities(run)
    end = max(length(run), float(events.end.max(initial=0.0)))  # a failed run may end after its last row of metrics
    lasting = (events.end > events.start) | (events.outcome == OUTCOMES.index("lost"))
    order = np.flatnonzero(lasting)[np.argsort(events.start[lasting], kind="stable")]
    until = end if len(order) <= most else float(events.start[order[most]])
    first = events.where(order[:most])
    names = [activity(kind) for kind in events.kinds]
    codes = np.array([kinds.index(name if name in kinds else "other") for name in names], np.int64)
    parties = sorted({0, *run.info.participants, *first.party.tolist()})
    places = {party: place for place, party in enumerate(parties)}
    steps = run.table("rounds", ["end_s"])["end_s"].to_numpy() if run.has("rounds") else np.empty(0)
    return {
        "protocol": run.protocol,
        "seed": run.seed,
        "parties": ["server" if party == 0 else titled(f"client {party}") for party in parties],
        "until": until,
        "end": end,
        "start": _numbers(first.start, 7),
        "length": _numbers(first.end - first.start, 4),
        "party": [places[party] for party in first.party.tolist()],
        "peer": [places.get(peer, -1) for peer in first.peer.tolist()],
        "kind": codes[first.kind].tolist() if len(first) else [],
        "outcome": first.outcome.tolist(),
        "round": first.round.tolist(),
        "steps": _numbers(steps[steps <= until][:most], 7),
        "window": float(steps[min(1, len(steps) - 1)]) if len(steps) else until,
    }


def _grid(each: list[Floats], most: int) -> Floats:
    """Merge the points of all curves; if they are too many, keep some: evenly by number, by distance, and by ratio."""
    points = np.unique(np.concatenate(each))
    if len(points) <= most:
        return points
    even = np.linspace(0, len(points) - 1, most // 3)
    first = points[points > 0][0]
    ends = np.linspace(points[0], points[-1], most // 3), np.geomspace(first, points[-1], most // 3)
    near = np.minimum(np.searchsorted(points, np.concatenate(ends)), len(points) - 1)
    return points[np.unique(np.concatenate([even, near]).astype(np.int64))]


def _on(grid: Floats, x: Floats, mean: Floats, low: Floats, high: Floats) -> dict[str, list[float | None]]:
    """Evaluate a curve and its band at the grid's points up to its end."""
    within = grid <= x[-1]
    columns = {"mean": mean} if np.isnan(low).all() else {"mean": mean, "low": low, "high": high}
    return {name: _numbers(np.where(within, step_values(x, y, grid), np.nan), 4) for name, y in columns.items()}


def _numbers(values: Any, digits: int) -> list[Any]:
    """Round numbers to significant digits; None for those that are not finite."""
    plain = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in plain]
