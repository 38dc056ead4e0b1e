"""Formulas in parameters, such as ``2 + 4*i/N``: an own small grammar, without Python's ``eval``.

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
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

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
        result: float | int = self._run(_literal, lambda name: known[name], operator.truediv)
        return result

    def floor_value(self, symbols: Mapping[str, float | int] | None = None) -> int:
        """Evaluate exactly, with every ``/`` rounding down; the result must be whole (else ValueError)."""
        known = self._known(symbols)
        # Fractions of the decimals as written: 0.29*100 is 29, while in floating point it is 28.999999999999996.
        result = self._run(Fraction, lambda name: Fraction(str(known[name])), lambda a, b: Fraction(a // b))
        if result.denominator != 1:
            raise ValueError(f"{self.text!r} is {float(result):g}; allowed: whole numbers ('/' rounds down: 6*N/10)")
        return int(result)

    def sympy(self) -> sympy.Expr:
        """Give the formula as a sympy expression of its names, decimals as exact rationals."""
        import sympy

        # sympy would compute 9**(10**9 + 0*x) while building it: with a power in it the tree is built as written.
        with sympy.evaluate(not any(token.text == "**" for token in self.program)):
            return self._run(sympy.Rational, sympy.Symbol, operator.truediv, operator.pow)

    def _known(self, symbols: Mapping[str, float | int] | None) -> Mapping[str, float | int]:
        symbols = symbols or {}
        for name in sorted(self.names - symbols.keys()):
            known = ", ".join(sorted(symbols)) or "numbers (no symbol is defined here)"
            place = f" in {self.text!r}" if name != self.text else ""
            raise ValueError(f"the symbol {name!r}{place} is not known; allowed: {known}")
        return symbols

    def _run(
        self,
        literal: Callable[[str], Any],
        symbol: Callable[[str], Any],
        divide: Callable[[Any, Any], Any],
        power: Callable[[Any, Any], Any] | None = None,
    ) -> Any:
        operators = {
            "+": operator.add,
            "-": operator.sub,
            "*": operator.mul,
            "/": divide,
            "**": power or _bounded_power,
        }
        check = _real if power is None else _anything
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


class _Parser:
    """Recursive descent over the tokens of one formula, writing a postfix program."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.tokens = tokenize(self.text)
        self.position = self.depth = 0
        self.program: list[Token] = []

    def parse(self) -> list[Token]:
        if not self.tokens:
            raise ValueError("an empty formula; allowed: a number or a formula such as 2 + 4*i/N")
        self.sum()
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

    def sum(self) -> None:
        self.product()
        while token := self.accept("+", "-"):
            self.product()
            self.program.append(token)

    def product(self) -> None:
        self.signed()
        while token := self.accept("*", "/"):
            self.signed()
            self.program.append(token)

    def signed(self) -> None:
        minuses = []
        while token := self.accept("+", "-"):
            if token.text == "-":
                minuses.append(token._replace(text="neg"))
        self.power()
        self.program.extend(minuses)

    def power(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"the formula nests more than {MAX_DEPTH} levels deep")
        self.atom()
        if token := self.accept("**"):
            self.signed()
            self.program.append(token)
        self.depth -= 1

    def atom(self) -> None:
        if self.accept("("):
            self.sum()
            if not self.accept(")"):
                self.fail()
        elif self.position < len(self.tokens) and self.tokens[self.position].kind != "operator":
            self.program.append(self.tokens[self.position])
            self.position += 1
        else:
            self.fail()


def _literal(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)


def _anything(value: Any) -> Any:
    return value


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
