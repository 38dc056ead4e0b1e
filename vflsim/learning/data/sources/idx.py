"""IDX files, gzipped or plain: the format of MNIST, Fashion-MNIST and EMNIST (https://yann.lecun.org/exdb/mnist/)."""

import gzip
import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.files import must_fit, opened
from vflsim.learning.data.sources.raw import RawData, View

_UNSIGNED_BYTE = 0x08
_DAMAGED = "delete the file and fetch it again, or put an intact copy in its place"


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes with this many dimensions.

    At most one byte more than the header announces is read, so a damaged file cannot unpack into all memory.
    Raises DataError when the file is unreadable, truncated, longer than announced, or of another type or dimension.
    """
    try:
        with opened(path) as file:
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb")) if path.suffix == ".gz" else file
            return _unpacked(stream, dimensions, str(path))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", str(path), "an intact IDX file", _DAMAGED) from error


def _unpacked(file: BinaryIO, dimensions: int, where: str) -> NDArray[np.uint8]:
    shape = _shape(file.read(4 + 4 * dimensions), dimensions, where)
    announced = math.prod(shape)
    must_fit(announced, f"what its header announces (shape {shape})")
    data = file.read(announced + 1)
    if len(data) != announced:
        amount = f"only {len(data)} bytes" if len(data) < announced else "more bytes"
        what = f"holds {amount} of data where its header announces {announced} (shape {shape})"
        raise DataError(what, where, "as many bytes as announced", _DAMAGED)
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _shape(header: bytes, dimensions: int, where: str) -> tuple[int, ...]:
    if len(header) < 4 + 4 * dimensions:
        what = f"ends within its header ({len(header)} bytes)"
        raise DataError(what, where, f"an IDX header of {4 + 4 * dimensions} bytes", _DAMAGED)
    magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if header[:4] != magic:
        what = f"starts with the magic number 0x{header[:4].hex()}"
        allowed = f"0x{magic.hex()} (unsigned bytes, {dimensions} dimension{'s' * (dimensions > 1)})"
        raise DataError(what, where, allowed, "check that this is the right file, uncompressed or ending in .gz")
    return struct.unpack(f">{dimensions}I", header[4:])


def images_and_labels(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a pair of IDX files: images (rows, height, width) and labels (rows,). DataError if the counts differ."""
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    _check_pair(pixels, classes, str(images), labels.name)
    return pixels, classes


def read_official_split(files: Sequence[Path]) -> RawData:
    """Read (train images, train labels, test images, test labels); the test rows follow the training rows."""
    train, test = images_and_labels(files[0], files[1]), images_and_labels(files[2], files[3])
    return _joined(train, test, str(files[1]), str(files[2]))


def read_emnist_balanced(files: Sequence[Path]) -> RawData:
    """Read the balanced split of EMNIST, 47 classes, from NIST's archive ``gzip.zip`` (Cohen et al. 2017).

    The archive holds its images transposed (columns first); they are put upright, so that a row of pixels is a row.
    Raises DataError when the archive or one of its four files is absent, damaged or not what its header says.
    """
    (archive,) = files
    try:
        with opened(archive) as file, zipfile.ZipFile(file) as there:
            train, test = (_members(there, archive, split) for split in ("train", "test"))
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", str(archive), "NIST's archive of EMNIST", _DAMAGED) from error
    return _joined(train, test, f"{archive}: train labels", f"{archive}: test images")


def _members(archive: zipfile.ZipFile, path: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images, upright, and labels of one split of EMNIST's archive."""
    read = []
    for what, dimensions in (("images-idx3", 3), ("labels-idx1", 1)):
        name = f"gzip/emnist-balanced-{split}-{what}-ubyte.gz"
        where = f"{path}: {name}"
        if name not in archive.namelist():
            raise DataError("is not in the archive", where, "NIST's archive of EMNIST, with all its files", _DAMAGED)
        with archive.open(name) as packed, gzip.open(packed) as file:
            read.append(_unpacked(cast(BinaryIO, file), dimensions, where))
    pixels, labels = read
    _check_pair(pixels, labels, f"{path}: {split} images", f"{split} labels")
    return pixels.transpose(0, 2, 1), labels


def _check_pair(pixels: NDArray[np.uint8], labels: NDArray[np.uint8], images: str, beside: str) -> None:
    if len(pixels) != len(labels):
        what = f"holds {len(pixels)} images, but {beside} holds {len(labels)} labels"
        raise DataError(what, images, "one label per image", "use the two files of the same data set and split")


def _joined(
    train: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    test: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    where: str,
    where_test: str,
) -> RawData:
    """Put the test rows after the training rows; ``where`` and ``where_test`` name the files for errors."""
    (pixels, labels), (test_pixels, test_labels) = train, test
    if pixels.shape[1:] != test_pixels.shape[1:]:
        what = f"holds images of {test_pixels.shape[1:]} pixels, the training file of {pixels.shape[1:]}"
        raise DataError(what, where_test, "images of one size", "use the files of one data set")
    values = np.concatenate([pixels, test_pixels])[:, np.newaxis]
    target = np.concatenate([labels, test_labels])
    return RawData(where, (View("images", values, pixels=True),), target, official_test=len(pixels))
