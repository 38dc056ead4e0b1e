import gzip
from pathlib import Path

import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.learning.data.sources.idx import images_and_labels, read_idx, read_official_split

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
