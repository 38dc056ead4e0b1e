"""Files that mean harm, or mean nothing: named in a scenario, each ends in an error that says what is wrong with it."""

from __future__ import annotations

import ast
import gzip
import os
import signal
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vflsim import files
from vflsim.errors import DataError, ResultsError, ScenarioError, VflsimError
from vflsim.results.read import StoredRun
from vflsim.results.store.manifest import Manifest
from vflsim.results.store.pages import read_info, read_scenario
from vflsim.results.sweeps import SweepPage
from vflsim.results.sweeps.tuning import Tuning
from vflsim.scenario import load
from vflsim.scenario.document import read
from vflsim.studies.checks.data import read_and_check
from vflsim.vocabulary.plain_yaml import MAX_VALUES

BASE = """\
name: base
data: {name: digits}
partition: {clients: 2, by: columns}
models:
  client: {kind: linear, embedding: 8}
  aggregate: mean
  server: {kind: linear}
training:
  batch: 8
  client_optimizer: {kind: sgd, lr: 0.1}
  server_optimizer: {kind: sgd, lr: 0.1}
timing: {clients: [{select: all, compute: 2 ms}]}
protocols: {wait: {kind: synchronous}}
stop: {rounds: 3}
"""
ROWS = (10**12, 2**63 - 1, 10**19, 10**30, 10**400)


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    """A reader that waits for a pipe fails here, instead of waiting for ever."""

    def wake(*_: Any) -> None:
        raise TimeoutError("the reader waits")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def npy(shape: str, descr: str = "<f8", data: bytes = b"\0" * 96) -> bytes:
    """An NPY file whose header announces what it likes."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path: Path, **arrays: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in arrays.items():
            opened.writestr(f"{name}.npy", data)


def as_data(path: Path) -> dict[str, Any]:
    return {"data": {"file": str(path), "label": "y"}}


def timed(**said: Any) -> dict[str, Any]:
    return {"timing.clients": [said]}


READERS: dict[str, tuple[Callable[[Path], dict[str, Any]], tuple[str, ...]]] = {
    "data": (as_data, (".csv", ".csv.gz", ".npz", ".parquet")),
    "party": (
        lambda path: {"data": {"parties": [str(path), "b.csv"], "id": "id", "label": "y"}, "partition": {}},
        (".csv",),
    ),
    "delay": (
        lambda path: timed(upload_delay={"kind": "empirical", "file": str(path)}),
        (".csv", ".txt", ".npy", ".parquet"),
    ),
    "trace": (lambda path: timed(link={"up": {"kind": "trace", "file": str(path)}}), (".csv", ".npy")),
    "mahimahi": (lambda path: timed(link={"up": {"kind": "mahimahi", "file": str(path)}}), (".up",)),
    "intervals": (
        lambda path: timed(availability={"kind": "intervals", "file": str(path), "interrupted": "lost"}),
        (".csv", ".npy"),
    ),
    "schedule": (lambda path: timed(activation={"kind": "schedule", "file": str(path)}), (".csv", ".npy")),
    "latency": (lambda path: {"timing.network": {"kind": "fifo", "latency": {"file": str(path)}}}, (".csv", ".npy")),
}
"""By what a scenario names files for: how, and with which endings."""
EVERY = [(role, ending) for role, (_, endings) in READERS.items() for ending in endings]
NPY = [(role, ending) for role, ending in EVERY if ending == ".npy"]


def complaint(overrides: dict[str, Any]) -> str:
    """The error that a scenario with these overrides ends in, when its data are read at the latest."""
    with pytest.raises((ScenarioError, DataError)) as caught:
        read_and_check(load(BASE, overrides))
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(("role", "ending"), EVERY)
@pytest.mark.parametrize(("kind", "called"), [("pipe", "a named pipe"), ("device", "a device"), ("folder", "a folder")])
def test_only_regular_files_are_opened(role: str, ending: str, kind: str, called: str, tmp_path: Path) -> None:
    path = tmp_path / f"file{ending}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    said = complaint(READERS[role][0](path))
    assert f"it is {called}, not a regular file" in said
    assert str(path) in said


def special(kind: str, path: Path) -> None:
    """Put something at a path that is no file with content."""
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind == "a link to itself":
        path.symlink_to(path)
    else:
        path.symlink_to(kind)


KERNEL = "a file of the kernel"
ODD = {
    "/proc/kmsg": KERNEL,  # which has nothing to read at the moment, or takes it away
    "/proc/self/pagemap": KERNEL,  # which is longer than any disk
    "/proc/self/environ": KERNEL,
    "/proc/self/mem": "Input/output error",
    "/dev/full": "a device",
    "socket": "a socket",
    "a link to itself": "symbolic links",
    "/absent/file": "no such file",
}


@pytest.mark.parametrize(("role", "ending"), EVERY)
@pytest.mark.parametrize("kind", ODD)
def test_odd_files_end_in_an_error(
    role: str, ending: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = tmp_path / f"f{ending}"
    special(kind, Path(path.name))
    if kind == "/proc/kmsg" and not os.access(kind, os.R_OK):
        pytest.skip("only root may read it")
    said = complaint(READERS[role][0](path))
    assert ODD[kind].lower() in said.lower()


@pytest.mark.parametrize(("role", "ending"), EVERY)
@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_a_file_that_may_not_be_read_or_vanishes_ends_in_an_error(
    role: str, ending: str, error: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(b"x")

    def refuse(*_: object) -> int:
        raise error(error().errno, "not for you", str(path))

    monkeypatch.setattr(files, "_without_waiting", refuse)
    said = complaint(READERS[role][0](path))
    assert str(path) in said
    assert "not for you" in said or "no such file" in said


@pytest.mark.parametrize(("kind", "called"), [("pipe", "a named pipe"), ("device", "a device")])
def test_a_scenario_is_a_regular_file(kind: str, called: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ScenarioError, match=f"it is {called}, not a regular file"):
        read(path)


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(lambda folder: read_scenario(folder / "file"), id="scenario"),
        pytest.param(lambda folder: read_info(folder), id="run.json"),
        pytest.param(lambda folder: StoredRun(folder, None).table("metrics"), id="metrics"),
        pytest.param(lambda folder: StoredRun(folder, None).weights(), id="weights"),
        pytest.param(lambda folder: SweepPage.read(folder), id="sweep.json"),
    ],
)
def test_results_are_regular_files(reads: Callable[[Path], object], tmp_path: Path) -> None:
    for name in ("file", "run.json", "metrics.parquet", "weights.safetensors", "sweep.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ResultsError):
        reads(tmp_path)


DEEP = 20_000
BAD_JSON = {
    "brackets": "[" * DEEP,
    "closed brackets": "[" * DEEP + "]" * DEEP,
    "levels that Python reads": "[" * 900 + "]" * 900,
    "objects": '{"a":' * DEEP,
    "a list": "[]",
    "a text": '"a"',
    "a number": "1",
    "null": "null",
    "NaN": "NaN",
    "nothing": "",
    "two values": "{} {}",
    "a name twice": '{"files": {}, "files": {}}',
    "a number of 5,000 digits": '{"files": %s}' % ("9" * 5000),
    "a number of 400 digits": '{"files": %s}' % ("9" * 400),
    "not UTF-8": b'{"\xff": 1}',
    "half a surrogate": '{"files": {"\\ud800": {}}}',
}
JSON_PAGES: dict[str, Callable[[Path], object]] = {
    "run.json": read_info,
    "sweep.json": SweepPage.read,
    "manifest.json": Manifest.read,
    "tuning.json": Tuning.open,
}


@pytest.mark.parametrize("name", JSON_PAGES)
@pytest.mark.parametrize("content", BAD_JSON.values(), ids=BAD_JSON)
def test_a_page_that_is_no_plain_json_is_called_damaged(name: str, content: str | bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ResultsError, match="damaged: ") as caught:
        JSON_PAGES[name](tmp_path)
    assert caught.value.where == str(tmp_path / name)
    assert caught.value.remedy


def test_json_within_the_bounds_is_read(tmp_path: Path) -> None:
    deep = "[" * files.JSON_DEPTH + "]" * files.JSON_DEPTH
    (tmp_path / "a.json").write_text(f'{{"deep": {deep[1:-1]}, "whole": {2**64}, "inf": -Infinity}}')
    found = files.json_of(tmp_path / "a.json")
    assert (found["whole"], found["inf"]) == (2**64, -np.inf)
    with pytest.raises(ValueError, match="more than 100 levels"):
        files.parsed_json(f"[{deep}]")
    assert files.parsed_json(str(10**30), whole=np.inf) == 10**30


DEEP_FOR_YAML = 2_000
"""Levels that exceed Python's stack: the parser calls itself for each."""
BAD_YAML = {
    "brackets": "[" * DEEP_FOR_YAML,
    "levels": "protocols: " + "[" * 200 + "]" * 200,
    "mappings": "protocols: " + "{a: " * DEEP_FOR_YAML,
    "an anchor in itself": "protocols: &a {a: *a}",
    "anchors in anchors": "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
    + "".join(f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9))
    + "protocols: {}\n",
    "a tag": "protocols: !!python/object/apply:os.system [ls]",
    "protocols of text": "protocols: {wait: text}",
    "stop of a list": "protocols: {}\nstop: [1]",
    "constants of text": "protocols: {}\nconstants: a",
    "a key twice": "protocols: {}\nprotocols: {}",
    "a control character": "protocols: {}\nname: \x1b",
}


