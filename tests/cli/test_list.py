"""``vflsim list`` remembers its texts, and describes kinds anew where they may have changed."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from command_line import Ended
from pydantic import ValidationError

from vflsim.cli import listing
from vflsim.cli.listing import PARTITIONS, PRESETS, listed
from vflsim.kinds import TABLES
from vflsim.learning.data import Partition


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vflsim" / "listed"


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing can be described."""

    def never(*_arguments: object) -> None:
        raise AssertionError("described anew")

    monkeypatch.setattr(listing, "_kinds", never)
    monkeypatch.setattr(listing, "_presets", never)
    monkeypatch.setattr(listing, "_partitions", never)


@pytest.mark.parametrize("category", [*TABLES, PARTITIONS, PRESETS])
def test_texts_are_remembered(category: str, cache: Path, request: pytest.FixtureRequest) -> None:
    first = listed(category)
    assert {len(texts) for texts in first} == {4 if category == PRESETS else 3}
    request.getfixturevalue("forgetful")
    assert listed(category) == first


@pytest.mark.usefixtures("cache")
def test_a_changed_module_is_described_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    listed("networks")
    monkeypatch.setattr(listing, "_digest", lambda: "0123456789abcdef")
    monkeypatch.setattr(listing, "_kinds", lambda _category: iter([("mine", "", "My own.")]))
    assert listed("networks") == [("mine", "", "My own.")]


def test_the_file_of_older_modules_is_removed_and_other_categories_are_not(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed("networks")
    listed("rates")
    monkeypatch.setattr(listing, "_digest", lambda: "0123456789abcdef")
    listed("networks")
    left = sorted(path.name for path in cache.iterdir())
    assert left[0] == "networks-0123456789abcdef.tsv"
    assert [name.rpartition("-")[0] for name in left] == ["networks", "rates"]


@pytest.mark.parametrize("damage", ["", "\n", "nothing", "a\tb\n", "a\tb\tc\nd\n", "a\tb\tc\td\n", "\udc00"])
def test_a_damaged_file_is_replaced(damage: str, cache: Path) -> None:
    first = listed("networks")
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage.encode("utf-8", "surrogatepass"))
    assert listed("networks") == first
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    assert [texts[0] for texts in listed("networks")] == ["fair", "fifo", "dedicated"]


def test_every_module_and_preset_counts(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.py", "deep/b.yaml", "deep/c.txt"):
        (tmp_path / name).write_text("x")
    assert sorted(Path(path).name for path, _, _ in listing._files(tmp_path)) == ["a.py", "b.yaml"]


KEYS = {"clients": 2, "columns": (("a",), ("b",)), "shares": (0.5, 0.5), "alpha": 1.0, "beta": 0.5, "seed": 3}


def test_the_listed_partitions_are_all_and_have_the_listed_keys(vflsim: Callable[..., Ended]) -> None:
    shown = vflsim("list", "partitions").out
    assert {way for way, *_ in listed(PARTITIONS)} == {*get_args(get_args(Partition.model_fields["by"].annotation)[0])}
    for way, keys, line in listed(PARTITIONS):
        assert way in shown
        assert line.split()[0] in shown
        listed_keys = {key.removesuffix("?"): key.endswith("?") for key in keys.split(", ")}
        needed = {key: KEYS[key] for key, optional in listed_keys.items() if not optional}
        Partition(by=way, **needed)
        for left_out in needed:
            with pytest.raises(ValidationError):
                Partition(by=way, **{key: value for key, value in needed.items() if key != left_out})
        for key, value in KEYS.items():
            if key in listed_keys:
                Partition(by=way, **{**needed, key: value})
            else:
                with pytest.raises(ValidationError):
                    Partition(by=way, **{**needed, key: value})
