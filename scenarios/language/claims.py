"""Write the claims of ``claims.yaml``: two texts, a few numbers, and whether the claim is worth a second look.

``python claims.py [FOLDER]`` writes ``claims.csv.gz`` (the texts as numbers of tokens) and ``words.txt`` (a token a
line). The texts are drawn from a small grammar. No party's part gives the label away: it depends on whether the two
texts agree about the damage, on the tone of the letter, and on the amount.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

ROWS, SEED = 1000, 0
LENGTHS = {"letter": 24, "report": 12}
PADDING = "<padding>"
PARTS = ("bumper", "door", "mirror", "window", "wheel", "roof", "light", "engine")
PLACES = ("at the station", "in my street", "on the motorway", "at the market", "near the school", "in a garage")
CALM = ("thank you for your help", "please tell me what you need", "i have kept the old part", "a neighbour saw it")
PRESSING = ("pay at once", "i will call a lawyer", "nobody saw it", "i have thrown the part away")
OPENINGS = ("dear insurer", "hello", "to whom it may concern", "good morning")
STATES = ("is dented", "is broken", "has a deep scratch", "came off")
WORK = ("we replaced the", "we repaired the", "we painted the", "we ordered a new")
REMARKS = ("the damage looks fresh", "the damage looks old", "there is rust below", "no rust was seen")


def claims(rows: int, draws: np.random.Generator) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    """Draw letters, reports, numbers (amount in k€, years insured / 10, claims before), and labels."""
    letters, reports, numbers, labels = [], [], [], []
    for _ in range(rows):
        part, agrees, pressing, old = draws.integers(len(PARTS)), draws.random() < 0.7, *(draws.random(2) < 0.4)
        other = part if agrees else (part + draws.integers(1, len(PARTS))) % len(PARTS)
        amount, years, before = draws.lognormal(0, 0.6), draws.gamma(2, 0.4), draws.poisson(0.5)
        letters.append(
            f"{draws.choice(OPENINGS)} the {PARTS[part]} of my car {draws.choice(STATES)} it happened "
            f"{draws.choice(PLACES)} {draws.choice(PRESSING if pressing else CALM)}"
        )
        remark = REMARKS[1:3] if old else (REMARKS[0], REMARKS[3])
        reports.append(f"{draws.choice(WORK)} {PARTS[other]} {draws.choice(remark)}")
        numbers.append((amount, years, before))
        score = 2 * pressing + 2.5 * old + 1.5 * (not agrees) + 1.2 * np.log(amount) + 0.8 * before - 0.8 * years
        labels.append(score + draws.logistic(0, 0.3) > 2)
    return letters, reports, np.array(numbers), np.array(labels, dtype=int)


def tokens(texts: list[str], numbers: dict[str, int], length: int) -> np.ndarray:
    """Number the words of each text, and fill up with padding: (texts, length)."""
    return np.array([[numbers[word] for word in (text.split() + [PADDING] * length)[:length]] for text in texts])


def main() -> None:
    """Write both files; see above."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    letters, reports, amounts, labels = claims(ROWS, np.random.default_rng(SEED))
    words = [PADDING, *sorted({word for text in letters + reports for word in text.split()})]
    numbers = {word: number for number, word in enumerate(words)}
    names = [f"{text}_{place:02}" for text, length in LENGTHS.items() for place in range(length)]
    lines = [",".join([*names, "amount", "years", "before", "look"])]
    coded = (tokens(texts, numbers, LENGTHS[name]) for name, texts in (("letter", letters), ("report", reports)))
    for letter, report, row, label in zip(*coded, amounts, labels, strict=True):
        lines.append(",".join([*map(str, letter), *map(str, report), *(f"{value:.3g}" for value in row), str(label)]))
    (folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "claims.csv.gz").write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))
    print(f"{len(words)} words, {labels.mean():.1%} of {ROWS} claims worth a look")


if __name__ == "__main__":
    main()
