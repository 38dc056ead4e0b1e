"""Captions: one sentence for each figure, which says what it shows, of which study, and what its marks mean."""

from pathlib import Path

from vflsim.plotting.style import Picture
from vflsim.plotting.style_file import COLUMNS
from vflsim.results.read import Results
from vflsim.results.sweeps.sweep import Sweep
from vflsim.tables.formats import escaped

SHOWN = {
    "time": "The metric against virtual time",
    "rounds": "The metric against server steps",
    "bytes": "The metric against the bytes sent by all parties",
    "energy": "The metric against the energy of all parties",
    "epsilon": "The metric against the privacy spent",
    "target": "What reaching the target costs",
    "speedup": "How many times faster each protocol is",
    "durations": "How long rounds last",
    "survival": "How rare long rounds are",
    "waited": "Which clients the rounds waited for",
    "breakdown": "Where a round’s time goes",
    "staleness": "How old the clients’ contributions are",
    "answers": "What the servers answer by a deadline",
    "utilisation": "How busy the links are",
    "timeline": "What each party does, and when",
}
"""What every figure of a study shows, by its name."""


def caption(results: Results | Sweep, kind: str, figure: Picture) -> str:
    """Write the caption of a figure: ``The metric (test accuracy) against virtual time, quickstart: …``.

    A figure of a sweep, or of a class from outside, is described by its axes.
    """
    axes = [each for each in figure.axes if each.get_visible()]
    named = next((words for each in axes if (words := _line(each.get_ylabel()))), "") or _line(figure.get_supylabel())
    if isinstance(results, Sweep):
        bars = [_line(each.get_ylabel()) for each in axes if each.get_label() == "<colorbar>"]
        shown, over = (bars or [named])[0], ", ".join(axis.title for axis in results.axes)
        text = f"{shown[:1].upper()}{shown[1:]} against {over}"
    else:
        text = SHOWN.get(kind, f"{named[:1].upper()}{named[1:]}" or "Results")
        text = text.replace("The metric", f"The metric ({named})") if named else text
    name = results.scenario if isinstance(results, Sweep) else results.name
    notes = [line for line in figure.explained if line != name]
    notes += [_line(note.get_text()) for note in figure.notes.values()]
    notes = [*dict.fromkeys(note.removeprefix(f"{name}: ").removeprefix(f"{name}, ") for note in notes if note)]
    return f"{text}, {name}" + (f": {'; '.join(notes)}." if notes else ".")


def written(results: Results | Sweep, kind: str, figure: Picture, place: Path) -> dict[Path, str | bytes]:
    """Return the files with the caption of a figure that is saved as ``place``: plain text, and a LaTeX environment.

    The environment is to be read by ``\\input``; a figure that is wider than a column spans both.
    """
    words, wide = caption(results, kind, figure), bool(figure.get_figwidth() > 1.1 * COLUMNS["single"])
    star, width = "*" * wide, "text" if wide else "column"
    lines = [
        rf"\begin{{figure{star}}}",
        r"  \centering",
        rf"  \includegraphics[width=\{width}width]{{{place.stem}}}",
        rf"  \caption{{{escaped(words)}}}",
        rf"  \label{{fig:{place.stem}}}",
        rf"\end{{figure{star}}}",
    ]
    return {place.with_suffix(".txt"): f"{words}\n", place.with_suffix(".tex"): "\n".join(lines) + "\n"}


def _line(words: str) -> str:
    return " ".join(words.split())
