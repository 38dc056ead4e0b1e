"""Formulas in parameters, such as ``2 + 4*i/N``, and selections of clients: an own small grammar, without ``eval``.

    sum     = product { ("+" | "-") product }
    product = signed { ("*" | "/") signed }
    signed  = { "+" | "-" } power
    power   = atom [ "**" signed ]
    atom    = number | name | "(" sum ")"

The signs and the binding strengths are Python's. A formula is kept as a postfix program, so evaluating it needs no
recursion. Length, nesting, exponents and magnitudes are limited: no formula can exhaust time or memory.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    import sympy


MAX_LENGTH = 256
MAX_DEPTH = 32
MAX_EXPONENT = 64
MAX_TENS = 400  # in 1e400: as an exact fraction even 1e-999999999 would fill the memory
MAX_BITS = 1023  # of an integer, so that every value fits a float

_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<operator>\*\*|[-+*/()])", re.A
)


class Token(NamedTuple):
    """A token of a formula: its kind (number, name, operator), its text and its position."""

    kind: str
    text: str
    start: int


def tokenize(text: str) -> list[Token]:
    """Cut a formula into tokens. Raises ValueError for anything outside the grammar."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a formula of {len(text)} characters is too long; allowed: at most {MAX_LENGTH}")
    tokens, position = [], 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(
                f"{text[position]!r} in the formula {text!r} is not understood; "
                "allowed: numbers, names, + - * / ** and parentheses"
            )
        token = Token(str(match.lastgroup), match.group(), position)
        if token.kind == "number" and abs(int(token.text.lower().partition("e")[2] or 0)) > MAX_TENS:
            raise ValueError(f"the number {token.text} is too large or too small; allowed: exponents up to {MAX_TENS}")
        tokens.append(token)
        position = match.end()
    return tokens


