"""Who holds which features."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal
from unicodedata import normalize

import numpy as np
from pydantic import AfterValidator, Field, StrictInt, TypeAdapter, ValidationError, field_validator, model_validator

from vflsim.errors import DataError, printable
from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.data.drawn_partition import by_correlation, by_importance, rank_correlation
from vflsim.learning.data.raw import View, feature_names, nearest
from vflsim.party_names import has_meaning
from vflsim.streams import party_name
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import Count, Fraction01, Index, PositiveNumber, Quantity

_WHERE = "partition"
Share = Annotated[float, Quantity(above=0, at_most=1)]


def _of_one_line(name: str) -> str:
    """Refuse what could steer a terminal or begin a line of its own, wherever the name is shown."""
    if (shown := printable(name, "")) != name:
        raise ValueError(f"'{shown}' holds a line break or a control character; allowed: printable text of one line")
    return name


PartyTitle = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_of_one_line)]
DRAWN = ("importance", "correlation")
"""Partitions with draws: features are dealt, not cut."""
WAYS = {
    "columns": ("clients, shares?, active?, names?", "Runs of features; of images, row by row."),
    "image_rows": ("clients, shares?, active?, names?", "Horizontal strips, which stay images."),
    "image_columns": ("clients, shares?, active?, names?", "Vertical strips, which stay images."),
    "patches": ("clients, active?, names?", "A grid of patches, which stay images, as square as clients allow."),
    "views": ("clients?, active?, names?", "One view (or party's file) a client."),
    "explicit": ("columns, clients?, active?, names?", "Each client's features, by name or index."),
    "importance": ("clients, alpha, seed?, active?, names?", "Features at random, as unequal in number as alpha says."),
    "correlation": ("clients, beta, seed?, active?, names?", "Features by their correlations, apart to mixed by beta."),
}
"""The keys of each way of cutting features (``?`` behind those that may be left out), and what it is."""
_MEANING = {"alpha": "a number above 0, the smaller the more unequal", "beta": "0 (apart) to 1 (mixed)"}


class Partition(Part):
    """How the features are cut into parties: contiguous, and as evenly as possible (the first ones get one more).

    Examples: ``{clients: 4, by: columns, shares: [0.4, 0.2, 0.2, 0.2]}``, ``{by: explicit, columns:
    [[age..income], [visits, town]], names: [bank, shop]}``, ``{clients: 3, by: image_rows, active: true}``,
    ``{clients: 6, by: importance, alpha: 0.1, seed: 3}``, ``{clients: 6, by: correlation, beta: 0.5}``
    """

    clients: Count | None = None
    """Number of clients. May be left out where the data, ``columns`` or ``shares`` decide it."""
    by: (
        Literal["columns", "image_rows", "image_columns", "patches", "views", "explicit", "importance", "correlation"]
        | None
    ) = None
    """columns: runs of features, images row by row. image_rows, image_columns: strips that stay images. patches: a grid
    of patches that stay images. views: one view (or party's file) a client. explicit: as ``columns`` says. importance:
    columns at random, by ``alpha``. correlation: columns by their correlations and ``beta``. Left out: views where the
    data have several, otherwise columns. ``vflsim list partitions`` has the keys of each."""
    columns: tuple[tuple[str | StrictInt, ...], ...] | None = Field(default=None, min_length=1)
    """For explicit: what each client holds, as names, indices from 0, or ranges ``0..12`` and ``age..income`` with both
    ends included. A feature belongs to one party at most."""
    shares: tuple[Share, ...] | None = Field(default=None, min_length=1)
    """For columns, image_rows and image_columns: the part of all columns or rows that each party holds. They add up to
    1. A party ends at the column or row nearest to its share and those before it."""
    alpha: PositiveNumber | None = None
    """For importance: the parameter of the Dirichlet distribution that features are dealt by. 0.1 leaves most of them
    to few parties, 100 gives all about as many."""
    beta: Fraction01 | None = None
    """For correlation: 0 gives each party features that correlate among themselves, 1 gives every party some of each
    kind, so that parties correlate with each other."""
    seed: Index | None = None
    """For importance and correlation: the seed of the draws, the same for all runs. Default: 0."""
    active: bool = False
    """Whether the server, which holds the labels, holds features, too (the active party). The features are then cut
    into one part more than there are clients; the first part, share, view or file, or list of ``columns``, is the
    server's."""
    names: tuple[PartyTitle, ...] | None = Field(default=None, min_length=1)
    """What messages, tables, pictures and reports call the parties, instead of client-1, client-2, …: a name for each,
    in client order, after that of an active server. A name is one line of up to 64 characters, and no number or
    formula. ``select`` takes names that a formula could have: up to 32 letters, digits and _. Files keep client-1,
    client-2, …"""

    @field_validator("columns", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return tuple((entry,) if isinstance(entry, str | int) else entry for entry in value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Partition:
        if self.by == "explicit" and self.columns is None:
            raise ValueError("by: explicit needs columns: a list with one list of features per client")
        if self.by != "explicit" and self.columns is not None:
            raise ValueError("columns belongs to by: explicit")
        if self.shares is not None and self.by not in ("columns", "image_rows", "image_columns"):
            raise ValueError("shares belongs to by: columns, by: image_rows or by: image_columns")
        if self.shares is not None and not math.isclose(math.fsum(self.shares), 1):
            raise ValueError(f"the shares add up to {math.fsum(self.shares):g}; allowed: 1")
        for key, by in (("alpha", "importance"), ("beta", "correlation")):
            if self.by == by and getattr(self, key) is None:
                raise ValueError(f"by: {by} needs {key}: {_MEANING[key]}")
            if self.by != by and getattr(self, key) is not None:
                raise ValueError(f"{key} belongs to by: {by}")
        if self.seed is not None and self.by not in DRAWN:
            raise ValueError("seed belongs to by: importance or by: correlation")
        if self.by in ("columns", "image_rows", "image_columns", "patches", *DRAWN) and self.parts is None:
            raise ValueError(f"by: {self.by} needs clients: how many")
        listed = self.columns or self.shares or self.names
        if taken := [name for name in self.names or () if has_meaning(name)]:
            what = f"a party cannot be called {taken[0]!r}, which has a meaning in messages or selections"
            raise ValueError(f"{what}; allowed: other names, such as 'bank' or 'site 1'")
        alike: dict[str, str] = {}
        for name in self.names or ():
            looks = normalize("NFC", name.strip())
            if looks in alike:
                what = f"names has a name twice: {alike[looks]!r} and {name!r}"
                raise ValueError(f"{what}; allowed: a name of its own for each party")
            alike[looks] = name
        if self.names is not None and listed is not None and len(listed) != len(self.names):
            raise ValueError(f"names are {len(self.names)} for {len(listed)} parties; allowed: one for each")
        named = ("columns", self.columns, "list"), ("shares", self.shares, "share"), ("names", self.names, "name")
        for key, entries, entry in named:
            if entries is not None and self.clients not in (None, len(entries) - self.active):
                server = ", the first of which is the server's" if self.active else ""
                what = f"clients is {self.clients}, but {key} has {len(entries)} {entry}s{server}"
                raise ValueError(f"{what}; allowed: {self.clients + self.active} {entry}s, or no clients")
            if entries is not None and len(entries) <= self.active:
                raise ValueError(f"{key} has no {entry} but the server's; allowed: one more {entry} per client")
        return self

    @property
    def parts(self) -> int | None:
        """Into how many parts the features are cut, the server's included; None where the data decide it."""
        for entries in (self.shares, self.names):
            if entries is not None:
                return len(entries)
        return None if self.clients is None else self.clients + self.active

    def names_of(self, parties: int) -> list[str]:
        """Return what messages about the data call each of so many parties.

        Example: ``Partition(by="columns", names=("bank", "shop")).names_of(2)``
        """
        return [*(self.names or map(party_name, range(1 - self.active, parties + 1 - self.active)))]


def parts_of(data: object) -> int:
    """Count the views or parties' files of a raw ``data`` section, as far as it tells without reading any file."""
    if not isinstance(data, Mapping):
        return 1
    if isinstance(listed := data.get("parties"), (list, tuple)):
        return len(listed)
    entry = CATALOGUE.get(str(data.get("name")))
    return entry.views if entry else 1


def clients_hint(data: object, partition: object, symbols: Mapping[str, float] | None = None) -> int:
    """Say how many clients there will be, from the raw or validated sections, without reading any file.

    Raises DataError when only the data could tell (say ``clients`` then) or the sections do not make sense.
    """
    raw, cut = (part.model_dump() if isinstance(part, Part) else part or {} for part in (data, partition))
    if not isinstance(raw, Mapping) or not isinstance(cut, Mapping):
        raise DataError("data and partition must be mappings", _WHERE)
    if cut.get("clients") is not None:
        try:
            return TypeAdapter(Count).validate_python(cut["clients"], context={"symbols": symbols or {}})
        except ValidationError as error:
            raise DataError(str(error.errors()[0]["msg"]), f"{_WHERE}.clients", "a whole number, at least 1") from error
    active = cut.get("active") is True
    for listed in (cut.get("columns"), cut.get("shares"), cut.get("names"), raw.get("parties")):
        if isinstance(listed, (list, tuple)) and len(listed) > active:
            return len(listed) - active
    entry = CATALOGUE.get(str(raw.get("name")))
    if entry and entry.views > 1 and cut.get("by") in (None, "views"):
        return entry.views - active
    remedy = "add `clients: 4`, say; for a file with several views, as many as it has"
    raise DataError("the number of clients is not said", f"{_WHERE}.clients", "a whole number, at least 1", remedy)


def cut(partition: Partition, views: Sequence[View]) -> tuple[View, ...]:
    """Cut the features into one view per party: an active server's, then the clients' in client order.

    Contiguous cuts share the memory of ``views``. Raises DataError when there are more parties than columns (rows,
    patches, views), when pixels are asked of a table, or when ``columns`` names a feature that is absent, or twice.
    """
    by = partition.by or ("views" if len(views) > 1 else "columns")
    if by == "views":
        return _by_views(partition, views)
    if by in ("image_rows", "image_columns", "patches"):
        return _by_pixels(partition, by, views)
    table = _table(views)
    if by == "explicit":
        return _explicit(partition, table)
    if partition.parts is None:
        raise DataError("the number of clients is not said", f"{_WHERE}.clients", f"1 to {table.width}", "add it")
    edges = _edges(partition, partition.parts, table.width, "columns")
    if by in DRAWN:
        return _drawn(partition, table, [b - a for a, b in itertools.pairwise(edges)])
    return tuple(table.some(f"columns {a}..{b - 1}", range(a, b)) for a, b in itertools.pairwise(edges))


def _drawn(partition: Partition, table: View, sizes: Sequence[int]) -> tuple[View, ...]:
    rng = np.random.default_rng(partition.seed or 0)
    if partition.alpha is not None:
        parts = by_importance(table.width, len(sizes), partition.alpha, rng)
    else:
        if any(table.categories):
            name = next(name for name, each in zip(table.names, table.categories, strict=True) if each)
            what = f"{name!r} is a category, and categories have no order to correlate"
            remedy = "drop it, or give it numbers in the file (data.categorical: [])"
            raise DataError(what, f"{_WHERE}.by", "columns, explicit or importance", remedy)
        parts = by_correlation(rank_correlation(table.values), sizes, partition.beta or 0.0, rng)
    return tuple(table.some(f"{len(part)} drawn columns", part.tolist()) for part in parts)


def _by_views(partition: Partition, views: Sequence[View]) -> tuple[View, ...]:
    if len(views) == 1 and partition.parts != 1:
        allowed = "columns, image_rows, image_columns, patches or explicit"
        raise DataError("the data have one view only", f"{_WHERE}.by", allowed)
    if partition.parts not in (None, len(views)):
        what = f"{_parties(partition)} for {len(views)} views (or party files)"
        allowed = str(len(views) - partition.active)
        raise DataError(what, f"{_WHERE}.clients", allowed, "one party per view: leave `clients` out")
    return tuple(views)


def _by_pixels(partition: Partition, by: str, views: Sequence[View]) -> tuple[View, ...]:
    parts = partition.parts or 1
    if len(views) != 1 or not views[0].is_image:
        raise DataError(f"by: {by} needs images, but the data are a table", f"{_WHERE}.by", "columns, views, explicit")
    height, width = views[0].values.shape[2:]
    tops, lefts = _even(height, 1), _even(width, 1)
    if by == "image_rows":
        tops = _edges(partition, parts, height, "rows of pixels")
    elif by == "image_columns":
        lefts = _edges(partition, parts, width, "columns of pixels")
    else:
        down, across = _grid(partition, parts, height, width)
        tops, lefts = _even(height, down), _even(width, across)
    strips = [(*rows, *columns) for rows in itertools.pairwise(tops) for columns in itertools.pairwise(lefts)]
    names = np.array(feature_names(views[0]), dtype=object).reshape(views[0].values.shape[1:])
    return tuple(
        View(
            f"pixel rows {a}..{b - 1}" + (f", columns {c}..{d - 1}" if len(lefts) > 2 else ""),
            views[0].values[:, :, a:b, c:d],
            tuple(names[:, a:b, c:d].ravel()),
            pixels=True,
        )
        for a, b, c, d in strips
    )


def _grid(partition: Partition, parts: int, height: int, width: int) -> tuple[int, int]:
    """Return (down, across) with down · across = parts, down ≤ across, as square as possible."""
    for down in range(math.isqrt(parts), 0, -1):
        if parts % down == 0 and down <= height and parts // down <= width:
            return down, parts // down
    what = f"{_parties(partition)} do not tile images of {height}×{width} pixels"
    raise DataError(what, f"{_WHERE}.clients", "a product of numbers of rows and columns", "choose another number")


def _explicit(partition: Partition, table: View) -> tuple[View, ...]:
    owner: dict[int, str] = {}
    parties: list[View] = []
    for number, entries in enumerate(partition.columns or (), start=0 if partition.active else 1):
        name = f"client {number}" if number else "the server"
        if partition.names is not None:
            name = partition.names[len(parties)]
        where = f"{_WHERE}.columns, {name}"
        chosen = [index for entry in entries for index in _indices(entry, table.names, where)]
        if not chosen:
            raise DataError("holds no features", where, "at least one")
        for index in chosen:
            if index in owner:
                what = f"feature {table.names[index]!r} belongs to {owner[index]} already"
                raise DataError(what, where, "every feature at one party at most", "remove it from one of them")
            owner[index] = name
        parties.append(table.some(f"{len(chosen)} chosen columns", chosen))
    return tuple(parties)


def _indices(entry: str | int, names: Sequence[str], where: str) -> range:
    first, dots, last = (entry, "", "") if not isinstance(entry, str) or entry in names else entry.partition("..")
    start = _index(first, names, where)
    stop = _index(last, names, where) if dots else start
    if stop < start:
        raise DataError(f"the range {entry!r} runs backwards", where, "first..last, both included")
    return range(start, stop + 1)


def _index(entry: str | int, names: Sequence[str], where: str) -> int:
    if isinstance(entry, str) and (name := entry if entry in names else entry.strip()) in names:
        if names.count(name) > 1:
            raise DataError(f"several features are called {entry!r}", where, "a name that only one has", "use indices")
        return names.index(name)
    if isinstance(entry, int) or entry.strip().isdecimal():
        if 0 <= int(entry) < len(names):
            return int(entry)
        raise DataError(f"there is no feature {entry}", where, f"indices 0..{len(names) - 1}")
    raise DataError(f"there is no feature {entry!r}", where, nearest(entry, names))


def _table(views: Sequence[View]) -> View:
    """Return all features side by side, pixels row by row; a view of the same memory where there is one view only."""
    flat = [view.values.reshape(len(view.values), -1) for view in views]
    names = tuple(name for view in views for name in feature_names(view))
    values = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
    categories = tuple(each for view in views for each in view.categories or ((),) * view.width)
    return View("all", values, names, all(view.pixels for view in views), categories if any(categories) else ())


def _edges(partition: Partition, parts: int, there: int, what: str) -> list[int]:
    """Return where each part begins, and the end of the last one: ``there`` columns or rows, even or by shares."""
    if parts > there:
        problem = f"{_parties(partition)} cannot share {there} {what}"
        raise DataError(problem, f"{_WHERE}.clients", f"1 to {there - partition.active}", "lower the number of clients")
    if partition.shares is None:
        return _even(there, parts)
    edges = [0, *(round(there * total) for total in itertools.accumulate(partition.shares))]
    for share, (start, end) in zip(partition.shares, itertools.pairwise(edges), strict=True):
        if start == end:
            problem = f"the share {share:g} of {there} {what} is none"
            raise DataError(problem, f"{_WHERE}.shares", f"shares of at least one of {there} {what}", "enlarge it")
    return edges


def _even(size: int, pieces: int) -> list[int]:
    base, more = divmod(size, pieces)
    return [index * base + min(index, more) for index in range(pieces + 1)]


def _parties(partition: Partition) -> str:
    return f"{(partition.parts or 1) - partition.active} clients{' and the server' if partition.active else ''}"
