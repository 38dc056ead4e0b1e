import pytest
from pydantic import ValidationError

from vflsim.learning.data import Data

PARTIES = {"parties": ["a.csv", "b.csv"], "id": "i", "label": "y"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "exactly one of name, file and parties, not none"),
        ({"name": "digits", "file": "a.csv"}, "not name and file"),
        ({"name": "digit"}, "unknown data set 'digit'; near matches: 'digits'"),
        ({"name": "digits", "label": "y"}, "label belongs to data from files"),
        ({"name": "parkinson", "group": "id"}, "group belongs to data from files"),
        ({"name": "mnist", "test_fraction": 0.2}, "mnist has an official test split"),
        ({"file": "a.csv"}, "file needs label"),
        ({"file": "a.csv", "label": "y", "labels": "b.csv"}, "belongs to parties"),
        ({"parties": ["a.csv"], "label": "y"}, "parties need id and label"),
        ({**PARTIES, "parties": []}, "at least 1 item"),
        ({**PARTIES, "parties": ["a.csv", "a.csv"]}, "name a file twice"),
        ({**PARTIES, "labels": "a.csv"}, "name a file twice"),
        ({**PARTIES, "label": "i"}, "must be different columns"),
        ({**PARTIES, "drop": ["y"]}, "'y' is needed"),
        ({**PARTIES, "drop": ["u", "u"]}, "drop names a column twice"),
        ({**PARTIES, "categorical": ["u", "u"]}, "categorical names a column twice"),
        ({**PARTIES, "categorical": ["y"]}, "'y' is no feature"),
        ({**PARTIES, "categorical": ["u"], "drop": ["u"]}, "'u' is no feature"),
        ({"name": "digits", "categorical": ["u"]}, "categorical belongs to data from files"),
        ({**PARTIES, "group": "g", "split": "random"}, "ignores groups"),
        ({**PARTIES, "split_column": "y"}, "must be different columns"),
        ({**PARTIES, "split_column": "s", "drop": ["s"]}, "'s' is needed"),
        ({**PARTIES, "split_column": "s", "test_fraction": 0.3}, "leave out test_fraction"),
        ({**PARTIES, "split_column": "s", "group": "g"}, "leave out group"),
        ({"name": "digits", "split_column": "s"}, "split_column belongs to data from files"),
        ({"name": "digits", "test_fraction": 0}, "must lie between 0 and 1"),
        ({"name": "digits", "test_fraction": 1}, "must lie between 0 and 1"),
        ({"name": "digits", "test_fraction": 0.5, "validation_fraction": 0.5}, "must be below 1"),
        ({"name": "digits", "test_fraction": 1.5}, "at most 1"),
        ({"name": "digits", "train_rows": 0}, "at least 1"),
        ({"name": "digits", "scale": "robust"}, "'standard', 'minmax', 'pooled' or 'none'"),
        ({"name": "digits", "split_seed": -1}, "at least 0"),
    ],
)
def test_sections_that_make_no_sense_are_refused(section, message):
    with pytest.raises(ValidationError, match=message):
        Data(**section)


@pytest.mark.parametrize(
    "section",
    [
        {"name": "digits", "test_fraction": 0.2},
        {"name": "mnist", "split": "random", "test_fraction": 0.3},
        {"name": "mnist", "validation_fraction": 0.1},
        {"file": "a.npz", "label": "y", "id": "i", "group": "g", "drop": ["u"]},
        {**PARTIES, "labels": "c.csv", "test_fraction": "1/4"},
    ],
)
def test_a_section_survives_being_written_and_read(section):
    data = Data(**section)
    assert Data.model_validate(data.model_dump(mode="json", exclude_defaults=True)) == data


def test_the_schema_documents_every_key():
    properties = Data.model_json_schema()["properties"]
    assert all(properties[key].get("description") for key in properties)
