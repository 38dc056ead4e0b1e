"""The board of a study on a cluster: it knows which runs have begun, and the progress of each.

It needs no library. It is a separate actor, because a task returns nothing before its end.
"""

from __future__ import annotations


class Board:
    """Keeps the latest news of every run by its number, pickled, until the study takes them."""

    def __init__(self) -> None:
        self._news: dict[int, bytes] = {}

    def tell(self, number: int, news: bytes) -> None:
        """Replace the news of a run."""
        self._news[number] = news

    def take(self) -> dict[int, bytes]:
        """Return the news since the last time."""
        news, self._news = self._news, {}
        return news
