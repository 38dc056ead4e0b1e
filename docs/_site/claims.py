"""Sentences of pages that claim a number or a comparison, and stand on no table, code or command in their section.

``python docs/_site/claims.py`` prints page:line and the sentence of each. A claim stands on what its section shows: a
table, a picture, code or a command; the lead of a section counts for its subsections. A paragraph with a link, a script
or a test points to where its claims come from, for a list below it, too; a sentence with a year or a theorem cites.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^ *(```|~~~)")
_HEADING = re.compile(r"^(#+) ")
_SHOWN = re.compile(r"^ *\||^ *!\[|^ *<img")
_COMMAND = re.compile(r"`(?:vflsim|python) [^`]+`")
_POINTS = re.compile(r"\]\(|https?:|`[^`]*(?:pytest|tests/|benchmarks/|scenarios/|\.py|\.yaml)[^`]*`")
_CITES = re.compile(r"\b(?:19|20)\d\d\b|\b(?:Eq|Sec|Thm|Fig|Alg|Lemma|Table)\b")
_NO_CLAIM = re.compile(r"`[^`]*`|\d+ % (?:Student-t )?(?:intervals?|limits?)|\(\d+ %\)")
_SENTENCE = re.compile(r"(?<=[.:;!?])\s+(?=[A-Z*\[`])")
_UNIT = (
    r"(?:%|points?|times|×|ms|µs|s|seconds|minutes|hours|h|[kMGT]?i?B|[kMGT]bps|[kMG]?J|epochs|rounds|seeds|rows|bytes|"
    r"clients|workers|cores|processes|lines|runs)"
)
MEASURED = re.compile(rf"(?<![\w.-])\d[\d,.]*\s?{_UNIT}(?![\w-])|(?<![\w.-])\d+\.\d+(?![\w.])")
"""A number with a unit, or one with decimals: 3 s, 11 %, 0.97."""
COMPARED = re.compile(
    r"\b(?:fast|slow|cheap|quick|strong|weak|short|long)(?:er|est)\b|\b(?:better|best|worse|worst|always|never|fewest)\b|"
    r"\b(?:(?:more|less|fewer) [\w ]*?than)\b|(?<!at )\b(?:most|least)\b",
    re.IGNORECASE,
)
"""A comparison of speed, quality or strength, or a claim without exception."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that stands on nothing: where it begins, and its words."""

    page: str
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.sentence}"


def claims_of(page: str, text: str) -> Iterator[Claim]:
    """Yield the claims of a page that stand on nothing."""
    for shown, paragraphs in _sections(text):
        led = False
        for first, paragraph in paragraphs:
            points, listed = bool(_POINTS.search(paragraph)), paragraph.lstrip().startswith("- ")
            if not (shown or points or (listed and led)):
                yield from _claims_in(page, first, paragraph)
            if paragraph and not listed:
                led = points and paragraph.endswith(":")


def _claims_in(page: str, first: int, paragraph: str) -> Iterator[Claim]:
    begin = 0
    for end in [*(match.end() for match in _SENTENCE.finditer(paragraph)), len(paragraph)]:
        sentence = paragraph[begin:end].strip()
        words = _NO_CLAIM.sub("", sentence)
        if (MEASURED.search(words) or COMPARED.search(words)) and not _CITES.search(sentence):
            yield Claim(page, first + paragraph.count("\n", 0, begin), " ".join(sentence.split()))
        begin = end


def _sections(text: str) -> Iterator[tuple[bool, list[tuple[int, str]]]]:
    """Yield whether a section, or the lead of one above it, shows evidence, and its paragraphs with their lines."""
    above: dict[int, bool] = {}
    level, shown, paragraphs, inside = 0, False, list[tuple[int, list[str]]](), False
    for number, line in enumerate([*text.splitlines(), "# end"], 1):
        if _FENCE.match(line):
            inside, shown = not inside, True
        elif inside:
            continue
        elif heading := _HEADING.match(line):
            above = {depth: each for depth, each in above.items() if depth < level} | {level: shown}
            by_a_lead = any(each for depth, each in above.items() if depth > 1)
            yield shown or by_a_lead, [(first, "\n".join(lines)) for first, lines in paragraphs]
            level, shown, paragraphs = len(heading[1]), False, []
        elif _SHOWN.match(line) or (line.startswith("    ") and not paragraphs[-1][1]):
            shown = True
        elif not line.strip():
            paragraphs.append((number + 1, []))
        else:
            shown |= bool(_COMMAND.search(line))
            if not paragraphs or line.lstrip().startswith("- "):
                paragraphs.append((number, []))
            paragraphs[-1][1].append(line)


def claims() -> list[Claim]:
    """Return the claims of all pages that stand on nothing, page by page."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [
        claim
        for page in pages
        for claim in claims_of(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    found = claims()
    print(*found, f"{len(found)} claims stand on nothing", sep="\n")
    sys.exit(bool(found))
