import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.learning.data.catalogue_readers import (
    images_and_labels,
    read_emnist_balanced,
    read_idx,
    read_official_split,
)

PIXELS = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 4)


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_reads_back_what_was_written(write_idx, name):
    np.testing.assert_array_equal(read_idx(write_idx(name, PIXELS), 3), PIXELS)


def test_test_rows_follow_the_training_rows_and_keep_their_shape(write_idx):
    files = [
        write_idx("a.gz", PIXELS),
        write_idx("b.gz", np.array([0, 1, 2])),
        write_idx("c.gz", PIXELS[:2] + 100),
        write_idx("d.gz", np.array([2, 1])),
    ]
    raw = read_official_split(files)
    assert raw.official_test == 3
    assert raw.views[0].values.shape == (5, 1, 2, 4)
    np.testing.assert_array_equal(raw.views[0].values[3:, 0], PIXELS[:2] + 100)
    np.testing.assert_array_equal(raw.target, [0, 1, 2, 2, 1])


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_truncated_data_say_how_much_is_there(write_idx, name):
    with pytest.raises(DataError, match=r"images.*only 21 bytes of data where its header announces 24"):
        read_idx(write_idx(name, PIXELS, cut=3), 3)


def test_data_beyond_the_announced_are_refused(write_idx):
    path = write_idx("images", PIXELS)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataError, match="more bytes of data"):
        read_idx(path, 3)


def test_a_truncated_header_is_refused(write_idx):
    with pytest.raises(DataError, match=r"ends within its header \(10 bytes\)"):
        read_idx(write_idx("images", PIXELS, cut=30), 3)


def test_the_wrong_magic_number_is_shown_with_the_right_one(write_idx):
    with pytest.raises(DataError, match="0x00000d03") as caught:
        read_idx(write_idx("images", PIXELS, magic=bytes((0, 0, 0x0D, 3))), 3)
    assert "0x00000803" in str(caught.value)


def test_labels_are_no_images(write_idx):
    with pytest.raises(DataError, match="magic number 0x00000801"):
        read_idx(write_idx("labels", np.arange(20)), 3)


def test_a_truncated_gzip_stream_is_refused(write_idx):
    path = write_idx("images.gz", PIXELS)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"images\.gz: cannot be read"):
        read_idx(path, 3)


def test_garbage_instead_of_gzip_is_refused(tmp_path: Path):
    path = tmp_path / "images.gz"
    path.write_bytes(b"certainly not gzip")
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, 3)


def test_a_corrupt_gzip_body_is_refused(tmp_path: Path):
    data = bytearray(gzip.compress(np.random.default_rng(0).bytes(5000)))
    data[20:400] = bytes(380)
    path = tmp_path / "images.gz"
    path.write_bytes(data)
    with pytest.raises(DataError):
        read_idx(path, 3)


def test_images_and_labels_must_be_equally_many(write_idx):
    with pytest.raises(DataError, match=r"holds 3 images, but labels holds 2 labels"):
        images_and_labels(write_idx("images", PIXELS), write_idx("labels", np.array([0, 1])))


def test_test_images_must_have_the_size_of_the_training_images(write_idx):
    labels = write_idx("labels", np.array([0, 1, 2]))
    with pytest.raises(DataError, match=r"\(4, 2\) pixels"):
        read_official_split(
            [write_idx("a", PIXELS), labels, write_idx("c", PIXELS.reshape(3, 4, 2)), labels],
        )


@pytest.fixture
def emnist(write_idx, tmp_path: Path):
    """NIST's archive in small, with a file of another split beside the balanced ones; some may be left out."""

    def write(train_labels: int = 3, leave_out: str = "none") -> Path:
        files = {
            "balanced-train-images-idx3": PIXELS,
            "balanced-train-labels-idx1": np.arange(train_labels),
            "balanced-test-images-idx3": PIXELS[:2] + 100,
            "balanced-test-labels-idx1": np.array([46, 1]),
            "letters-train-labels-idx1": np.arange(9),
        }
        with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
            for name, values in files.items():
                if leave_out not in name:
                    file = f"emnist-{name}-ubyte.gz"
                    archive.write(write_idx(file, values), f"gzip/{file}")
        return tmp_path / "gzip.zip"

    return write


def test_the_balanced_split_of_emnist_is_read_from_the_archive_and_put_upright(emnist):
    raw = read_emnist_balanced([emnist()])
    assert raw.official_test == 3
    assert raw.views[0].values.shape == (5, 1, 4, 2)
    np.testing.assert_array_equal(raw.views[0].values[1, 0], PIXELS[1].T)
    np.testing.assert_array_equal(raw.views[0].values[4, 0], PIXELS[1].T + 100)
    np.testing.assert_array_equal(raw.target, [0, 1, 2, 46, 1])


def test_an_archive_without_the_balanced_split_says_what_it_lacks(emnist):
    with pytest.raises(DataError, match=r"gzip/emnist-balanced-test-labels-idx1-ubyte\.gz: is not in the archive"):
        read_emnist_balanced([emnist(leave_out="test-labels")])


def test_images_and_labels_of_an_archive_must_be_equally_many(emnist):
    with pytest.raises(DataError, match=r"train images: holds 3 images, but train labels holds 4 labels"):
        read_emnist_balanced([emnist(train_labels=4)])


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b.replace(b"\x1f\x8b", b"??")])
def test_a_damaged_archive_is_refused(emnist, damage):
    path = emnist()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"gzip\.zip: cannot be read"):
        read_emnist_balanced([path])
