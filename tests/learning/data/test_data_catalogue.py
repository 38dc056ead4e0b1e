"""Finding, verifying and fetching the catalogue's files; a server on this machine stands in for the internet."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, data_get, data_list, files, load
from vflsim.learning.data.catalogue import CATALOGUE

CONTENT = "ID,X1,X2,Y\n" + "\n".join(f"{k},{k % 7},{k % 5},{k % 2}" for k in range(40)) + "\n"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "credit.csv").write_text(CONTENT)
    handler = partial(_Quiet, directory=str(tmp_path / "remote"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(files.VARIABLE, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def credit(server: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The credit data set, its file small and at our server, after a source that does not answer."""
    checksum = hashlib.sha256(CONTENT.encode()).hexdigest()
    urls = (f"{server}/gone.csv", f"{server}/credit.csv")
    file = replace(CATALOGUE["credit"].files[0], sha256=checksum, urls=urls)
    monkeypatch.setitem(CATALOGUE, "credit", replace(CATALOGUE["credit"], files=(file,)))
    return file.name


def _where(name: str) -> str:
    return next(row.where for row in data_list() if row.name == name)


@pytest.mark.parametrize("progress", [False, True])
def test_what_was_fetched_is_found_and_loaded(credit, cache, progress):
    assert _where("credit") == "absent"
    assert data_get("credit", progress=progress) == [cache / "credit" / credit]
    assert _where("credit") == str(cache / "credit")
    loaded = load(Data(name="credit"), Partition(clients=2))
    assert [party.feature_names for party in loaded.parties] == [("X1",), ("X2",)]


def test_what_is_there_is_not_fetched_again(credit, cache, monkeypatch):
    data_get("credit")
    broken = replace(CATALOGUE["credit"].files[0], urls=())
    monkeypatch.setitem(CATALOGUE, "credit", replace(CATALOGUE["credit"], files=(broken,)))
    assert data_get("credit") == [cache / "credit" / credit]


def test_a_folder_may_be_chosen_and_named_in_the_environment(credit, tmp_path, monkeypatch):
    data_get("credit", tmp_path / "mine")
    assert _where("credit") == "absent"
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "mine"))
    assert _where("credit") == str(tmp_path / "mine" / "credit")


def test_bytes_with_another_checksum_are_not_kept(credit, cache, server, tmp_path):
    (tmp_path / "remote" / "credit.csv").write_text(CONTENT + "1,2,3,0\n")
    with pytest.raises(DataError, match="could not be fetched") as caught:
        data_get("credit")
    assert "gone.csv" in str(caught.value)
    assert "404" in str(caught.value)
    assert "hash" in str(caught.value)
    assert caught.value.exit_code == 2
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_written_is_an_error(credit, tmp_path):
    (tmp_path / "blocked").write_text("a file, not a folder")
    with pytest.raises(DataError, match="could not be fetched"):
        data_get("credit", tmp_path / "blocked")


def test_an_unknown_name_lists_near_matches(cache):
    with pytest.raises(DataError, match="unknown data set 'credits'") as caught:
        data_get("credits")
    assert caught.value.allowed.startswith("near matches: 'credit'")


def test_embedded_sets_need_no_files(cache):
    assert data_get("digits") == []
    assert _where("digits") == "embedded"


def test_an_absent_file_says_how_to_get_it_and_is_not_fetched(credit, cache, monkeypatch, tmp_path):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "named"))
    with pytest.raises(DataError, match=f"data set credit: the file {credit} is not there") as caught:
        load(Data(name="credit"), Partition(clients=2))
    assert str(tmp_path / "named" / "credit") in caught.value.allowed
    assert "vflsim data get credit" in caught.value.remedy
    assert not cache.exists()


def test_a_wrong_checksum_is_found_before_reading_even_if_the_file_changes_later(credit, cache):
    (path,) = data_get("credit")
    load(Data(name="credit"), Partition(clients=2))
    path.write_text(CONTENT.replace("1", "99"))
    with pytest.raises(DataError, match="has the wrong checksum: sha256") as caught:
        load(Data(name="credit"), Partition(clients=2))
    assert str(path) in str(caught.value)
    with pytest.raises(DataError, match="wrong checksum"):
        data_get("credit")


def test_every_entry_says_what_it_is_where_it_comes_from_and_what_it_hashes_to():
    for entry in CATALOGUE.values():
        assert entry.rows > 0
        assert entry.features > 0
        assert entry.classes > 1
        assert entry.source
        assert entry.licence
        for file in entry.files:
            assert entry.folder
            assert (len(file.sha256) == 64 and file.urls) if not file.by_hand else not (file.sha256 or file.urls)
            assert all(url.startswith(("https://", "http://")) for url in file.urls)


def _caltech(folder: Path, rows: int = 14, classes: int = 7) -> Path:
    """A file as those that circulate: a cell array X of six matrices, and y, whose classes count from 1."""
    cells = np.empty((1, 6), dtype=object)
    cells[0, :] = [np.full((rows, width), width / 7) for width in (48, 40, 254, 1984, 512, 928)]
    (folder / "caltech7").mkdir(parents=True)
    path = folder / "caltech7" / "Caltech101-7.mat"
    scipy.io.savemat(path, {"X": cells, "y": np.arange(rows)[:, None] % classes + 1})
    return path


def test_a_file_without_an_address_says_where_to_look_for_it(cache):
    for fetch in (lambda: data_get("caltech7"), lambda: load(Data(name="caltech7"), Partition())):
        with pytest.raises(DataError, match=r"Caltech101-7\.mat") as caught:
            fetch()
        assert "by hand (https://github.com/yeqinglee/mvdata" in caught.value.remedy
    assert not cache.exists()


def test_a_file_put_there_by_hand_is_read(cache, monkeypatch):
    _caltech(cache)
    monkeypatch.setitem(CATALOGUE, "caltech7", replace(CATALOGUE["caltech7"], rows=14))
    loaded = load(Data(name="caltech7", test_fraction=0.5), Partition())
    assert [party.source for party in loaded.parties] == ["gabor", "wavelet", "centrist", "hog", "gist", "lbp"]
    assert (loaded.features, loaded.classes, loaded.class_names[0]) == (3766, 7, "1")
    assert data_get("caltech7") == [cache / "caltech7" / "Caltech101-7.mat"]


def test_a_file_without_a_checksum_is_told_by_what_it_holds(cache):
    _caltech(cache, rows=1400, classes=5)
    with pytest.raises(DataError, match="holds 1400 rows, 6 views, 3766 features and 5 classes") as caught:
        load(Data(name="caltech7"), Partition())
    assert caught.value.allowed == "1474 rows, 6 views, 3766 features and 7 classes"


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_tells_the_truth_about_what_is_on_this_machine(name):
    if _where(name) == "absent":
        pytest.skip(f"{name} not found: set {files.VARIABLE}")
    entry = CATALOGUE[name]
    raw = files.read_entry(entry)
    assert raw.rows == entry.rows
    assert sum(view.width for view in raw.views) == entry.features
    assert len(raw.views) == entry.views
    assert len(set(raw.target.tolist())) == entry.classes
    assert (raw.official_test is not None) == entry.official_test
