import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.learning.data.labels import encode


@pytest.mark.parametrize(
    ("labels", "task", "names"),
    [
        ([0, 1, 1], "binary", ("0", "1")),
        ([0.0, 1.0, 1.0], "binary", ("0", "1")),
        ([True, False, True], "binary", ("0", "1")),
        ([1, 2, 2], "binary", ("1", "2")),
        ([-1, 1, 1], "binary", ("-1", "1")),
        ([2.0, 1.0], "binary", ("1", "2")),
        ([0.5, 1.0], "binary", ("0.5", "1.0")),
        (["yes", "no"], "binary", ("no", "yes")),
        ([3, 5, 9, 5, 3, 9], "multiclass", ("3", "5", "9")),
        (["a", "b", "c"], "multiclass", ("a", "b", "c")),
        ([0.5, 1.0, 2.0], "regression", ()),
        ([1.0, 2.0, 3.0], "regression", ()),
    ],
)
def test_auto_finds_the_task_from_the_labels(labels, task, names):
    target = encode(np.array(labels), "auto", "file")
    assert (target.task, target.class_names) == (task, names)


def test_classes_are_numbered_in_sorted_order():
    target = encode(np.array(["cat", "ant", "bee", "ant"]), "auto", "file")
    assert target.values.tolist() == [2, 0, 1, 0]
    assert target.values.dtype == np.int64


@pytest.mark.parametrize("labels", [["yes", "no", "yes"], [2, 1, 2], [0.5, -3.0, 0.5], [True, False, True]])
@pytest.mark.parametrize("task", ["auto", "binary"])
def test_the_second_of_two_sorted_labels_is_the_positive_one(labels, task):
    target = encode(np.array(labels), task, "file")
    assert (target.task, target.values.tolist(), target.guessed) == ("binary", [1, 0, 1], task == "auto")


def test_with_binary_the_greater_label_is_the_positive_one():
    assert encode(np.array(["sick", "healthy"]), "binary", "file").values.tolist() == [1, 0]
    assert encode(np.array([2.0, 1.0, 2.0]), "binary", "file").values.tolist() == [1, 0, 1]


def test_whole_floats_can_be_classes_when_said_so():
    target = encode(np.array([1.0, 3.0]), "multiclass", "file")
    assert (target.values.tolist(), target.class_names) == ([0, 1], ("1", "3"))


def test_integers_can_be_amounts_when_said_so():
    target = encode(np.arange(500), "regression", "file")
    assert target.values.dtype == np.float64
    assert target.values[499] == 499


@pytest.mark.parametrize(
    ("labels", "task", "message"),
    [
        ([4, 4, 4], "auto", "all 3 rows have the same label, 4"),
        ([1.0, np.nan], "auto", "row 2 is nan"),
        ([np.inf, 1.0], "regression", "row 1 is inf"),
        (["a", "b"], "regression", "labels are text, such as 'a'"),
        ([0, 1, 2], "binary", "there are 3 different labels"),
        ([0.5, 1.0], "multiclass", "a label is 0.5"),
        (list(range(101)) * 2, "auto", "101 different whole numbers could be classes or amounts"),
        ([20, 21, 21, 35, 35], "auto", r"3 different whole numbers .* \(1 of them stands in a single row\)"),
        ([20, 21, 21, 35, 36], "auto", r"3 of them stand in a single row.*\n.*at least two rows\n.*task: regression"),
        ([f"word {i}" for i in range(101)], "auto", "101 different texts are many classes"),
        ([b"x", b"y"], "auto", "labels are of type"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, task, message):
    with pytest.raises(DataError, match=message) as caught:
        encode(np.array(labels), task, "people.csv, column 'y'")
    assert str(caught.value).startswith("people.csv, column 'y'")
    assert caught.value.exit_code == 2
