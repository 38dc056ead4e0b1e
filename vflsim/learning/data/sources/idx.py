"""IDX files, gzipped or plain: the format of MNIST and Fashion-MNIST (https://yann.lecun.org/exdb/mnist/)."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.learning.data.sources.raw import RawData, View

_UNSIGNED_BYTE = 0x08
_DAMAGED = "delete the file and fetch it again, or put an intact copy in its place"


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes with this many dimensions.

    At most one byte more than the header announces is read, so a damaged file cannot unpack into all memory.
    Raises DataError when the file is unreadable, truncated, longer than announced, or of another type or dimension.
    """
    try:
        with cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
            header = file.read(4 + 4 * dimensions)
            shape = _shape(header, dimensions, path)
            announced = math.prod(shape)
            data = file.read(announced + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", str(path), "an intact IDX file", _DAMAGED) from error
    if len(data) != announced:
        found = f"only {len(data)} bytes" if len(data) < announced else "more bytes"
        what = f"holds {found} of data where its header announces {announced} (shape {shape})"
        raise DataError(what, str(path), "as many bytes as announced", _DAMAGED)
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def _shape(header: bytes, dimensions: int, path: Path) -> tuple[int, ...]:
    if len(header) < 4 + 4 * dimensions:
        what = f"ends within its header ({len(header)} bytes)"
        raise DataError(what, str(path), f"an IDX header of {4 + 4 * dimensions} bytes", _DAMAGED)
    wanted = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if header[:4] != wanted:
        what = f"starts with the magic number 0x{header[:4].hex()}"
        allowed = f"0x{wanted.hex()} (unsigned bytes, {dimensions} dimension{'s' * (dimensions > 1)})"
        raise DataError(what, str(path), allowed, "check that this is the right file, uncompressed or ending in .gz")
    return struct.unpack(f">{dimensions}I", header[4:])


def images_and_labels(images: Path, labels: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a pair of IDX files: images (rows, height, width) and labels (rows,). DataError if the counts differ."""
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(classes):
        what = f"holds {len(pixels)} images, but {labels.name} holds {len(classes)} labels"
        raise DataError(what, str(images), "one label per image", "use the two files of the same data set and split")
    return pixels, classes


def read_official_split(files: Sequence[Path]) -> RawData:
    """Read (train images, train labels, test images, test labels); the test rows follow the training rows."""
    train, train_labels = images_and_labels(files[0], files[1])
    test, test_labels = images_and_labels(files[2], files[3])
    if train.shape[1:] != test.shape[1:]:
        what = f"holds images of {test.shape[1:]} pixels, the training file of {train.shape[1:]}"
        raise DataError(what, str(files[2]), "images of one size", "use the files of one data set")
    pixels = np.concatenate([train, test])[:, np.newaxis]
    target = np.concatenate([train_labels, test_labels])
    return RawData(str(files[1]), (View("images", pixels, pixels=True),), target, official_test=len(train))
