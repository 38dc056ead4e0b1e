"""The pages of the Python API: which names each one shows. mkdocstrings writes them from their docstrings."""

from __future__ import annotations

PAGES = {
    "index": (
        "Python",
        "The verbs of `import vflsim`.",
        ("load", "run", "sweep", "tune", "open_results", "read_sweep", "compare", "plot"),
    ),
    "results": (
        "Results and figures",
        "What the verbs return. [Results](../../results.md) explains the tables and their columns.",
        (
            "results.read.Results",
            "results.stored.StoredRun",
            "results.joined.JoinedResults",
            "trained.results.StudyResults",
            "trained.models.TrainedModels",
            "results.sweep.Sweep",
            "results.tuning.Tuning",
            "plotting.style.Picture",
        ),
    ),
    "scenario": (
        "Scenarios",
        "What `vflsim.load` returns. Its attributes are the [keys of a scenario file](../scenario/index.md).",
        ("scenario.models.Scenario", "scenario.load.dump"),
    ),
    "protocols": (
        "Protocols",
        "What a [protocol of your own](../../tutorial/own-protocol.md) derives from, and what its coroutines see.",
        ("protocols.base.Protocol", "world.node.Node", "world.messages.Message"),
    ),
    "parts": (
        "Delays, codecs, aggregates",
        "What other classes of your own derive from.",
        ("timing.base.Delay", "timing.law.Law", "codecs.base.Codec", "learning.aggregates.Aggregate"),
    ),
    "errors": (
        "Errors",
        "What the verbs raise.",
        tuple(f"errors.{name}Error" for name in ("Vflsim", "Scenario", "Data", "Results", "Checkpoint", "Run")),
    ),
}
"""The title, the first sentence and the names of each page."""


def python_pages() -> dict[str, str]:
    """Write the pages, by name."""
    return {
        name: "\n\n".join([f"# {title}", first, *map(_shown, names)]) for name, (title, first, names) in PAGES.items()
    }


def _shown(name: str) -> str:
    return f"::: vflsim.{name}"
