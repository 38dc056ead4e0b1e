"""Checkpoints on disk: whatever becomes of one, the run goes on from the one before, or says why it cannot."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch
from kept_runs import FINGERPRINT, KeptAt, files_of, interrupted
from safetensors import SafetensorError
from tiny_worlds import run, tiny

from vflsim.errors import CheckpointError
from vflsim.results.store.write import write_tensors
from vflsim.simulation.checkpoints import files
from vflsim.simulation.run import Outcome

SCENARIO = tiny(stop={"rounds": 12})
EVENTS = [90, 180, 270]  # the tensors of the last two differ


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return files_of(run(SCENARIO), tmp_path_factory.mktemp("expected") / "run", SCENARIO)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run leaves that was interrupted after its third checkpoint."""
    folder = tmp_path_factory.mktemp("left") / "checkpoints"
    interrupted(SCENARIO, folder, EVENTS)
    return folder


@pytest.fixture
def folder(left: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left, tmp_path / "checkpoints"))


def resumed(folder: Path) -> Outcome:
    return run(SCENARIO, keeper=KeptAt(folder))


def came_from(outcome: Outcome) -> str:
    return outcome.note.rpartition("; ")[2]


def test_the_newest_two_are_kept(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{number:06}.{kind}" for number in (2, 3) for kind in ("json", "safetensors")
    ]
    assert not resumed(folder).note.startswith("checkpoint")


def test_a_page_is_plain_json_and_the_tensors_are_in_their_place(folder: Path) -> None:
    page = json.loads((folder / "000003.json").read_text())["content"]
    assert page["fingerprint"]["checkpoint format"] == files.FORMAT
    assert page["snapshot"]["position"]["events"] == 270
    parties = ["server", *(f"client-{n}" for n in range(1, 5))]
    assert set(page["snapshot"]["states"]) == {"stack-0", *parties, *(f"{party}'s wire" for party in parties)}


def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def flipped(content: bytes) -> bytes:
    place = len(content) * 2 // 3
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def swapped(folder: Path) -> None:
    """The tensors of the two checkpoints, exchanged."""
    (folder / "000002.safetensors").rename(folder / "other")
    (folder / "000003.safetensors").rename(folder / "000002.safetensors")
    (folder / "other").rename(folder / "000003.safetensors")


