"""Reconstruction of features from all coded embeddings of a batch, from which a server decodes sums."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias, final

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from vflsim.attacks.base import AttackedRun, Measured
from vflsim.attacks.probes import AttackOfClients, Indices, linear, numbers
from vflsim.attacks.reconstruction import explained, numeric
from vflsim.finished import PartyView, PrimeField, Quantiser, RecordedViews, StoredRun, eliminated
from vflsim.protocol import Count, Floats, Quantity, generator, party_name

Method: TypeAlias = Literal["linear", "field"]
CODED, SUMS = "coded_embedding", "mean"
"""The kinds of the messages, and of what the server decodes from them."""


@final
class CodedEmbeddings(AttackOfClients):
    """The server takes all coded embeddings of its first rounds with a row side by side, beside the decoded sums.

    It knows the features of some auxiliary rows. ``linear`` is ridge regression on sums, coded embeddings and their
    bits. ``field`` solves for features exactly: linear regression over F_p, on rows that were in the same batches.
    Where no solution fits all known rows, or where it does not determine a row, it uses the result of ridge regression
    on the sums.
    """

    kind: Literal["coded_embeddings"] = "coded_embeddings"
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = ("linear", "field")
    """How features are reconstructed."""
    rounds: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 3, 4)
    """How many of the first rounds with a row."""
    auxiliary: Annotated[float, Quantity(above=0, at_most=0.9)] = 0.5
    """The share of the rows that have arrived whose features the attacker knows."""
    title: ClassVar[str] = "features from all coded embeddings of a batch together"
    measures: ClassVar[Mapping[str, str]] = {
        "r2": "explained variance R²",
        "partial_r2": "partial R²",
        "determined": "share determined",
    }
    drawn: ClassVar[tuple[str, ...]] = ("r2",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"r2": (-math.inf, 1)}
    note: ClassVar[str] = (
        "R² over all features of the rows that the attacker does not know. Its chance level is the R² of the decoded "
        "sums of the same rounds alone; partial R² is the share of what these leave over that the coded embeddings "
        "explain. Determined is the share of the unknown rows' features that equations over the field determine. "
        "Intervals in the Parquet table are over rows (bootstrap)"
    )

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Attack each client. Raises ``ValueError`` if the server decodes nothing, or if only the last is kept."""
        clients, quantiser = self.clients(attacked), quantiser_of(attacked.run)
        views, seed = attacked.run.views(), attacked.run.seed
        for rounds in self.rounds:
            seen = seen_together(views, rounds)
            if seen is None:
                attacked.remarks.append(f"no recorded row was in {rounds} rounds")
                continue
            rows = np.flatnonzero(seen.complete)
            order = generator(seed, 0, "attack.coded_embeddings").permutation(len(rows))
            known, others = np.split(order, [max(2, round(self.auxiliary * len(rows)))])
            for client in clients:
                data = attacked.models.data
                y = numeric(data.features[client - 1]["train"][views.rows], data.shapes[client - 1])[rows]
                alone = linear(seen.sums[rows], y[known], known, others)
                for method in self.method:
                    if method == "linear":
                        guess, share = linear(seen.numbers[rows], y[known], known, others, seen.sums[rows]), math.nan
                    else:
                        guess, determined = solved(seen, rows, y, known, others, quantiser, alone)
                        share = float(determined.mean())
                    setting = {"rounds": rounds, "method": method}
                    party, mean = party_name(client), y[known].mean(0)
                    bits = generator(seed, client, f"attack.coded_embeddings/{rounds}/{method}")
                    fit = explained(guess, y[others], mean, bits)
                    chance = explained(alone, y[others], mean, bits)
                    yield Measured("r2", fit.r2, party, setting, fit.low, fit.high, *chance)
                    more = explained(guess, y[others], alone, bits)
                    yield Measured("partial_r2", more.r2, party, setting, more.low, more.high, 0.0)
                    if method == "field":
                        yield Measured("determined", share, party, setting)


@dataclass(frozen=True, slots=True)
class CodedAnswers:
    """What a server has of the first rounds with each recorded row, (recorded rows, …); 0 where there is less.

    ``sums`` are decoded, ``elements`` are the coded embeddings of all senders side by side, in the field, ``numbers``
    the same as real numbers and bits. ``batch`` has a number for each row: rows with the same number were in the same
    batches, at the same segment. ``complete`` says for which rows there were so many rounds.
    """

    sums: Floats
    elements: Tensor
    batch: Indices
    complete: NDArray[np.bool_]

    @property
    def numbers(self) -> Floats:
        """The elements as real numbers, followed by their bits."""
        return numbers(self.elements)


