"""Lagrange coded computing (Yu et al. 2019), as FedVS shares data and models (Sec. 4, Eq. 2, 4 and 6).

A polynomial over F_p goes through the secrets at known points and through uniform masks at further ones; a share is its
value somewhere else. Products and sums of shares are values of the products and sums of the polynomials. Enough of
them, from any holders, interpolate the result at the secrets' points.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import cached_property

from vflsim.coding.field import PrimeField
from vflsim.vocabulary.on_demand import Tensor, torch

_REMEMBERED = 64
"""The number of decoding matrices kept: under steady delays the same few holders are mostly the fastest."""


class LagrangeCode:
    """Give shares of K segments and T masks for N holders: values of a polynomial of degree K + T − 1.

    Segment k lies at β_k = k, mask t at β_{K+t} = K + t, and holder n's share (n = 0..N−1) at α_n = K + T + 1 + n.
    All K + T + N points are distinct in F_p: at an α equal to a β, a holder would get a segment in the clear.
    Any T shares of fresh uniform masks are uniform, whatever the segments are (FedVS Thm. 5.2); with T = 0 nothing is
    hidden. Elements are those of ``PrimeField``, int64 in [0, p). Results are on the device of the arguments.

    Raises ValueError if K < 1, T < 0, N < 1, or if F_p has too few points.
    """

    def __init__(self, field: PrimeField, segments: int, masks: int, shares: int) -> None:
        for name, value, least in (("segments", segments, 1), ("masks", masks, 0), ("shares", shares, 1)):
            if value < least:
                raise ValueError(f"{name} = {value}; allowed: {name} >= {least}")
        coded = segments + masks
        if coded + shares >= field.p:
            raise ValueError(
                f"{segments} segments, {masks} masks and {shares} shares need {coded + shares} distinct points other "
                f"than 0, but the field of p = {field.p} has {field.p - 1}; choose a larger prime, or fewer of them"
            )
        self.field = field
        self.segments = segments
        self.masks = masks
        self.shares = shares
        self.degree = coded - 1
        self._decoding: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()

    @cached_property
    def betas(self) -> Tensor:
        """The points of segments and masks."""
        return torch.arange(1, self.degree + 2)

    @cached_property
    def alphas(self) -> Tensor:
        """The points of shares."""
        return torch.arange(self.degree + 2, self.degree + self.shares + 2)

    @cached_property
    def _reciprocals(self) -> Tensor:
        # Points are 1, 2, 3, …, and every divisor is a difference of two of them, up to its sign. 0 has no reciprocal;
        # 1 replaces it, the factor of a point with itself.
        points = self.degree + 1 + self.shares
        reciprocals = torch.ones(points, dtype=torch.int64)
        reciprocals[1:] = self.field.inverse(torch.arange(1, points))
        return reciprocals

    @cached_property
    def _encoding(self) -> Tensor:
        return self._interpolation(self.betas, self.alphas)

    @cached_property
    def _repeating(self) -> Tensor:
        # The same secret at every β_k is multiplied by the sum of the segments' columns.
        same = self._encoding[:, : self.segments]
        ones = torch.ones(self.segments, 1, dtype=torch.int64)
        return torch.cat((self.field.matmul(same, ones), self._encoding[:, self.segments :]), dim=1)

    def threshold(self, factors: int = 2) -> int:
        """Give the number of results that recover sums of products of ``factors`` shares: factors · (K + T − 1) + 1.

        FedVS multiplies data by models: 2 factors (Thm. 5.1). 1 recovers the secrets themselves.
        Raises ValueError if ``factors`` < 1.
        """
        if factors < 1:
            raise ValueError(f"factors = {factors}; allowed: factors >= 1")
        return factors * self.degree + 1

    def encode(self, secrets: Tensor, holders: Sequence[int] | None = None) -> Tensor:
        """Give shares of K segments followed by T masks (FedVS Eq. 2): (K + T, ...) -> (N, ...), one for each holder.

        With ``holders``, only theirs, in their order. Raises ValueError for any other number of secrets.
        """
        self._check_first("secrets", secrets, self.degree + 1, f"{self.segments} segments and {self.masks} masks")
        return self._apply(_rows(self._encoding, holders), secrets)

    def encode_repeated(self, secret: Tensor, masks: Tensor, holders: Sequence[int] | None = None) -> Tensor:
        """Give shares of one secret at every β_k, k <= K (FedVS Eq. 4): (...), (T, ...) -> (N, ...).

        With ``holders``, only theirs. Equal to ``encode`` of the secret K times over, followed by the masks. Raises
        ValueError where there are not T masks of the secret's shape.
        """
        self._check_first("masks", masks, self.masks, f"{self.masks} masks")
        if masks.shape[1:] != secret.shape:
            raise ValueError(
                f"masks of shape {tuple(masks.shape[1:])} for a secret of shape {tuple(secret.shape)}; "
                "allowed: masks shaped like the secret"
            )
        return self._apply(_rows(self._repeating, holders), torch.cat((secret.unsqueeze(0), masks)))

    def decode(self, values: Tensor, holders: Sequence[int], factors: int = 2) -> Tensor:
        """Give a polynomial's values at β_1..β_K from ``values`` at the holders' points: (R', ...) -> (K, ...).

        ``values[i]`` is the result of holder ``holders[i]`` (from 0), in any order; ``factors`` is the number of shares
        multiplied in it, so that the polynomial has degree factors · (K + T − 1) (FedVS Eq. 6). Exactly
        ``threshold(factors)`` results are used, those of the lowest-numbered holders.
        Raises ValueError for fewer results than that, and for repeated or unknown holders.
        """
        numbers = [int(holder) for holder in holders]
        self._check_first("values", values, len(numbers), f"the results of {len(numbers)} holders")
        unknown = sorted({n for n in numbers if not 0 <= n < self.shares})
        if unknown:
            raise ValueError(f"unknown holders {unknown}; allowed: 0 to {self.shares - 1}")
        repeated = sorted(n for n, times in Counter(numbers).items() if times > 1)
        if repeated:
            raise ValueError(f"holders {repeated} are given more than once; give each holder's result once")
        needed = self.threshold(factors)
        if len(numbers) < needed:
            raise ValueError(
                f"{len(numbers)} results cannot be decoded: with {self.segments} segments, {self.masks} masks and "
                f"products of {factors} shares, {needed} are needed; wait for more, or share fewer segments"
            )
        order = sorted(range(len(numbers)), key=numbers.__getitem__)[:needed]
        matrix = self._decoding_matrix(tuple(numbers[i] for i in order))
        in_order = order == [*range(len(values))]
        return self._apply(matrix, values if in_order else values[torch.tensor(order, device=values.device)])

    def _decoding_matrix(self, holders: tuple[int, ...]) -> Tensor:
        """(K, R): from the values at these holders' points to those at β_1..β_K."""
        matrix = self._decoding.pop(holders, None)
        if matrix is None:
            matrix = self._interpolation(self.alphas[list(holders)], self.betas[: self.segments])
            if len(self._decoding) == _REMEMBERED:
                self._decoding.popitem(last=False)
        self._decoding[holders] = matrix  # most recently used last
        return matrix

    def _interpolation(self, nodes: Tensor, at: Tensor) -> Tensor:
        """(m, n): from a polynomial's values at n ``nodes`` (its degree below n) to those at m other points ``at``.

        Entry (i, j) is Π_{l≠j} (x_i − c_l) / (c_j − c_l), of the points x and the nodes c: the numerators' product over
        all l is divided by x_i − c_j again (the barycentric form).
        """
        across, between = at[:, None] - nodes, nodes[:, None] - nodes
        numerators = _product(self.field, self.field.embed(across))
        weights = _product(self.field, self._divided_by(between))
        rows = self.field.multiply(self._divided_by(across), numerators[:, None])
        return self.field.multiply(rows, weights)

    def _divided_by(self, differences: Tensor) -> Tensor:
        """The reciprocals of differences of points, in F_p; 1 for no difference."""
        reciprocals = self._reciprocals[differences.abs()]
        return torch.where(differences < 0, self.field.negate(reciprocals), reciprocals)

    def _apply(self, matrix: Tensor, elements: Tensor) -> Tensor:
        flat = elements.reshape(len(elements), -1)
        return self.field.matmul(matrix.to(elements.device), flat).reshape(len(matrix), *elements.shape[1:])

    @staticmethod
    def _check_first(name: str, elements: Tensor, length: int, meaning: str) -> None:
        if elements.dtype != torch.int64:
            raise ValueError(f"{name} of dtype {elements.dtype}; allowed: field elements, torch.int64")
        if elements.ndim == 0 or len(elements) != length:
            raise ValueError(f"{name} of shape {tuple(elements.shape)}; allowed: ({length}, ...), for {meaning}")


def _product(field: PrimeField, factors: Tensor) -> Tensor:
    """(m, n) -> (m,): the products of the rows, by halving."""
    while factors.shape[1] > 1:
        odd = factors[:, :1] if factors.shape[1] % 2 else factors[:, :0]
        rest = factors[:, odd.shape[1] :]
        half = rest.shape[1] // 2
        factors = torch.cat((odd, field.multiply(rest[:, :half], rest[:, half:])), dim=1)
    return factors[:, 0]


def _rows(matrix: Tensor, holders: Sequence[int] | None) -> Tensor:
    return matrix if holders is None else matrix[list(holders)]