@dataclass(frozen=True)
class Expression:
    """A parsed formula: ``text`` as written, ``program`` in postfix order (``neg`` is the unary minus)."""

    text: str
    program: tuple[Token, ...]

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Parse ``text``; raises ValueError for anything outside the grammar or its limits."""
        return _parsed(text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The symbols that the formula mentions."""
        return frozenset(token.text for token in self.program if token.kind == "name")

    def value(self, symbols: Mapping[str, float | int] | None = None) -> float | int:
        """Evaluate as Python would: an int stays an int, ``/`` gives a float.

        Raises ValueError for an unknown symbol (listing the known ones), division by zero, a value that is not
        finite or not real, and too large exponents.
        """
        known = self._known(symbols)
        result: float | int = self.run(literal, lambda name: known[name], operator.truediv)
        return result

    def floor_value(self, symbols: Mapping[str, float | int] | None = None) -> int:
        """Evaluate exactly, with every ``/`` rounding down; the result must be whole (else ValueError)."""
        known = self._known(symbols)
        # Fractions of the decimals as written: 0.29*100 is 29, while in floating point it is 28.999999999999996.
        result = self.run(Fraction, lambda name: Fraction(str(known[name])), lambda a, b: Fraction(a // b))
        if result.denominator != 1:
            raise ValueError(f"{self.text!r} is {float(result):g}; allowed: whole numbers ('/' rounds down: 6*N/10)")
        return int(result)

    def sympy(self) -> sympy.Expr:
        """Give the formula as a sympy expression of its names, decimals as exact rationals."""
        import sympy

        # sympy would compute 9**(10**9 + 0*x) while building it: with a power in it the tree is built as written.
        with sympy.evaluate(not any(token.text == "**" for token in self.program)):
            return self.run(sympy.Rational, sympy.Symbol, operator.truediv, operator.pow, lambda value: value)

    def _known(self, symbols: Mapping[str, float | int] | None) -> Mapping[str, float | int]:
        symbols = symbols or {}
        for name in sorted(self.names - symbols.keys()):
            known = ", ".join(sorted(symbols)) or "numbers (no symbol is defined here)"
            place = f" in {self.text!r}" if name != self.text else ""
            raise ValueError(f"the symbol {name!r}{place} is not known; allowed: {known}")
        return symbols

    def run(
        self,
        literal: Callable[[str], Any],
        symbol: Callable[[str], Any],
        divide: Callable[[Any, Any], Any],
        power: Callable[[Any, Any], Any] | None = None,
        check: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Run the program on what ``literal`` and ``symbol`` make of its texts; each result passes ``check``."""
        operators = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": divide}
        operators["**"], check = power or _bounded_power, check or _real
        stack: list[Any] = []
        try:
            for token in self.program:
                if token.kind == "number":
                    stack.append(check(literal(token.text)))
                elif token.kind == "name":
                    stack.append(check(symbol(token.text)))
                elif token.text == "neg":
                    stack.append(-stack.pop())
                else:
                    right, left = stack.pop(), stack.pop()
                    stack.append(check(operators[token.text](left, right)))
        except ZeroDivisionError:
            raise ValueError(f"{self.text!r} divides by zero") from None
        except OverflowError:
            raise ValueError(f"{self.text!r} is too large a number") from None
        except ValueError as error:
            raise ValueError(f"{self.text!r}: {error}") from None
        return stack.pop()


@lru_cache(maxsize=1024)  # one formula is evaluated for every client, and parsed once
def _parsed(text: str) -> Expression:
    return Expression(text.strip(), tuple(_Parser(text).parse()))


_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
"""How strongly operators bind; ``**`` binds to the right, and a sign less strongly:"""
_SIGN = 3


class _Parser:
    """Precedence climbing over the tokens of one formula, writing a postfix program."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.tokens = tokenize(self.text)
        self.position = self.depth = 0
        self.program: list[Token] = []

    def parse(self) -> list[Token]:
        if not self.tokens:
            raise ValueError("an empty formula; allowed: a number or a formula such as 2 + 4*i/N")
        self.nested(1)
        if self.position < len(self.tokens):
            self.fail()
        return self.program

    def accept(self, *texts: str) -> Token | None:
        if self.position < len(self.tokens) and self.tokens[self.position].text in texts:
            self.position += 1
            return self.tokens[self.position - 1]
        return None

    def fail(self) -> NoReturn:
        if self.position == len(self.tokens):
            raise ValueError(f"the formula {self.text!r} ends too early")
        token = self.tokens[self.position]
        if token.text == "(" and self.position and self.tokens[self.position - 1].kind == "name":
            function = self.tokens[self.position - 1].text
            raise ValueError(f"{self.text!r} calls {function!r}; allowed: + - * / ** and parentheses, no functions")
        raise ValueError(f"{token.text!r} is out of place at character {token.start + 1} of the formula {self.text!r}")

    def nested(self, least: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"the formula nests more than {MAX_DEPTH} levels deep")
        self.operands(least)
        self.depth -= 1

    def operands(self, least: int) -> None:
        """Parse an operand, and the operators behind it that bind at ``least`` so strongly, with theirs."""
        signs = []
        while token := self.accept("+", "-"):
            signs.append(token)
        if signs:
            self.operands(_SIGN)
            self.program += [token._replace(text="neg") for token in signs if token.text == "-"]
        elif self.accept("("):
            self.nested(1)
            if not self.accept(")"):
                self.fail()
        elif self.position < len(self.tokens) and self.tokens[self.position].kind != "operator":
            self.program.append(self.tokens[self.position])
            self.position += 1
        else:
            self.fail()
        while token := self.accept(*(text for text, binds in _BINDING.items() if binds >= least)):
            if token.text == "**":
                self.nested(_BINDING["**"])
            else:
                self.operands(_BINDING[token.text] + 1)
            self.program.append(token)


def literal(text: str) -> float | int:
    """Return the number that a token stands for."""
    return int(text) if text.isdigit() else float(text)


def _real(value: Any) -> Any:
    """Return a real, finite number of moderate size unchanged; otherwise raise ValueError or OverflowError."""
    if isinstance(value, complex):
        raise ValueError("a negative number to a fractional power is not a real number")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError
    elif max(abs(value.numerator), value.denominator).bit_length() > MAX_BITS:
        raise OverflowError
    return value


def _bounded_power(base: Any, exponent: Any) -> Any:
    """Raise to a power whose exponent, and whose result if exact, are of moderate size."""
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"an exponent of {float(exponent):g} is too large; allowed: at most {MAX_EXPONENT}")
    if isinstance(base, float) or isinstance(exponent, float) or exponent.denominator != 1:
        return float(base) ** float(exponent)
    if max(abs(base.numerator), base.denominator).bit_length() * abs(int(exponent)) > 2 * MAX_BITS:
        raise OverflowError
    return base ** int(exponent)


# --- selections of clients --------------------------------------------------------------------------------------------


ALLOWED = "'all', client numbers such as 3, ranges such as 1..N/2, several with commas or as a list"
_PER_CLIENT = ("i", "m")


class _SelectionField:
    """Annotation: check the spelling of a selection, keep it as written (lists become tuples)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_spelt)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        item = [{"type": "integer", "minimum": 1}, {"type": "string"}]
        return {"anyOf": [*item, {"type": "array", "items": {"anyOf": item}, "minItems": 1}], "description": ALLOWED}


Selection = Annotated[str | int | tuple[str | int, ...], _SelectionField()]


def members(selection: object, symbols: Mapping[str, float | int]) -> list[int]:
    """Give the client numbers of a selection, in the order written, each once.

    ``symbols`` holds N (the number of clients) and the scenario's constants, but not ``i`` and ``m``, which follow from
    the selection. Raises ValueError for bad spelling, a client outside 1..N, or an empty selection.
    """
    count = int(symbols["N"])
    if selection == "all":
        return list(range(1, count + 1))
    known = {name: value for name, value in symbols.items() if name not in _PER_CLIENT}
    chosen: dict[int, None] = {}
    for text, first, last in _items(selection):
        low, high = first.floor_value(known), last.floor_value(known)
        if low > high:
            raise ValueError(f"{text!r} selects nobody: it is {low}..{high} with N = {count}; allowed: {ALLOWED}")
        if low < 1 or high > count:
            shown = f"{low}..{high}" if low != high else f"{low}"
            raise ValueError(f"{text!r} is {shown}, outside the clients; allowed: 1..{count}")
        chosen.update(dict.fromkeys(range(low, high + 1)))
    return list(chosen)


def others(selection: object, symbols: Mapping[str, float | int]) -> list[int]:
    """Give the clients outside a selection (None selects nobody), in client order. Raises what ``members`` raises."""
    chosen = set() if selection is None else set(members(selection, symbols))
    return [client for client in range(1, int(symbols["N"]) + 1) if client not in chosen]


def _spelt(value: Any) -> str | int | tuple[str | int, ...]:
    if value != "all":
        _items(value)
    return tuple(value) if isinstance(value, list) else value


def _items(selection: object) -> list[tuple[str, Expression, Expression]]:
    """Parse a selection into (text, first, last) triples."""
    parts = list(selection) if isinstance(selection, (list, tuple)) else [selection]
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts += [text.strip() for text in part.split(",")]
        elif isinstance(part, numbers.Integral) and not isinstance(part, bool):
            texts.append(str(part))
        else:
            raise ValueError(f"{part!r} is not a selection of clients; allowed: {ALLOWED}")
    if not texts:
        raise ValueError(f"an empty selection; allowed: {ALLOWED}")
    items = []
    for text in texts:
        first, dots, last = text.partition("..")
        if text == "all":
            raise ValueError(f"'all' stands alone, not beside others as in {selection!r}; allowed: {ALLOWED}")
        try:
            start = Expression.parse(first)
            items.append((text, start, Expression.parse(last) if dots else start))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a selection of clients ({error}); allowed: {ALLOWED}") from None
    return items