@pytest.mark.parametrize("content", BAD_YAML.values(), ids=BAD_YAML)
def test_a_stored_scenario_that_is_no_plain_yaml_is_called_damaged(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.results.store.pages.MOST_VALUES", 10_000)
    (tmp_path / "scenario.yaml").write_text(content)
    with pytest.raises(ResultsError, match="damaged: "):
        read_scenario(tmp_path / "scenario.yaml")


@pytest.mark.slow
def test_a_stored_scenario_of_many_seeds_is_read(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(f"protocols: {{}}\nseeds: [{', '.join(['7'] * (MAX_VALUES + 1))}]\n")
    assert len(read_scenario(tmp_path / "scenario.yaml")["seeds"]) == MAX_VALUES + 1


def calls(path: Path, *words: str) -> list[ast.Call]:
    """The calls in a module that has one of these words; others need not be parsed."""
    text = path.read_text()
    nodes = ast.walk(ast.parse(text)) if any(word in text for word in words) else ()
    return [node for node in nodes if isinstance(node, ast.Call)]


@pytest.mark.parametrize("package", sorted(path.name for path in Path(files.__file__).parent.iterdir()))
def test_nothing_else_reads_json_or_yaml(package: str) -> None:
    """Files of JSON and YAML are read by ``files.json_of`` and ``plain_yaml.parse_value``, within bounds."""
    root = Path(files.__file__).parent
    for path in sorted((root / package).rglob("*.py")) or [root / package]:
        if path.suffix != ".py" or path == Path(files.__file__):
            continue
        for call in calls(path, "load"):
            said = ast.unparse(call.func)
            own = path == root / "vocabulary" / "base.py"  # examples in docstrings
            loads = said in {"json.load", "json.loads"} or (said.startswith("YAML(") and said.endswith(".load"))
            assert not loads or own, f"{path}:{call.lineno}: {said}"


WRITERS = {"results/store/folder.py", "results/store/write.py"}
PACKAGED = {"learning/data/catalogue_readers.py"}
"""Reads a file that comes with a library."""


@pytest.mark.parametrize("package", ["timing", "learning", "scenario", "results"])
def test_nothing_else_opens_a_file_by_its_path(package: str) -> None:
    """``open``, ``path.read_text`` and ``np.load`` belong into ``vflsim/files.py``."""
    root = Path(files.__file__).parent
    for path in sorted((root / package).rglob("*.py")):
        if path.relative_to(root).as_posix() in WRITERS | PACKAGED:
            continue
        for call in calls(path, "open", "read_", "load", "genfromtxt", "fromfile"):
            of = call.func
            builtin = isinstance(of, ast.Name) and of.id == "open"
            method = isinstance(of, ast.Attribute) and of.attr in {"read_text", "read_bytes"}
            numpy = ast.unparse(of) in {"np.load", "np.loadtxt", "np.genfromtxt", "np.fromfile", "path.open"}
            opens = builtin or method or numpy
            assert not opens, f"{path}:{call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize(("role", "ending"), EVERY)
def test_a_file_beyond_memory_is_refused_before_it_is_read(
    role: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"file{ending}"
    numbers = np.arange(1.0, 5001.0).reshape(-1, 1)
    columns = {"csv": b"a,y\n" + b"1,0\n" * 5000, "up": b"1\n" * 5000, "txt": b"1\n" * 5000}
    if ending == ".npy":
        np.save(path, numbers)
    elif ending == ".npz":
        np.savez(path, x=numbers, y=np.arange(5000) % 2)
    elif ending == ".parquet":
        pq.write_table(pa.table({"y": numbers.ravel()}), path)
    else:
        text = columns[ending.split(".")[1]]
        path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    monkeypatch.setattr(files, "machine_memory", lambda: 20_000.0)
    said = complaint(READERS[role][0](path))
    assert "of memory, and a file may take 10 kB, half of what is there" in said


@pytest.mark.parametrize(("role", "ending"), NPY)
@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: f"{len(str(rows))} digits")
def test_an_npy_file_that_announces_more_than_it_holds_is_refused(
    role: str, ending: str, rows: int, tmp_path: Path
) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(npy(f"({rows}, 2)"))
    said = complaint(READERS[role][0](path))
    assert "its header announces float64 of shape (" in said
    assert "but 96 bytes follow" in said


@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: f"{len(str(rows))} digits")
def test_an_npz_file_that_announces_more_than_it_holds_is_refused(rows: int, tmp_path: Path) -> None:
    archive(tmp_path / "file.npz", x=npy(f"({rows}, 3)"), y=npy(f"({rows},)"))
    assert "array 'x': its header announces float64 of shape (" in complaint(as_data(tmp_path / "file.npz"))


@pytest.mark.parametrize(("role", "ending"), NPY)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(npy("(1000000000000, 0)", data=b""), id="rows of no columns"),
        pytest.param(npy("(1000000000000,)", "<U0", b""), id="rows of no characters"),
        pytest.param(npy("(-3,)"), id="negative"),
        pytest.param(npy("(2,)", "|O"), id="objects"),
        pytest.param(npy("(((" * 200), id="no shape"),
        pytest.param(npy("(2, 1)", "<f8")[:90], id="cut off"),
        pytest.param(b"\x93NUMPY\x03\x00" + b"\0" * 40, id="another version"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_damaged_npy_file_is_refused(role: str, ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(content)
    assert str(path) in complaint(READERS[role][0](path))


@pytest.mark.parametrize(("role", "ending"), NPY)
def test_an_archive_called_npy_is_refused(role: str, ending: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", x=np.zeros(3))
    path = (tmp_path / "file.npz").rename(tmp_path / f"file{ending}")
    assert "it is no array in NPY format" in complaint(READERS[role][0](path))


def test_an_archive_that_unpacks_to_far_more_than_it_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BOMB_BYTES", 1 << 16)
    archive(tmp_path / "file.npz", x=npy("(50000, 4)", data=bytes(1_600_000)), y=npy("(50000,)", data=bytes(400_000)))
    said = complaint(as_data(tmp_path / "file.npz"))
    assert "unpack to 2 MB or more, over 200 times as much (if that is meant, keep it unpacked)" in said


def test_a_csv_that_unpacks_to_far_more_than_it_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BOMB_BYTES", 1 << 16)
    (tmp_path / "file.csv.gz").write_bytes(gzip.compress(b"a,y\n" + b"1,0\n" * 500_000))
    assert "over 200 times as much" in complaint(as_data(tmp_path / "file.csv.gz"))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("twice", lambda z: [z.writestr("x.npy", npy("(2,)", data=bytes(16))) for _ in range(2)]),
        ("no array", lambda z: z.writestr("readme.txt", b"hello")),
        ("empty member", lambda z: z.writestr("x.npy", b"")),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_of_other_things_is_refused(name: str, write: Callable[[Any], Any], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as opened:
        write(opened)
    assert "cannot be read" in complaint(as_data(tmp_path / "file.npz"))


def test_a_header_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_bytes("größe,y\n1,0\n2,1\n".encode("latin-1"))
    assert "a column's name is not UTF-8: it holds the byte 0xf6" in complaint(as_data(tmp_path / "file.csv"))


def test_a_name_with_a_null_character_is_refused() -> None:
    with pytest.raises(VflsimError, match="null"):
        read_and_check(load(BASE, {"data": {"file": "a\0.csv", "label": "y"}}))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (1.0, 1e300, ("a label is as large as 1e+300", "rescale the label")),
        (1e300, 1.0, ("cannot be scaled", "rescale the column")),
        (1e-200, 1.0, ("cannot be scaled", "rescale the column")),
    ],
)
def test_numbers_whose_squares_are_none_are_refused(
    dtype: str, x: float, y: float, says: tuple[str, ...], tmp_path: Path
) -> None:
    grid = np.linspace(0, 1, 40)
    np.savez(tmp_path / "file.npz", x=x * np.stack([grid, grid[::-1]], axis=1), y=y * grid)
    said = complaint({**as_data(tmp_path / "file.npz"), "training.dtype": dtype})
    for part in says:
        assert part in said


def test_a_trace_of_years_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.up").write_text("1\n1000000000000\n")
    said = complaint(READERS["mahimahi"][0](tmp_path / "file.up"))
    assert "its last stamp, 1,000,000,000,000 ms, makes 1e+10 windows of 0.1 s" in said
    assert "choose a wider window" in said


def test_more_clients_than_can_be_simulated_are_refused_at_once() -> None:
    assert "1,000,000,001 clients are too many" in complaint({"partition.clients": 10**9 + 1})


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (9.6e9, "9.6 GB"), (2.4e13, "24 TB"), (10**400, "1e+285 PB")],
)
def test_bytes_are_written_with_three_digits(amount: float, words: str) -> None:
    assert files.bytes_text(amount) == words


def test_the_machines_memory_is_known() -> None:
    assert 1e8 < files.machine_memory() < 1e15
