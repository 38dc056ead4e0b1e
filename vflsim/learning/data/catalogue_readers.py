"""The readers of the catalogue's data sets, and IDX files, the format of MNIST (https://yann.lecun.org/exdb/mnist/)."""

import gzip
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.files import must_fit, opened
from vflsim.learning.data.arrays import read_views
from vflsim.learning.data.raw import RawData, View, numbers
from vflsim.learning.data.table import Table, read_table

_UNSIGNED_BYTE = 0x08
_Pair: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.uint8]]
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


def images_and_labels(images: Path, labels: Path) -> _Pair:
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


def _members(archive: zipfile.ZipFile, path: Path, split: str) -> _Pair:
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


def _joined(train: _Pair, test: _Pair, where: str, where_test: str) -> RawData:
    """Put the test rows after the training rows; ``where`` and ``where_test`` name the files for errors."""
    (pixels, labels), (test_pixels, test_labels) = train, test
    if pixels.shape[1:] != test_pixels.shape[1:]:
        what = f"holds images of {test_pixels.shape[1:]} pixels, the training file of {pixels.shape[1:]}"
        raise DataError(what, where_test, "images of one size", "use the files of one data set")
    values = np.concatenate([pixels, test_pixels])[:, np.newaxis]
    target = np.concatenate([labels, test_labels])
    return RawData(where, (View("images", values, pixels=True),), target, official_test=len(pixels))


def read_digits(_files: Sequence[Path]) -> RawData:
    """Read 1,797 handwritten digits of 8×8 pixels with values 0..16 (UCI, Alpaydin & Kaynak 1998)."""
    table = _digits()
    images = table[:, :-1].reshape(-1, 1, 8, 8).copy()
    return RawData("digits", (View("images", images, pixels=True),), table[:, -1].astype(int))


@cache
def _digits() -> NDArray[np.uint8]:
    """Parse the table of pixels and labels once: that takes longer than a short run."""
    # As load_digits does, without importing scikit-learn, which takes longer still.
    package = Path(getattr(find_spec("sklearn"), "origin", None) or "")
    table = np.loadtxt(package.with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    return table.astype(np.uint8)


def read_breast_cancer(_files: Sequence[Path]) -> RawData:
    """Read 569 rows of 30 cell-nucleus measurements; label 1 = benign (UCI, Wolberg et al. 1995)."""
    from sklearn.datasets import load_breast_cancer  # slow to import

    data = load_breast_cancer()
    names = tuple(str(name) for name in data.feature_names)
    return RawData("breast_cancer", (View("columns", data.data, names),), data.target)


def read_credit(files: Sequence[Path]) -> RawData:
    """Read 30,000 credit-card clients: features X1..X23, label Y = default payment (Yeh & Lien 2009)."""
    return _catalogued(read_table(files[0]), label="Y", group=None, leave_out=("ID",))


def read_parkinson(files: Sequence[Path]) -> RawData:
    """Read 756 recordings, three a person (groups = id; Sakar et al. 2019). The second line names the columns."""
    return _catalogued(read_table(files[0], skip_lines=1), label="class", group="id", leave_out=())


def read_criteo(files: Sequence[Path]) -> RawData:
    """Read clicks on advertisements (Criteo Labs 2014): numbers I1..I13 as log(1 + max(x, 0)), categories C1..C26.

    An empty number counts as 0, as in DeepCTR and DLRM; empty categories of a column are a category.
    """
    table, columns = read_table(files[0]), {}
    for name in table.names:
        column = table.columns.column(name)
        if name.startswith("I"):
            column = pc.log1p(pc.max_element_wise(pc.fill_null(column.cast(pa.float64()), 0.0), 0.0))
        columns[name] = column
    table = Table(table.path, pa.table(columns), table.place)
    return _catalogued(table, "label", None, (), [name for name in table.names if name.startswith("C")])


def _catalogued(
    table: Table, label: str, group: str | None, leave_out: tuple[str, ...], categorical: Sequence[str] = ()
) -> RawData:
    groups = table.column(group, "group") if group else None
    view = table.view("columns", [label, *leave_out, *([group] if group else [])], categorical)
    where = f"{table.path}, column {label!r}"
    return RawData(where, (view,), table.column(label, "label"), groups)


# The six feature sets of UCI's "multiple features", named as there and told apart by their width.
_HANDWRITTEN_VIEWS = {240: "pix", 76: "fou", 216: "fac", 47: "zer", 64: "kar", 6: "mor"}
# The six descriptors that the multi-view copies of Caltech-101 hold (Li, Nie, Huang & Huang, AAAI 2015).
_CALTECH_VIEWS = {48: "gabor", 40: "wavelet", 254: "centrist", 1984: "hog", 512: "gist", 928: "lbp"}


def read_handwritten(files: Sequence[Path]) -> RawData:
    """Read the six views of UCI's handwritten numerals, in the order of the file."""
    return _named(files, _HANDWRITTEN_VIEWS)


def read_caltech7(files: Sequence[Path]) -> RawData:
    """Read the six views of the seven commonest classes of Caltech-101, in the order of the file."""
    return _named(files, _CALTECH_VIEWS)


def _named(files: Sequence[Path], views_by_width: Mapping[int, str]) -> RawData:
    (path,) = files
    matrices, target = read_views(path)
    views = []
    for number, matrix in enumerate(matrices, start=1):
        name = views_by_width.get(matrix.shape[1], f"view{number}")
        names = tuple(f"{name}{column}" for column in range(matrix.shape[1]))
        views.append(View(name, numbers(matrix, f"{path}: view {number}", names), names))
    return RawData(str(path), tuple(views), target)
