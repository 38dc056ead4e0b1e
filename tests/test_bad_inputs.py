"""Whatever is wrong with what a user hands over: exit status 2, one message that says where, what and how to mend it.

No traceback, and nothing half-written: the working directory, results of earlier runs included, is as it was before.
"""

# ruff: noqa: E501  # a table reads best with one row a line

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Ended

from vflsim.scenario import load
from vflsim.studies.study import run_study

SCENARIO = """\
name: small
data:
  file: good.csv
  label: y
partition: {clients: 2, by: columns}
models:
  client: {kind: linear, embedding: 4}
  aggregate: mean
  server: {kind: mlp, hidden: [4]}
training:
  batch: 8
  client_optimizer: {kind: sgd, lr: 0.1}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  server: {compute: 1 ms}
  clients:
    - {select: all, compute: 1 ms, upload_delay: {kind: exponential, mean: 2 ms}}
protocols:
  wait: {kind: synchronous}
  two: {kind: t_synchronous, t: 2}
stop: {rounds: 3}
evaluate: {every: 2 rounds}
"""
HEADER = "a,b,c,y"
ROWS = [f"{i % 7},{i * i % 5},{i * 3 % 11},{i % 3}" for i in range(41)]  # 33 of them train: the last batch has one row
WAIT, TWO = "wait: {kind: synchronous}", "two: {kind: t_synchronous, t: 2}"
CLIENT, SERVER = "client: {kind: linear, embedding: 4}", "server: {kind: mlp, hidden: [4]}"
FILE, CLIENTS = "file: good.csv\n  label: y", "clients: 2, by: columns"


