"""The page of ``vflsim explore``: one HTML file whose scripts ask this server alone."""

from __future__ import annotations

from pathlib import Path

from vflsim.exploring.base import Base
from vflsim.exploring.controls import controls
from vflsim.reporting.charts import embedded
from vflsim.reporting.page import ASSETS, rendered

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
