"""The page of ``vflsim explore``: one HTML file whose scripts ask this server alone, with a control for each knob."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from vflsim.exploring.base import Base
from vflsim.exploring.knobs import NETWORKS, PLAYED
from vflsim.reporting.charts import embedded
from vflsim.reporting.page import ASSETS, rendered

Scale = Literal["whole", "linear", "log", "powers"]
"""How a slider moves: by 1, evenly, by ratios, or by powers of 2."""


@dataclass(frozen=True, slots=True)
class Control:
    """A slider and a box. ``factor`` turns a number in ``unit`` into SI units; ``most`` may name another knob.

    ``word`` is a value that stands for no number, such as ``unlimited``, for which there is a box to tick.
    """

    label: str
    least: float
    most: float | str
    scale: Scale
    unit: str = ""
    factor: float = 1.0
    word: str = ""
    hint: str = ""


CONTROLS = {
    "clients": Control("clients", 2, 64, "whole"),
    "stragglers": Control("stragglers", 0, "clients", "whole", hint="the last clients; the others have no delay"),
    "bandwidth": Control("bandwidth", 1, 10_000, "log", "Mbps", 1e6, "unlimited", "of every link, up and down"),
    "latency": Control("latency", 0, 500, "log", "ms", 1e-3, hint="of every link; a message pays two"),
    "batch": Control("batch", 1, 4096, "powers", "rows", word="all"),
    "t": Control("t", 1, "clients", "whole", hint="embeddings that make a step"),
    "K": Control("K", 1, 16, "whole", hint="segments of the data"),
    "T": Control("T", 1, 8, "whole", hint="masks: colluding clients that learn nothing"),
}
"""The knobs that are numbers."""


def _seconds(key: str, least: float = 0.001, hint: str = "") -> Control:
    return Control(key, least, 60, "log", "s", 1.0, hint=hint)


_PARAMETERS = {
    "value": _seconds("value", 0),
    "mean": _seconds("mean"),
    "median": _seconds("median"),
    "scale": _seconds("scale"),
    "minimum": _seconds("minimum"),
    "shift": _seconds("shift", 0, hint="the shortest delay; the mean adds to it"),
    "low": _seconds("low", 0),
    "high": _seconds("high"),
    "sd": _seconds("standard deviation"),
    "sigma": Control("sigma", 0.05, 3, "log", hint="of the delay’s logarithm"),
    "shape": Control("shape", 0.2, 10, "log"),
}
"""The parameters of delays, by key."""

BEGINNINGS: dict[str, dict[str, float | str]] = {
    "constant": {"value": "mean"},
    "exponential": {"mean": "mean"},
    "shifted_exponential": {"shift": "half", "mean": "half"},
    "uniform": {"low": "half", "high": "more"},
    "normal": {"mean": "mean", "sd": "quarter"},
    "lognormal": {"sigma": 1.0, "mean": "mean"},
    "gamma": {"shape": 2.0, "mean": "mean"},
    "weibull": {"shape": 0.7, "mean": "mean"},
    "pareto": {"shape": 2.5, "mean": "mean"},
}
"""The parameters of a kind of delay when it is chosen: numbers, or shares of the mean of the delay before."""


def controls() -> dict[str, Any]:
    """Return all that the page needs to make its controls, as plain values."""
    return {
        "numbers": {name: asdict(each) for name, each in CONTROLS.items()},
        "parameters": {name: asdict(each) for name, each in _PARAMETERS.items()},
        "kinds": {kind: BEGINNINGS[kind] for kind in (str(each.model_fields["kind"].default) for each in PLAYED)},
        "networks": NETWORKS,
    }


_OWN = Path(__file__).parent / "assets"


def page(base: Base, source: str, token: str) -> str:
    """Make the page that begins with a base. ``source`` names it; questions show the ``token``."""
    told = {
        "controls": controls(),
        "begin": dict(base.begin),
        "unheld": dict(base.unheld),
        "having": {key: list(names) for key, names in base.having.items()},
        "name": base.name,
        "token": token,
    }
    content = {"base": base, "source": source, "told": embedded(told)}
    return rendered("explore.html.jinja", (_OWN, ASSETS), **content)