def renamed(folder: Path) -> None:
    """The older one in the place of the newer."""
    for kind in ("json", "safetensors"):
        shutil.copy(folder / f"000002.{kind}", folder / f"000003.{kind}")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "page, a digit": (
        changed("000003.json", lambda b: b.replace(b'"events": 270', b'"events": 271')),
        "checkpoint 3 is not what was written",
    ),
    "page, truncated": (changed("000003.json", lambda b: b[:-100]), r"checkpoint 3 cannot be read \(JSONDecodeError\)"),
    "page, empty": (changed("000003.json", lambda b: b""), "checkpoint 3 cannot be read"),
    "page, no mapping": (changed("000003.json", lambda b: b"[1, 2]"), "checkpoint 3 cannot be read"),
    "page, nested": (changed("000003.json", lambda b: b"[" * 100_000), "checkpoint 3 cannot be read"),
    "page, not text": (changed("000003.json", lambda b: b"\xff\x00"), "checkpoint 3 cannot be read"),
    "tensors, a bit": (changed("000003.safetensors", flipped), "checkpoint 3 has tensors other than those written"),
    "tensors, truncated": (changed("000003.safetensors", lambda b: b[:-8]), "checkpoint 3 has tensors other than"),
    "tensors, gone": (lambda folder: (folder / "000003.safetensors").unlink(), "checkpoint 3 has no tensors"),
    "in the place of another": (renamed, "checkpoint 3 has the place of checkpoint 2"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_found(damage: str, folder: Path) -> None:
    do, said = DAMAGES[damage]
    do(folder)
    found = files.CheckpointFiles(folder, FINGERPRINT)
    newest = found.newest()
    assert newest is not None
    assert newest.snapshot.position.events == 180
    (passed,) = found.passed_over
    assert re.match(said, passed), passed


def test_the_run_goes_on_from_the_one_before_and_the_damaged_one_is_the_first_to_go(
    folder: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    changed("000003.safetensors", flipped)(folder)
    outcome = run(SCENARIO, keeper=KeptAt(folder, [320]))
    assert re.match("checkpoint 3 has tensors other than those written with it; resumed from", outcome.note)
    assert files_of(outcome, tmp_path / "run", SCENARIO) == expected
    assert sorted(path.stem for path in folder.glob("*.json")) == ["000002", "000004"]


def test_where_none_is_sound_the_run_starts_anew_and_says_so(
    folder: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    swapped(folder)
    outcome = resumed(folder)
    assert came_from(outcome) == "no checkpoint is sound: started anew"
    assert files_of(outcome, tmp_path / "run", SCENARIO) == expected


def test_the_checkpoints_of_another_run_are_not_used(folder: Path) -> None:
    outcome = run(SCENARIO, seed=1, keeper=KeptAt(folder, seed="1"))
    assert "checkpoint 3 is of another run (seed 0)" in outcome.note
    assert came_from(outcome) == "no checkpoint is sound: started anew"


def test_without_resume_a_run_starts_anew_and_says_nothing(folder: Path) -> None:
    assert run(SCENARIO, keeper=KeptAt(folder, resume=False)).note == ""


def test_without_checkpoints_a_resumed_run_starts_anew_and_says_nothing(tmp_path: Path) -> None:
    assert resumed(tmp_path / "none").note == ""


def test_a_run_that_would_be_made_otherwise_is_refused_with_all_that_differs(folder: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        run(SCENARIO, keeper=KeptAt(folder, torch="3", threads="2"))
    said = str(caught.value)
    assert str(folder / "000003.json") in said
    assert "torch: 2 → 3" in said
    assert "threads: unknown → 2" in said
    assert "without --resume" in said
    assert (folder / "000003.json").exists()


def test_a_checkpoint_in_another_format_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORMAT", "6")
    with pytest.raises(CheckpointError, match="checkpoint format: 5 → 6"):
        resumed(folder)


def test_a_run_that_does_not_come_back_to_where_it_was_is_refused(folder: Path) -> None:
    other = tiny(timing__server={"compute": "1 ms"}, stop={"rounds": 12})
    with pytest.raises(CheckpointError, match=r"did not come back to its checkpoint: time_s 0\.\d+, not 0\.\d+"):
        run(other, keeper=KeptAt(folder))


def test_a_run_that_ends_before_it_is_where_it_was_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="it ended before"):
        run(tiny(stop={"rounds": 1}), keeper=KeptAt(folder))


# --- a disk that is full --------------------------------------------------------------------------------------------


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    def no_space(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", no_space)
        write_tensors(path, tensors)


@pytest.mark.parametrize(("what", "failing"), [("write_tensors", broken), ("write_file", full), ("_digest", full)])
def test_a_full_disk_costs_the_checkpoint_and_not_the_run(
    what: str, failing: Callable[..., None], folder: Path, expected: dict[str, bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if what == "write_file":
        failing = _with_name(full)
    keeper = KeptAt(folder, [350, 400], resume=False)
    monkeypatch.setattr(files, what, failing)
    outcome = run(SCENARIO, keeper=keeper)
    assert outcome.note.startswith("a checkpoint could not be written: ")
    assert "No space left" in outcome.note
    assert files_of(outcome, tmp_path / "run", SCENARIO) == expected
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.undo()
    assert "resumed from" in resumed(folder).note


def _with_name(failing: Callable[..., None]) -> Callable[..., None]:
    from vflsim.results.store.folder import errors_named

    def write(path: Path, content: object) -> None:
        with errors_named(path):
            failing()

    return write