def csv(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


GOOD = csv(*ROWS)
NETWORK = """\
import torch
from torch import nn

class Normal(nn.Sequential):
    def __init__(self, embedding):
        super().__init__(nn.Flatten(), nn.LazyLinear(embedding), nn.BatchNorm1d(embedding))

class Narrow(nn.Linear):
    def __init__(self, feature_shape):
        super().__init__(feature_shape[0], 1)

class Normalised(nn.Sequential):
    def __init__(self, feature_shape, embedding):
        super().__init__(nn.Linear(feature_shape[0], embedding), nn.BatchNorm1d(embedding))

class Squeezing(nn.Linear):
    def __init__(self, feature_shape, embedding):
        super().__init__(feature_shape[0], embedding)
    def forward(self, x):
        return super().forward(x).squeeze()
"""


def npz(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def idx(content: bytes, name: str = "train-images-idx3-ubyte.gz") -> dict[str, bytes]:
    """Files of MNIST of which the first one has ``content``."""
    names = (name, "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
    return {f"store/mnist/{each}": content for each in names}


def user_model(name: str) -> tuple[tuple[str, str], ...]:
    return ((CLIENT, f"client: {{kind: module, path: '{name}', embedding: 4}}"),)


@dataclass(frozen=True)
class Bad:
    """A working scenario with ``changes``, and ``files`` beside it; the message must hold the ``fragments``.

    ``key``, if there is one, must be named with the line on which the text ``at`` (default: the first change) stands.
    """

    name: str
    changes: tuple[tuple[str, str], ...]
    fragments: tuple[str, ...]
    key: str = ""
    at: str = ""
    files: dict[str, Any] = field(default_factory=dict)
    argv: tuple[str, ...] = ()


def change(old: str, new: str) -> tuple[tuple[str, str], ...]:
    return ((old, new),)


def data(text: str, *rows: str, **more: Any) -> dict[str, Any]:
    return {"changes": change("good.csv", "bad.csv"), "files": {"bad.csv": text}, **more}


def file_of(name: str, content: Any, *fragments: str) -> Bad:
    return Bad(name, change("good.csv", name.replace(" ", "_")), fragments, files={name.replace(" ", "_"): content})


def of_parties(*more: str) -> tuple[tuple[str, str], ...]:
    keys = "\n  ".join(["parties: [one.csv, two.csv]", "id: id", "label: y", *more])
    return change(FILE + "\npartition: {clients: 2, by: columns}", f"{keys}\npartition: {{}}")


PARTIES = of_parties()


def parties(one: str, two: str) -> dict[str, str]:
    return {"one.csv": one, "two.csv": two}


IDS = [f"{i},{i % 7},{i % 3}" for i in range(40)]
ONE, OTHER = csv(*IDS, header="id,a,y"), csv(*(f"{i},{i % 5}" for i in range(40)), header="id,b")
MNIST = ((FILE, "name: mnist"),)

BAD_SCENARIOS = (
    # words
    Bad("unknown kind", change("kind: synchronous", "kind: synchronos"), ("'synchronos'", "did you mean 'synchronous'"), "protocols.wait.kind"),
    Bad("unknown key", change("batch: 8", "bach: 8"), ("'bach'", "did you mean 'batch'"), "training.bach"),
    Bad("t beyond M", change("t: 2", "t: 3"), ("3 embeddings of 2 clients", "1 to 2"), "protocols.two.t"),
    Bad("negative mean", change("mean: 2 ms", "mean: -2 ms"), ("-2 ms", "above 0"), "upload_delay.mean"),
    Bad("zero clients", change("clients: 2", "clients: 0"), ("0 is out of range", "at least 1"), "partition.clients"),
    Bad("formula calls a function", change("mean: 2 ms", "mean: exp(i)"), ("'exp'", "no functions"), "upload_delay.mean"),
    Bad("formula names an unknown symbol", change("mean: 2 ms", "mean: 2*k ms"), ("'k'", "N, i, m"), "upload_delay.mean"),
    Bad("formula without bound", change("mean: 2 ms", "mean: 9**9**9"), ("9**9**9", "exponent"), "upload_delay.mean"),
    Bad("formula of one client", change("mean: 2 ms", "mean: 2 - m"), ("'2 - m' = 0", "client 2"), "upload_delay.mean"),
    Bad("several problems", (("t: 2", "t: 3"), ("mean: 2 ms", "mean: -2 ms"), ("batch: 8", "batch: 0")), ("problems", "training.batch", "upload_delay.mean")),
    # what only the data can tell
    Bad("more clients than columns", change("clients: 2", "clients: 4"), ("4 clients cannot share 3 columns", "1 to 3"), ),
    Bad("CNN on flat features", change(CLIENT, "client: {kind: cnn, channels: [2], embedding: 4}"), ("client 1", "needs images", "(2,)", "partition by"), "models.client"),
    Bad("CNN of the second client", change(CLIENT, "client: [{kind: linear, embedding: 4}, {select: 2, kind: cnn, channels: [2], embedding: 4}]"), ("client 2", "needs images"), "models.client.1"),
    Bad("LeNet on strips", ((FILE, "name: digits"), (CLIENTS, "clients: 2, by: image_rows"), (CLIENT, "client: {kind: lenet, embedding: 4}")), ("at least 12 × 12", "4 × 8"), "models.client", at="lenet"),
    Bad("batch norm, last batch of one row", change(SERVER, "server: {kind: mlp, hidden: [4], batch_norm: true}"), ("server's model", "33 training rows in batches of 8", "last_batch: drop"), "training.last_batch", at="training:"),
    Bad("batch norm of a client", user_model("networks:Normalised"), ("client 1", "33 training rows", "last_batch: drop"), "training.last_batch", at="training:", files={"networks.py": NETWORK}),
    Bad("batch norm, batches of one row", ((SERVER, "server: {kind: mlp, hidden: [4], batch_norm: true}"), ("batch: 8", "batch: 1")), ("every batch has one", "at least 2"), "training.batch", at="batch: 1"),
    Bad("batch norm of one protocol", ((SERVER, "server: {kind: mlp, hidden: [4], batch_norm: true}"), ("batch: 8", "batch: 11"), (WAIT, "wait: {kind: synchronous, training: {batch: 16}}")), ("batches of 16",), "protocols.wait.training.last_batch", at="wait:"),
    Bad("a squeezing module", user_model("networks:Squeezing"), ("client 1", "one row"), "training.last_batch", at="training:", files={"networks.py": NETWORK}),
    Bad("a batch larger than the data", change("batch: 8", "batch: 50"), ("a batch of 50", "33 training rows", "1 to 33", "`batch: all`"), "training.batch", at="batch: 50"),
    Bad("no full batch", change("batch: 8", "batch: 50\n  last_batch: drop"), ("a batch of 50", "33 training rows", "`batch: all`"), "training.batch", at="batch: 50"),
    Bad("a protocol's batch larger than the data", change(WAIT, "wait: {kind: synchronous, training: {batch: 34}}"), ("a batch of 34", "33 training rows"), "protocols.wait.training.batch", at="wait:"),
    Bad("a batch that is a word", change("batch: 8", "batch: full"), ("full", "a whole number at least 1 or 'all'"), "training.batch", at="batch: full"),
    Bad("logistic server of other classes", change(SERVER, "server: {kind: logistic}"), ("3 wide, not 4", "embedding: 3"), "models.server"),
    Bad("loss of another task", change("batch: 8", "batch: 8\n  loss: mean_squared_error"), ("multiclass", "cross_entropy"), "training.loss", at="loss"),
    Bad("target of another task", change("{rounds: 3}", "{rounds: 3, target: {test_auc: 0.9}}"), ("multiclass", "test_accuracy"), "stop.target.test_auc"),
    Bad("target without validation", change("{rounds: 3}", "{rounds: 3, target: {validation_loss: 1}}"), ("validation_fraction",), "validation_loss"),
    Bad("weights too wide for the machine", change(CLIENT, "client: {kind: linear, embedding: 1e13}"), ("TB", "memory of this machine", "narrower"), "models", at="models:"),
    Bad("weights beyond counting", change(CLIENT, "client: {kind: linear, embedding: 1e25}"), ("cannot be built", "narrower"), "models", at="models:"),
    Bad("too high a degree", change(CLIENT, "client: {kind: polynomial, degree: 1e9, embedding: 4}"), ("at most 64",), "models.client.degree"),
    Bad("image rows of a table", change(CLIENTS, "clients: 2, by: image_rows"), ("needs images", "partition.by")),
    Bad("views of one table", change(CLIENTS, "clients: 2, by: views"), ("one view only", "partition.by")),
    Bad("explicit column that is not there", change(CLIENTS, "by: explicit, columns: [[a, b], [d]]"), ("'d'", "client 2", "partition.columns")),
    Bad("explicit column twice", change(CLIENTS, "by: explicit, columns: [[a, b], [b]]"), ("'b'", "client 1 already")),
    Bad("patches that do not tile", ((FILE, "name: digits"), (CLIENTS, "clients: 11, by: patches")), ("11 clients", "8×8")),
    Bad("more training rows than there are", change(FILE, FILE + "\n  train_rows: 34"), ("34 training rows", "at most 33")),
    Bad("an empty test split", change(FILE, FILE + "\n  test_fraction: 0.001"), ("test split", "empty", "raise the fraction")),
    # modules of the user's
    Bad("module that is not there", user_model("nowhere_to_be_found:Net"), ("no module named nowhere_to_be_found", "PYTHONPATH"), "models.client"),
    Bad("module that does not import", user_model("broken:Net"), ("broken:Net does not import", "ZeroDivisionError"), "models.client", files={"broken.py": "1 / 0\n"}),
    Bad("module that exits", user_model("leaving:Net"), ("leaving:Net does not import", "SystemExit"), "models.client", files={"leaving.py": "raise SystemExit(3)\n"}),
    Bad("module without the class", user_model("networks:Wide"), ("networks:Wide", "Wide"), "models.client", files={"networks.py": NETWORK}),
    Bad("module of another width", user_model("networks:Narrow"), ("(2, 1)", "allowed: floating point of shape (2, 4)"), "models.client", files={"networks.py": NETWORK}),
    # data files
    Bad("no data file", change("good.csv", "absent.csv"), ("absent.csv", "no such file", "correct the path")),
    Bad("a folder for a data file", change("good.csv", "folder.csv"), ("folder.csv", "cannot be read"), files={"folder.csv/x": ""}),
    Bad("unknown ending", change("good.csv", "bad.xlsx"), ("bad.xlsx", "'.xlsx'", ".parquet"), files={"bad.xlsx": ""}),
    Bad("NaN feature", fragments=("bad.csv", "line 4, column 'b'", "nan"), **data(csv(*ROWS[:2], "1,nan,3,1", *ROWS))),
    Bad("empty feature", fragments=("bad.csv", "line 4, column 'b'", "nan"), **data(csv(*ROWS[:2], "1,,3,1", *ROWS))),
    Bad("infinite feature", fragments=("bad.csv", "line 2, column 'a'", "inf"), **data(csv("inf,1,3,1", *ROWS))),
    Bad("feature in words", fragments=("line 2, column 'c' is 'x'", "drop: [c]"), **data(csv("0,1,x,1", *ROWS))),
    Bad("label column missing", change("label: y", "label: Y"), ("good.csv", "no column 'Y' (the label)", "'y'", "correct `label`")),
    Bad("label missing in a row", fragments=("line 3, column 'y' (the label) is empty",), **data(csv(ROWS[0], "1,2,3,", *ROWS))),
    Bad("one label for all", fragments=("all 30 rows have the same label",), **data(csv(*["1,2,3,1"] * 30))),
    Bad("ragged rows", fragments=("bad.csv", "line 3", "Expected 4 columns, got 5"), **data(csv(ROWS[0], "1,2,3,4,5", *ROWS))),
    Bad("empty file", fragments=("bad.csv", "cannot be read", "Empty CSV"), **data("")),
    Bad("header alone", fragments=("bad.csv", "holds no rows"), **data(HEADER + "\n")),
    Bad("column twice", fragments=("column 'a' stands there twice",), **data(csv(*ROWS, header="a,a,c,y"))),
    Bad("text that is not UTF-8", fragments=("line 2, column 'c'", "not a number"), **data(b"a,b,c,y\n1,2,\xff,0\n")),
    file_of("cut.parquet", b"PAR1\x00\x00PAR", "cut.parquet", "an intact Parquet file"),
    file_of("noise.npz", b"no archive", "noise.npz", "cannot be read"),
    file_of("objects.npz", npz(x=np.zeros((30, 3)), y=np.array([{}] * 30)), "objects.npz", "objects are refused"),
    file_of("ragged.npz", npz(x=np.zeros((30, 3)), y=np.arange(29)), "29 rows", "30"),
    file_of("nan.npz", npz(x=np.full((30, 3), np.nan), y=np.arange(30) % 2), "nan.npz", "array 'x'", "nan"),
    # parties' files
    Bad("clients with different ids", of_parties("align: exact"), ("1 ids of one.csv are missing in two.csv (such as 39)", "keep the ids"), files=parties(ONE, csv(*(f"{i},{i}" for i in range(39)), header="id,b"))),
    Bad("clients without a common id", PARTIES, ("two.csv", "no id stands in every file: one.csv has 40, two.csv has 9"), files=parties(ONE, csv(*(f"{i},{i}" for i in range(50, 59)), header="id,b"))),
    Bad("a gap without a rule", PARTIES, ("two.csv: line 42", "column 'b' is nan", "`missing: mean`"), files=parties(ONE, OTHER + "40,\n")),
    Bad("an id twice", PARTIES, ("two.csv", "id 0 stands in more than one row"), files=parties(ONE, OTHER + "0,1\n")),
    Bad("ids as numbers and as text", PARTIES, ("two.csv", "text in the other"), files=parties(ONE, csv(*(f"n{i},{i}" for i in range(40)), header="id,b"))),
    Bad("no id column", PARTIES, ("two.csv", "no column 'id' (the id)"), files=parties(ONE, OTHER.replace("id", "key"))),
    Bad("label at two clients", PARTIES, ("stands in 2 of the 2 files", "exactly one"), files=parties(ONE, OTHER.replace("b", "y"))),
    Bad("label at no client", PARTIES, ("stands in 0 of the 2 files", "exactly one"), files=parties(ONE.replace("y", "z"), OTHER)),
    Bad("a client's file absent", PARTIES, ("two.csv", "no such file"), files={"one.csv": ONE}),
    # the catalogue's files
    Bad("data not on this machine", MNIST, ("mnist", "not there", "vflsim data get mnist", "VFLSIM_DATA")),
    Bad("wrong checksum", MNIST, ("train-images-idx3-ubyte.gz", "wrong checksum", "allowed: sha256 440f", "vflsim data get"), files=idx(b"x")),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory of one's own, an empty data store, and an empty cache."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("vflsim.learning.data.files.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv("VFLSIM_DATA", str(tmp_path / "work" / "store"))
    Path("good.csv").write_text(GOOD)
    Path("store").mkdir()
    for module in ("networks", "broken", "leaving"):
        sys.modules.pop(module, None)


def tree(folder: Path | str = ".") -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


def place(name: str, content: Any) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def one_message(ended: Ended, *fragments: str, status: int = 2) -> None:
    assert ended.status == status, ended
    assert ended.err.startswith("error: "), ended.err
    assert re.findall("^error: ", ended.err, re.MULTILINE) == ["error: "], ended.err
    assert "Traceback" not in ended.err + ended.out
    for fragment in fragments:
        assert fragment in ended.err


@pytest.mark.sampled(80)
@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("bad", BAD_SCENARIOS, ids=lambda bad: bad.name)
def test_bad_scenario_or_data_file(bad: Bad, command: str, vflsim: Callable[..., Ended]) -> None:
    text = SCENARIO
    for old, new in bad.changes:
        assert text.count(old) == 1, f"{old!r} must stand there once"
        text = text.replace(old, new)
    place("bad.yaml", text)
    for name, content in bad.files.items():
        place(name, content)
    before = tree()

    ended = vflsim(command, "bad.yaml")

    one_message(ended, bad.key, *bad.fragments)
    if bad.key:
        line = text[: text.index(bad.at or bad.changes[0][1])].count("\n") + 1
        assert f"bad.yaml:{line}: " in ended.err
    assert tree() == before


# --- the command line itself ------------------------------------------------------------------------------------------

BAD_COMMANDS = {
    "no such scenario": (("run", "absent.yaml"), ("absent.yaml: there is no such file", "other.yaml")),
    "a folder for a scenario": (("run", "store"), ("store: this is a folder", "a YAML file")),
    "a scenario that is no text": (("check", "noise.yaml"), ("noise.yaml:2: the byte 0xff is not UTF-8",)),
    "an empty scenario": (("run", "empty.yaml"), ("empty.yaml: the scenario is empty", "vflsim new NAME")),
    "a scenario that is a list": (("run", "list.yaml"), ("list.yaml:1", "a list", "a mapping")),
    "a key twice": (("run", "twice.yaml"), ("twice.yaml:2", "'name' stands twice")),
    "one bare seed": (("run", "other.yaml", "--seeds", "5"), ("--set seeds=5: seeds", "write [5]", "0:5")),
    "seeds in words": (("run", "other.yaml", "--seeds", "a:b"), ("--set seeds=a:b: seeds", "'a:b'", "0:5")),
    "seeds backwards": (("check", "other.yaml", "--seeds", "5:0"), ("--set seeds=5:0: seeds", "holds no seed")),
    "seeds of nothing": (("run", "other.yaml", "--seeds", ""), ("--set seeds=", "no value")),
    "--set without a value": (("run", "other.yaml", "--set", "seeds"), ("--set seeds", "no equals sign", "key=value")),
    "--set of an unknown key": (("run", "other.yaml", "--set", "stop.tim=1"), ("stop.tim", "did you mean 'time'")),
    "--set below a number": (("check", "other.yaml", "--set", "training.batch.x=1"), ("training.batch has no keys",)),
    "--set beyond a list": (("run", "other.yaml", "--set", "timing.clients.7.compute=1"), ("'7'", "0 to 0")),
    "--set of no YAML": (("run", "other.yaml", "--set", "seeds=[1"), ("--set seeds=[1", "quotes")),
    "--out is a file": (("run", "other.yaml", "--out", "good.csv"), ("good.csv: cannot be written", "another --out")),
    "--out below a file": (("run", "other.yaml", "--out", "good.csv/x"), ("good.csv/x: cannot be written", "--out")),
    "--out of somebody else": (
        ("run", "other.yaml", "--out", "."),
        ("holds other things", "good.csv", "another --out"),
    ),
    "unknown results": (("compare", "absent"), ("absent: no such folder", "vflsim run")),
    "unknown results to plot": (("plot", "absent"), ("absent: no such folder",)),
    "unknown results to verify": (("verify", "absent"), ("absent: no such folder",)),
    "no results in it": (("compare", "store"), ("store: no scenario.yaml in it",)),
    "a file for results": (("plot", "good.csv"), ("good.csv: no such folder",)),
    "one unknown folder of two": (("compare", "results", "absent"), ("absent: no such folder",)),
    "unknown figure": (("plot", "results", "--kind", "tiem"), ("there is no figure 'tiem'", "durations", "'time'")),
    "figures into a file": (("plot", "results", "--out", "good.csv"), ("good.csv", "cannot be written")),
    "unknown list": (("list", "delay"), ("there is no list 'delay'", "delays, computes", "did you mean 'delays'")),
    "unknown data set": (("data", "get", "mnst"), ("unknown data set 'mnst'", "'mnist'")),
    "data into a file": (("data", "get", "mnist", "--to", "good.csv"), ("good.csv", "could not be fetched")),
}
OTHER_FILES = {
    "other.yaml": SCENARIO,
    "noise.yaml": b"name: x\n\xff\n",
    "empty.yaml": "",
    "list.yaml": "- a\n",
    "twice.yaml": "name: a\nname: b\n",
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the small scenario."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "good.csv").write_text(GOOD)
    (folder / "small.yaml").write_text(SCENARIO)
    run_study(load(folder / "small.yaml"), folder / "results")
    return folder / "results"


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_command(name: str, vflsim: Callable[..., Ended], finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv, fragments = BAD_COMMANDS[name]
    monkeypatch.setattr("pooch.HTTPDownloader.__call__", unreachable)
    for path, content in OTHER_FILES.items():
        place(path, content)
    shutil.copytree(finished, "results")
    before = tree()
    one_message(vflsim(*argv), *fragments)
    assert tree() == before


def unreachable(*_: object) -> None:
    raise OSError(errno.ENETUNREACH, "the network is unreachable")


@pytest.mark.parametrize(
    "argv", [("--sedes",), ("run",), ("frobnicate",), ("run", "x.yaml", "--sedes", "3"), ("data", "gt")]
)
def test_a_misspelt_command_line_ends_in_a_usage_message(argv: tuple[str, ...], vflsim: Callable[..., Ended]) -> None:
    before = tree()
    ended = vflsim(*argv)
    assert ended.status == 2
    assert ended.err.count("Usage: ") == 1
    assert "Traceback" not in ended.err
    assert tree() == before


# --- data that cannot be faked by changing a text ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        (gzip.compress(bytes((0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9)) + b"x" * 700), ("700 bytes", "729")),
        (gzip.compress(bytes((0, 0, 8, 3, 0))), ("ends within its header",)),
        (gzip.compress(b"\0\0\x0d\3" + b"\0" * 20), ("magic number 0x00000d03",)),
        (
            gzip.compress(bytes((0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9)) + os.urandom(729))[:400],
            ("cannot be read", "end-of-stream"),
        ),
        (b"no gzip at all", ("cannot be read", "gzipped")),
    ],
    ids=["truncated", "header cut", "another type", "gzip cut", "no gzip"],
)
def test_bad_idx_file(
    content: bytes, fragments: tuple[str, ...], vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.learning.data.files.verify", lambda *_: None)  # else the checksum would find it first
    place("bad.yaml", SCENARIO.replace(FILE, "name: mnist"))
    for name, blob in idx(content).items():
        place(name, blob)
    before = tree()
    one_message(vflsim("run", "bad.yaml"), "train-images-idx3-ubyte.gz", *fragments)
    assert tree() == before


def test_a_data_store_that_is_not_there_is_named(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLSIM_DATA", "/nowhere/at all")
    place("bad.yaml", SCENARIO.replace(FILE, "name: mnist"))
    one_message(
        vflsim("check", "bad.yaml"),
        "correct VFLSIM_DATA (there is no folder '/nowhere/at all')",
        "vflsim data get mnist",
    )
    listed = vflsim("data", "list")
    assert listed.status == 0
    assert "/nowhere/at all (no such folder)" in listed.out


# --- damaged results --------------------------------------------------------------------------------------------------

METRICS = "wait/seed-0/metrics.parquet"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def wrong_columns(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def wrong_run(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "seed": 7}))


DAMAGE = {
    "cut metrics": (METRICS, cut, ("damaged", "run the scenario again")),
    "metrics of zeros": (METRICS, lambda path: path.write_bytes(bytes(500)), ("damaged",)),
    "metrics of other columns": (METRICS, wrong_columns, ("damaged",)),
    "no metrics": (METRICS, Path.unlink, ("metrics",)),
    "run.json cut": ("wait/seed-0/run.json", lambda path: path.write_text('{"seed"'), ("damaged",)),
    "run.json of another run": ("wait/seed-0/run.json", wrong_run, ("wait/seed-7",)),
    "no run.json": ("two/seed-0/run.json", Path.unlink, ("damaged",)),
    "scenario.yaml is none": ("scenario.yaml", lambda path: path.write_text("a: [1"), ("damaged",)),
    "scenario.yaml without protocols": ("scenario.yaml", lambda path: path.write_text("name: x\n"), ("no protocols",)),
    "no run left": ("two", lambda path: [shutil.rmtree(path), shutil.rmtree(path.parent / "wait")], ("no run",)),
}


@pytest.mark.parametrize("command", ["plot", "compare", "verify"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_results(name: str, command: str, vflsim: Callable[..., Ended], finished: Path) -> None:
    path, damage, fragments = DAMAGE[name]
    shutil.copytree(finished, "results")
    damage(Path("results", path))
    before = tree()
    ended = vflsim(command, "results")
    if command == "verify" and path == METRICS:  # lists every problem, then counts them
        one_message(ended, "results: 2 problems, listed above", "run it again with --resume")
        digest, reading = ended.out.splitlines()[:2]
        assert digest.startswith("wait/seed-0: metrics.parquet ")
        assert reading.startswith("wait/seed-0: results/wait/seed-0/metrics.parquet: damaged: ")
    else:
        one_message(ended, *fragments)
        named = path.partition("/")[0] if "run left" not in name else "results"
        assert named in ended.err
    assert tree() == before


# --- no room, no right ------------------------------------------------------------------------------------------------


def full_disk(after: int) -> Callable[..., Any]:
    """A stand-in for ``os.fsync`` that finds the disk full once ``after`` files have been written."""
    files = iter(range(10**9))

    def fsync(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode) and next(files) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fsync


# scenario.yaml (manifest.json where it stands there already), then three tables, the weights and run.json
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("earlier", "after"),
    [
        (earlier, after)
        for earlier in ("nothing", "an empty folder", "the same scenario", "another scenario")
        for after in range(5 if earlier == "the same scenario" else 6)  # its scenario.yaml stays
    ],
)
def test_a_full_disk_leaves_nothing_half_written(
    earlier: str, after: int, vflsim: Callable[..., Ended], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("small.yaml", SCENARIO)
    if earlier == "an empty folder":
        Path("deep/results").mkdir(parents=True)
    elif earlier != "nothing":
        assert vflsim("run", "small.yaml", "--out", "deep/results").status == 0
    if earlier == "another scenario":
        place("small.yaml", SCENARIO.replace("rounds: 3", "rounds: 2"))
    before = tree()
    monkeypatch.setattr("vflsim.results.store.write.os.fsync", full_disk(after))

    ended = vflsim("run", "small.yaml", "--out", "deep/results")

    one_message(ended, "No space left on device", "deep/results", "free some space")
    assert tree() == before


def test_runs_written_before_the_disk_was_full_are_kept(
    vflsim: Callable[..., Ended], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("small.yaml", SCENARIO)
    monkeypatch.setattr("vflsim.results.store.write.os.fsync", full_disk(1 + 5 + 1 + 2))
    one_message(vflsim("run", "small.yaml"), "results/small/two/seed-0", "No space left")
    kept = {path.relative_to("results/small").as_posix() for path in Path("results/small").rglob("*") if path.is_file()}
    assert kept == {
        "scenario.yaml",
        "manifest.json",
        *(f"wait/seed-0/{path.name}" for path in (finished / "wait" / "seed-0").iterdir()),
    }


def test_pyarrow_meeting_a_full_disk_is_one_message(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    place("small.yaml", SCENARIO)
    before = tree()

    def write_table(table: pa.Table, file: Any, **_: Any) -> None:
        file.write(b"PAR1")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("vflsim.results.store.write.pq.write_table", write_table)
    one_message(vflsim("run", "small.yaml"), "results/small/wait/seed-0: cannot be written: No space left on device")
    assert tree() == before


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
def test_a_real_limit_on_file_sizes_is_one_message(tmp_path: Path) -> None:
    place("small.yaml", SCENARIO)
    before = tree()
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500)); sys.argv[0] = 'vflsim';"
        "from vflsim.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", limited, "run", "small.yaml"], capture_output=True, text=True)
    one_message(Ended(done.returncode, done.stdout, done.stderr), "results/small", "File too large")
    assert tree() == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_message(vflsim: Callable[..., Ended]) -> None:
    place("small.yaml", SCENARIO)
    Path("locked").mkdir(mode=0o500)
    one_message(
        vflsim("run", "small.yaml", "--out", "locked/results"), "locked/results: cannot be written", "permission"
    )
    assert list(Path("locked").iterdir()) == []


def test_a_refused_folder_is_one_message(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    place("small.yaml", SCENARIO)
    before = tree()

    def mkdir(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", mkdir)
    one_message(
        vflsim("run", "small.yaml"), "results/small: cannot be written: Permission denied", "change the permissions"
    )
    assert tree() == before
