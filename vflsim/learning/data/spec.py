"""The data section of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.data.raw import Align, Array, Encoding, Missing, nearest
from vflsim.streams import generator
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.expressions import Selection
from vflsim.vocabulary.quantities import Count, Fraction01, Index, Quantity

_BLOCK = 4096  # rows drawn at a time, so that no second matrix of the whole size comes to be


class FeatureNoise(Part):
    """N(0, sd²) on every feature of the selected clients, in training, validation and test rows.

    Features are scaled before (``data.scale``), so ``sd`` is in scaled units. ``data.split_seed`` seeds the noise, so
    all runs share it.

    Example: ``{select: 1..N/2, sd: 2, replace: true}``
    """

    select: Selection
    sd: Annotated[float, Quantity(at_least=0, at_most=1e6)]
    """Standard deviation of the noise."""
    replace: bool = False
    """true: the noise takes the place of the features. false: it is added to them."""

    def put_on(self, joint: Array, columns: Mapping[int, slice], split: str, seed: int) -> None:
        """Make the features of some clients noisy, in place.

        ``joint`` holds the rows of ``split``, (rows, columns), and ``columns`` are each noisy client's. A draw is a
        function of (seed, client, split) and of its place among the client's features.
        """
        for client, window in columns.items():
            stream = generator(seed, client, f"feature_noise.{split}")
            for start in range(0, len(joint), _BLOCK):
                block = joint[start : start + _BLOCK, window]
                noise = self.sd * stream.standard_normal(block.shape)
                block[...] = noise if self.replace else block + noise


Scale = Literal["standard", "minmax", "pooled", "none"]
TaskName = Literal["multiclass", "binary", "regression"]

DEFAULT_TEST_FRACTION = 0.2


class Data(Part):
    """Which data, how they are split, scaled and labelled.

    Exactly one of ``name``, ``file`` and ``parties`` says where they come from. Relative paths are relative to the
    scenario's folder.

    Examples: ``{name: fashion_mnist, validation_fraction: 0.1, split_seed: 3, scale: pooled, train_rows: 5000}``,
    ``{file: loans.csv, label: repaid, group: person, drop: [comment], task: binary, test_fraction: 0.25, split:
    auto}``, ``{parties: [bank.csv, shop.csv], labels: labels.csv, label: repaid, id: customer, align: inner,
    categorical: [town], encoding: one_hot, missing: mean, noise: {select: 2, sd: 1}}``, ``{file: loans.csv, label:
    repaid, split_column: part}``
    """

    name: str | None = None
    """A data set of the catalogue: digits, breast_cancer, mnist, fashion_mnist, emnist, credit, parkinson, handwritten,
    caltech7, criteo_sample."""
    file: str | None = None
    """A CSV, Parquet or NPZ file with all features and the label. A CSV's fields may be separated by commas,
    semicolons, tabs or bars."""
    parties: tuple[str, ...] | None = Field(default=None, min_length=1)
    """One CSV, Parquet or NPZ file per client, in client order; rows are aligned by ``id``."""
    align: Align = "inner"
    """With ``parties``, whose files need not hold the same ids. inner: only rows that all files hold, ``labels``
    included. outer: every labelled row that some party holds; where a party lacks it, its embedding is missing. exact:
    refuse files that differ. The counts are printed and kept in run.json."""
    label: str | None = None
    """Column (or NPZ array) of the label. Classes are what is written there: 01 is not 1. With ``parties``, it stands
    in one of the files or in ``labels``."""
    labels: str | None = None
    """With ``parties``: a separate file with the id, the label and, where there is one, the group."""
    id: str | None = None
    """Column of the sample id, unique in each file. It is no feature. Demanded by ``parties``."""
    group: str | None = None
    """Column whose equal values mark rows that belong together (a person): no group stands in two splits."""
    drop: tuple[str, ...] = ()
    """Feature columns to leave out."""
    categorical: tuple[str, ...] = ()
    """Feature columns of CSV or Parquet files whose values, text or numbers, are names of categories, as they are
    written: 01 is not 1, and NA is a category. An empty cell is one, too. The training rows make the vocabulary;
    categories without training rows count as none of it."""
    encoding: Encoding = "codes"
    """Of categorical columns. codes: models with a vector for each category read their numbers, all others get a 0/1
    column for each. one_hot: the features themselves are these columns, for every model and every protocol."""
    missing: Missing | None = None
    """What fills empty cells (and NaN) of feature columns of numbers, before scaling; left out, they are an error.
    mean: that of the party's training rows. zero: 0. indicator: the mean, and a 0/1 column more for each column with
    gaps in the training rows."""
    test_fraction: Fraction01 | None = None
    """Share of the rows for testing; 0.2 if left out. Forbidden with an official test split."""
    validation_fraction: Fraction01 = 0.0
    """Share for validation, of the same rows; of the official training rows where the test split is official."""
    split: Literal["auto", "random"] = "auto"
    """auto: the official test rows where there are any, else whole groups, else rows. random: rows, ignoring both.
    Every random split is stratified by class."""
    split_column: str | None = None
    """Column of train, validation or test, which gives every row its split. It is no feature. With ``parties``, it
    stands in one of the files or in ``labels``. Forbidden with everything else that decides the split."""
    split_seed: Index = 0
    """Seed of the split, apart from the runs' seeds: all runs share one split."""
    scale: Scale = "standard"
    """standard: (x - mean) / standard deviation. minmax: to [0, 1]. Fitted on each party's own training rows.
    Per feature for tables; for images, one pair of numbers for all of a party's pixels. pooled: standard, with one pair
    of numbers for the pixels of all parties, as where images are scaled before they are cut."""
    task: Literal["auto"] | TaskName = "auto"
    """auto: that of the catalogue; for files, two distinct labels (of any type) are binary, otherwise floats are
    regression, and text and whole numbers are multiclass: up to 100 classes, of numbers each with at least two rows.
    Text counts as numbers where all of it is. Whatever else could be classes or amounts is refused. Classes are
    numbered in sorted order, that of their numbers if they are some; with ``binary``, the
    second of the two labels is the positive one."""
    train_rows: Count | None = None
    """Use only this many of the training rows, drawn by ``split_seed`` and stratified: for quick variants."""
    noise: FeatureNoise | None = None
    """Gaussian noise on the features of some clients."""

    @model_validator(mode="after")
    def _consistent(self) -> Data:
        origins = [key for key in ("name", "file", "parties") if getattr(self, key) is not None]
        if len(origins) != 1:
            raise ValueError(f"say exactly one of name, file and parties, not {' and '.join(origins) or 'none'}")
        if self.parties is None and "align" in self.model_fields_set:
            raise ValueError("align belongs to parties, whose files may hold different ids")
        {"name": self._check_name, "file": self._check_file, "parties": self._check_parties}[origins[0]]()
        if self.align == "outer" and self.scale == "pooled":
            raise ValueError("scale: pooled needs parties with the same rows; with align: outer, choose another scale")
        columns = [*self.no_features]
        if len(set(columns)) != len(columns):
            raise ValueError("label, id, group and split_column must be different columns")
        used = sorted(set(columns) & set(self.drop))
        if used:
            raise ValueError(f"drop: {used[0]!r} is needed as label, id, group or split_column")
        for key in ("drop", "categorical"):
            if len(set(getattr(self, key))) != len(getattr(self, key)):
                raise ValueError(f"{key} names a column twice")
        if both := sorted({*columns, *self.drop} & {*self.categorical}):
            raise ValueError(
                f"categorical: {both[0]!r} is no feature: it is label, id, group or split_column, or left out"
            )
        if self.split == "random" and self.group is not None:
            raise ValueError("split: random ignores groups; leave out either `split` or `group`")
        self._check_fractions()
        return self

    @property
    def no_features(self) -> tuple[str, ...]:
        """The columns of files that are no features: of the label, the id, the group and the split, where given."""
        return tuple(name for name in (self.label, self.id, self.group, self.split_column) if name is not None)

    def _check_name(self) -> None:
        if self.name not in CATALOGUE:
            raise ValueError(f"unknown data set {self.name!r}; {nearest(str(self.name), CATALOGUE)}")
        files = ("label", "labels", "id", "group", "categorical", "missing", "split_column")
        keys = [key for key in files if getattr(self, key)]
        if keys:
            raise ValueError(f"{keys[0]} belongs to data from files: {self.name} knows its own")
        if CATALOGUE[self.name].official_test and self.split == "auto" and self.test_fraction is not None:
            raise ValueError(
                f"test_fraction: {self.name} has an official test split; leave test_fraction out or say split: random"
            )

    def _check_file(self) -> None:
        if self.label is None:
            raise ValueError("file needs label: the column that holds it")
        if self.labels is not None:
            raise ValueError("labels (a separate file) belongs to parties; with file, say label")

    def _check_parties(self) -> None:
        if self.id is None or self.label is None:
            raise ValueError("parties need id and label: the columns that hold them")
        files = [*(self.parties or ()), *([self.labels] if self.labels else [])]
        if len(set(files)) != len(files):
            raise ValueError("parties and labels name a file twice")

    def _check_fractions(self) -> None:
        others = ("test_fraction", "validation_fraction", "split", "split_seed", "train_rows", "group")
        if self.split_column is not None and (keys := sorted({*others} & self.model_fields_set)):
            raise ValueError(f"split_column gives every row its split; leave out {keys[0]}")
        test = 0.0 if self.test_fraction is None else self.test_fraction
        if self.test_fraction is not None and not 0 < test < 1:
            raise ValueError(f"test_fraction must lie between 0 and 1, exclusively, not {test:g}")
        if test + self.validation_fraction >= 1:
            raise ValueError("test_fraction + validation_fraction must be below 1: no rows are left to train on")
