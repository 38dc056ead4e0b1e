from pathlib import Path

import numpy as np
import pytest

from vflsim.errors import ScenarioError
from vflsim.scenario.document import Document, from_mapping, parse, read


def refused(path: Path) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read(path)
    return caught.value


def test_a_file_becomes_plain_values_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("# comment\nname: é\ndata:\n  name: digits\n", encoding="utf-8")
    document = read(path)
    assert document.raw == {"name": "é", "data": {"name": "digits"}}
    assert document.line(("data", "name")) == 4
    assert document.where(("data", "name")) == f"{path}:4"


def test_a_missing_key_is_placed_at_its_nearest_ancestor() -> None:
    document = parse("a: 1\nb:\n  c: 2\n")
    assert document.line(("b", "missing", "deeper")) == 2
    assert document.line(("missing",)) == 1


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read(path).raw == {"name": "a"}


def test_a_missing_file_is_named_with_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").touch()
    error = refused(tmp_path / "quick.yaml")
    assert error.where == str(tmp_path / "quick.yaml")
    assert "other.yaml" in error.remedy


def test_a_folder_is_refused_with_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").touch()
    error = refused(tmp_path)
    assert "folder" in error.what
    assert "quick.yaml" in error.remedy


def test_a_path_that_no_system_knows_is_refused() -> None:
    assert "cannot be read" in refused(Path("a\0b")).what


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: a\nnote: \xe9\n")
    error = refused(path)
    assert error.where == f"{path}:2"
    assert "0xe9" in error.what


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # a hole: takes no space on the disk
    assert "10,737,418,240 bytes" in refused(path).what


@pytest.mark.parametrize(
    ("text", "what"),
    [("", "empty"), ("# only a comment\n", "empty"), ("---\n", "empty"), ("- a\n- b\n", "a list"), ("5\n", "value 5")],
)
def test_a_file_without_a_mapping_is_refused(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    error = refused(path)
    assert what in error.what
    assert error.where.startswith(str(path))


def test_a_mapping_becomes_plain() -> None:
    document = from_mapping({"a": np.float64(0.5), "b": (np.int64(1), Path("x")), "c": {"d": True}})
    assert document.raw == {"a": 0.5, "b": [1, "x"], "c": {"d": True}}
    assert type(document.raw["a"]) is float
    assert document.where(("a",)) == ""


def test_a_mapping_with_something_else_is_refused_with_its_key() -> None:
    with pytest.raises(ScenarioError, match=r"a\.b\.0: a object cannot stand"):
        from_mapping({"a": {"b": [object()]}})


def test_a_mapping_that_contains_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["loop"] = loop
    with pytest.raises(ScenarioError, match="contains itself"):
        from_mapping(loop)


def test_an_override_is_named_instead_of_a_line() -> None:
    document = Document({"a": {"b": 1}}, "f.yaml", {(): 1, ("a",): 2, ("a", "b"): "--set a.b=1"})
    assert document.where(("a", "b")) == "--set a.b=1"
    assert document.where(("a", "c")) == "f.yaml:2"
    assert document.line(("a", "b")) is None
