"""The data sets that can be named: what they are, where they come from, and what their files must hash to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vflsim.learning.data.catalogue_readers import (
    read_breast_cancer,
    read_caltech7,
    read_credit,
    read_criteo,
    read_digits,
    read_emnist_balanced,
    read_handwritten,
    read_official_split,
    read_parkinson,
)
from vflsim.learning.data.raw import RawData


@dataclass(frozen=True)
class RemoteFile:
    """A file, the places it can be fetched from (tried in order), and the SHA-256 of its bytes.

    Some files have no lasting address and no known checksum: ``by_hand`` then says where people find them, and what
    was read is compared with the catalogue instead.
    """

    name: str
    sha256: str = ""
    urls: tuple[str, ...] = ()
    by_hand: str = ""


@dataclass(frozen=True)
class CatalogueEntry:
    """One data set. ``folder`` is its sub-folder below $VFLSIM_DATA; embedded sets have neither folder nor files."""

    name: str
    rows: int
    features: int
    classes: int
    task: Literal["multiclass", "binary"]
    source: str
    licence: str
    read: Callable[[Sequence[Path]], RawData]
    folder: str = ""
    files: tuple[RemoteFile, ...] = ()
    views: int = 1
    official_test: bool = False


def _idx(checksums: Sequence[str], *folders: str) -> tuple[RemoteFile, ...]:
    names = [f"{split}-{what}-ubyte.gz" for split in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
    pairs = zip(names, checksums, strict=True)
    return tuple(RemoteFile(name, sha256, tuple(f"{folder}/{name}" for folder in folders)) for name, sha256 in pairs)


_ENTRIES = (
    CatalogueEntry(
        name="digits",
        rows=1797,
        features=64,
        classes=10,
        task="multiclass",
        source="UCI optical recognition of handwritten digits, test part; comes with scikit-learn",
        licence="CC BY 4.0",
        read=read_digits,
    ),
    CatalogueEntry(
        name="breast_cancer",
        rows=569,
        features=30,
        classes=2,
        task="binary",
        source="UCI breast cancer Wisconsin (diagnostic); comes with scikit-learn",
        licence="CC BY 4.0",
        read=read_breast_cancer,
    ),
    CatalogueEntry(
        name="mnist",
        rows=70_000,
        features=784,
        classes=10,
        task="multiclass",
        source="LeCun, Cortes & Burges, http://yann.lecun.com/exdb/mnist",
        licence="CC BY-SA 3.0",
        read=read_official_split,
        folder="mnist",
        files=_idx(
            (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        official_test=True,
    ),
    CatalogueEntry(
        name="fashion_mnist",
        rows=70_000,
        features=784,
        classes=10,
        task="multiclass",
        source="Xiao, Rasul & Vollgraf, https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        read=read_official_split,
        folder="fashion-mnist",
        files=_idx(
            (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ),
        official_test=True,
    ),
    CatalogueEntry(
        name="emnist",
        rows=131_600,
        features=784,
        classes=47,
        task="multiclass",
        source="EMNIST (Cohen et al. 2017), balanced, https://www.nist.gov/itl/products-and-services/emnist-dataset",
        licence="not stated; made from NIST special database 19",
        read=read_emnist_balanced,
        folder="emnist",
        files=(
            RemoteFile(
                "gzip.zip",
                "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
                (
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
                ),
            ),
        ),
        official_test=True,
    ),
    CatalogueEntry(
        name="credit",
        rows=30_000,
        features=23,
        classes=2,
        task="binary",
        source="UCI default of credit card clients (Yeh & Lien 2009), https://archive.ics.uci.edu/dataset/350",
        licence="CC BY 4.0",
        read=read_credit,
        folder="credit",
        files=(
            RemoteFile(
                "UCI_Credit_Card.csv",
                "023eb2c3ad9efd15e7869616fa50a0143f25223105c7069ba632431530afdb61",
                (
                    "https://raw.githubusercontent.com/fju155447/uci/"
                    "84670e783ab9fd2459b7096d82965f28dafb66b2/UCI_Credit_Card.csv",
                ),
            ),
        ),
    ),
    CatalogueEntry(
        name="parkinson",
        rows=756,
        features=753,
        classes=2,
        task="binary",
        source="UCI Parkinson's disease classification (Sakar et al. 2019), https://archive.ics.uci.edu/dataset/470",
        licence="CC BY 4.0",
        read=read_parkinson,
        folder="parkinson",
        files=(
            RemoteFile(
                "pd_speech_features.csv",
                "9495d1100beaa24005ea951d4b6588186091de4c21cc45009b027f38f699b8ab",
                (
                    "https://huggingface.co/datasets/wwydmanski/ParkinsonsDisease/resolve/main/"
                    "pd_speech_features.csv?download=true",
                ),
            ),
        ),
    ),
    CatalogueEntry(
        name="handwritten",
        rows=2000,
        features=649,
        classes=10,
        task="multiclass",
        source="UCI multiple features (Duin), six views, https://archive.ics.uci.edu/dataset/72",
        licence="CC BY 4.0",
        read=read_handwritten,
        folder="handwritten",
        files=(
            RemoteFile(
                "rcml_handwritten.mat",
                "8a9ad81f11c05fd7f07f1369bcbbaefc3d391bad10d3aa32366bd47d608eb05d",
                (
                    "https://raw.githubusercontent.com/jiajunsi/RCML/"
                    "2c7908e7364bfcc52618f7d08e6749f4cae52f1d/data/handwritten.mat",
                ),
            ),
        ),
        views=6,
    ),
    CatalogueEntry(
        name="caltech7",
        rows=1474,
        features=3766,
        classes=7,
        task="multiclass",
        source="seven classes of Caltech-101, six views (Li et al. 2015), https://github.com/yeqinglee/mvdata",
        licence="not stated; made from Caltech-101 (CC BY 4.0)",
        read=read_caltech7,
        folder="caltech7",
        files=(
            RemoteFile(
                "Caltech101-7.mat",
                by_hand="download Caltech101-7.mat by hand (https://github.com/yeqinglee/mvdata and "
                "https://github.com/ChuanbinZhang/Multi-view-datasets link to copies)",
            ),
        ),
        views=6,
    ),
    CatalogueEntry(
        name="criteo_sample",
        rows=200,
        features=39,
        classes=2,
        task="binary",
        source="200 rows of Criteo's display advertising challenge (2014), https://github.com/shenweichen/DeepCTR",
        licence="Apache-2.0",
        read=read_criteo,
        folder="criteo_sample",
        files=(
            RemoteFile(
                "criteo_sample.txt",
                "08b84f12a22438fb534e989a5e4fa245726b2bda001983556bc2aea2f094f724",
                ("https://raw.githubusercontent.com/shenweichen/DeepCTR/master/examples/criteo_sample.txt",),
            ),
        ),
    ),
)

CATALOGUE: dict[str, CatalogueEntry] = {entry.name: entry for entry in _ENTRIES}
