"""Functions of the package that the command line offers by the same words: ``analyze``, ``check``, ``fit``, and others.

``vflsim`` exports them. They import what they need when they are called, so that ``import vflsim`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class Framed:
    """An answer with a ``frame``, which notebooks show with five digits and with empty cells for what is missing."""

    if TYPE_CHECKING:

        @property
        def frame(self) -> pd.DataFrame:
            """A row for each thing that was asked about."""

    def _repr_html_(self) -> str:
        html: str = self.frame.to_html(index=False, na_rep="", float_format="{:.5g}".format)
        return html