def seen_together(views: RecordedViews, rounds: int) -> CodedAnswers | None:
    """Collect what the server has received in the first ``rounds`` rounds with each row; None if no row was in as many.

    Raises ``ValueError`` if there is none, or if arrivals were not kept.
    """
    server = views.of_receiver("server")
    coded = [view for view in server if view.kind == CODED]
    decoded = [view for view in server if view.derived and view.kind == SUMS]
    if not coded or len(decoded) != 1:
        raise ValueError("the server decodes no sums; allowed: runs of coded protocols")
    (sums,) = decoded
    if sums.arrivals is None:
        raise ValueError("only the last arrivals were kept; allowed: record: {views: {rows: 512, keep: all}}")
    rows, arrivals = len(views.rows), sums.arrivals
    number = arrivals.number
    if number.max() + 1 < rounds:
        return None
    kept = number < rounds
    times = np.full((rows, rounds), np.nan)
    times[arrivals.row[kept], number[kept]] = arrivals.time_s[kept]
    complete = ~np.isnan(times).any(1)
    if not complete.any():
        return None
    width = int(arrivals.values.shape[1])
    values = np.zeros((rows, rounds, width))
    values[arrivals.row[kept], number[kept]] = arrivals.values[torch.from_numpy(kept)].double().numpy()
    parts = [_by_round(view, times, width) for view in coded]
    elements = torch.cat([part for part, _ in parts], 1).flatten(1)
    there = np.concatenate([where for _, where in parts], 1)
    keys = np.hstack([np.nan_to_num(times, nan=-1.0), there, _segments(coded[0], views.rows)[:, None]])
    batch = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return CodedAnswers(values.reshape(rows, -1), elements, batch, complete)


def _by_round(view: PartyView, times: Floats, width: int) -> tuple[Tensor, NDArray[np.bool_]]:
    """Return one sender's coded embeddings by row and round, (rows, rounds, width), and where there are any."""
    assert view.arrivals is not None
    row, at = view.arrivals.row, view.arrivals.time_s
    place = (times[row] < at[:, None]).sum(1)  # a round ends when its sum is decoded
    inside = place < times.shape[1]
    embeddings = torch.zeros((*times.shape, width), dtype=torch.int64)
    there = np.zeros(times.shape, bool)
    embeddings[row[inside], place[inside]] = view.arrivals.values[torch.from_numpy(inside)].long()
    there[row[inside], place[inside]] = True
    return embeddings, there


def _segments(view: PartyView, rows: Indices) -> Indices:
    """Return the segment of every recorded row: its place among the training rows that a coded row mixes."""
    assert view.mixed is not None
    places: Indices = (view.mixed == rows[:, None]).argmax(1)
    return places


def solved(
    seen: CodedAnswers, rows: Indices, y: Floats, known: Indices, others: Indices, quantiser: Quantiser, alone: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Solve for the features of the rows ``others``, batch by batch: (others, features), and which are determined.

    Features are linear in the coded embeddings of a batch, or they are not: known rows decide. The other guesses are
    those in ``alone``.
    """
    field, guess, determined = quantiser.field, alone.copy(), np.zeros(alone.shape, bool)
    integers = field.embed(quantiser.data(torch.from_numpy(y)))
    x, batch = seen.elements[rows], seen.batch[rows]
    for each in np.unique(batch):
        solving, unknown = known[batch[known] == each], np.flatnonzero(batch[others] == each)
        if not len(solving) or not len(unknown):
            continue
        echelon = eliminated(field, torch.cat([x[solving], integers[solving]], 1), x.shape[1])
        if not len(echelon.rest):  # with as many equations as known rows, nothing shows whether they hold
            continue
        varies = (integers[solving] != integers[solving][0]).any(0)
        fits = (varies & ~echelon.rest[:, x.shape[1] :].any(0)).numpy()
        elements, exact = echelon.explained(x[others[unknown]])
        both = exact.numpy()[:, None] & fits
        values = quantiser.data_values(field.signed(elements)).numpy()
        guess[unknown] = np.where(both, values, guess[unknown])
        determined[unknown] = both
    return guess, determined


def quantiser_of(run: StoredRun) -> Quantiser:
    """Return the field and the scales that the run has recorded. Raises ``ValueError`` if it has none."""
    path = run.folder / "coding.parquet"
    if not path.is_file():
        raise ValueError("its messages are no elements of a field; allowed: coded protocols")
    (facts,) = pq.read_table(path, columns=["prime", "data_bits", "weight_bits"]).to_pylist()
    return Quantiser(PrimeField(facts["prime"]), facts["data_bits"], facts["weight_bits"])
