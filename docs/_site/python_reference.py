"""The page of the Python API: which names it shows. mkdocstrings writes them from their docstrings."""

from __future__ import annotations

SECTIONS = {
    "Verbs": ("", ("load", "run", "tune", "open_results", "plot")),
    "Scenarios": (
        "What `vflsim.load` returns. Its attributes are the keys of a scenario file.",
        ("scenario.models.Scenario", "scenario.load.dump"),
    ),
    "Results": (
        "What `vflsim.run`, `vflsim.tune`, `vflsim.open_results` and `vflsim.plot` return.",
        (
            "results.read.Results",
            "results.read.StoredRun",
            "results.sweep.Sweep",
            "results.tuning.Tuning",
            "plotting.style.Picture",
        ),
    ),
    "Base classes": (
        "What a class of your own derives from.",
        (
            "protocols.base.Protocol",
            "timing.base.Delay",
            "timing.law.Law",
            "codecs.base.Codec",
            "learning.aggregates.Aggregate",
        ),
    ),
    "What a protocol sees": ("", ("world.node.Node", "world.messages.Message")),
    "Errors": (
        "",
        ("errors.VflsimError", "errors.ScenarioError", "errors.DataError", "errors.ResultsError", "errors.RunError"),
    ),
}
"""What each section says first, and the names that it shows."""


def python() -> str:
    """Write the page."""
    page = ["# Python"]
    for section, (remark, names) in SECTIONS.items():
        page += [f"## {section}", remark, *(f"::: vflsim.{name}\n    options: {{heading_level: 3}}" for name in names)]
    return "\n\n".join(page) + "\n"
