import numpy as np
import pytest
from pydantic import ValidationError

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, clients_hint, load
from vflsim.learning.data.partition import cut
from vflsim.learning.data.raw import View

TABLE = View("columns", np.arange(20.0).reshape(2, 10), tuple("abcdefghij"))
IMAGES = View("images", np.arange(2 * 3 * 6 * 5).reshape(2, 3, 6, 5), pixels=True)


def _widths(views):
    return [view.width for view in views]


def test_columns_are_cut_contiguously_and_as_evenly_as_possible():
    views = cut(Partition(clients=3), [TABLE])
    assert [view.names for view in views] == [tuple("abcd"), tuple("efg"), tuple("hij")]
    np.testing.assert_array_equal(np.concatenate([view.values for view in views], axis=1), TABLE.values)


def test_cutting_copies_nothing():
    assert all(np.shares_memory(view.values, IMAGES.values) for view in cut(Partition(clients=4), [IMAGES]))
    by_rows = Partition(clients=4, by="image_rows")
    assert all(np.shares_memory(view.values, IMAGES.values) for view in cut(by_rows, [IMAGES]))


def test_columns_of_images_run_row_by_row_and_stay_pixels():
    views = cut(Partition(clients=2), [View("i", IMAGES.values[:, :1], pixels=True)])
    assert _widths(views) == [15, 15]
    assert views[0].names[4:6] == ("pixel_0_4", "pixel_1_0")
    assert all(view.pixels for view in views)


def test_image_rows_keep_channels_and_width():
    views = cut(Partition(clients=4, by="image_rows"), [IMAGES])
    assert [view.values.shape[1:] for view in views] == [(3, 2, 5), (3, 2, 5), (3, 1, 5), (3, 1, 5)]
    np.testing.assert_array_equal(np.concatenate([view.values for view in views], axis=2), IMAGES.values)
    assert views[1].names[0] == "channel_0_pixel_2_0"
    assert len(views[1].names) == views[1].width


def test_image_columns_keep_channels_and_height():
    views = cut(Partition(clients=3, by="image_columns"), [IMAGES])
    assert [view.values.shape[1:] for view in views] == [(3, 6, 2), (3, 6, 2), (3, 6, 1)]
    np.testing.assert_array_equal(np.concatenate([view.values for view in views], axis=3), IMAGES.values)
    assert views[1].names[:2] == ("channel_0_pixel_0_2", "channel_0_pixel_0_3")
    assert views[1].names[2] == "channel_0_pixel_1_2"


def test_shares_cut_columns_image_rows_and_image_columns_at_the_nearest_one():
    columns = cut(Partition(by="columns", shares=(0.14, 0.5, 0.36)), [TABLE])
    assert [view.names for view in columns] == [tuple("a"), tuple("bcdef"), tuple("ghij")]
    rows = cut(Partition(by="image_rows", shares=(0.2, 0.8)), [IMAGES])
    assert [view.values.shape[1:] for view in rows] == [(3, 1, 5), (3, 5, 5)]
    np.testing.assert_array_equal(np.concatenate([view.values for view in rows], axis=2), IMAGES.values)
    strips = cut(Partition(by="image_columns", shares=(0.35, 0.65)), [IMAGES])
    assert [view.values.shape[1:] for view in strips] == [(3, 6, 2), (3, 6, 3)]
    np.testing.assert_array_equal(np.concatenate([view.values for view in strips], axis=3), IMAGES.values)


def test_equal_shares_cut_as_a_number_of_clients_does():
    shared = Partition(by="columns", shares=(0.5, 0.25, 0.25), active=True)
    assert shared.parts == 3
    assert _widths(cut(Partition(by="columns", shares=(1 / 3,) * 3), [TABLE])) == [3, 4, 3]
    assert _widths(cut(Partition(by="columns", shares=(0.5, 0.5)), [TABLE])) == [5, 5]


def test_shares_may_be_formulas_of_constants():
    context = {"symbols": {"r": 0.3}}
    assert Partition.model_validate({"by": "columns", "shares": ["r", "1 - r"]}, context=context).shares == (0.3, 0.7)


@pytest.mark.parametrize(("clients", "grid"), [(1, (1, 1)), (4, (2, 2)), (6, (2, 3)), (5, (1, 5)), (30, (6, 5))])
def test_patches_form_a_grid_as_square_as_possible(clients, grid):
    if clients == 30:  # 5 down and 6 across do not fit into 5 columns of pixels
        with pytest.raises(DataError, match="30 clients do not tile images of 6×5 pixels"):
            cut(Partition(clients=30, by="patches"), [IMAGES])
        return
    views = cut(Partition(clients=clients, by="patches"), [IMAGES])
    rows = [np.concatenate([v.values for v in views[k : k + grid[1]]], axis=3) for k in range(0, clients, grid[1])]
    assert len(rows) == grid[0]
    np.testing.assert_array_equal(np.concatenate(rows, axis=2), IMAGES.values)


def test_views_are_the_default_where_there_are_several():
    views = cut(Partition(), [TABLE, IMAGES])
    assert [view.values.shape[1:] for view in views] == [(10,), (3, 6, 5)]


def test_columns_of_several_views_stand_side_by_side():
    assert _widths(cut(Partition(by="columns", clients=2), [TABLE, TABLE])) == [10, 10]


def test_explicit_takes_names_indices_and_ranges_of_both():
    partition = Partition(by="explicit", columns=(("j", 0), "b..d", ("4..5", "6")))
    assert [view.names for view in cut(partition, [TABLE])] == [("j", "a"), ("b", "c", "d"), ("e", "f", "g")]


def test_a_name_that_looks_like_a_range_or_an_index_is_a_name_first():
    table = View("t", np.zeros((2, 3)), ("0..1", "2", "x"))
    partition = Partition(by="explicit", columns=(("0..1",), ("2",)))
    assert [view.names for view in cut(partition, [table])] == [("0..1",), ("2",)]


@pytest.mark.parametrize(
    ("partition", "views", "message"),
    [
        ({"clients": 11}, [TABLE], r"partition\.clients: 11 clients cannot share 10 columns"),
        ({"clients": 7, "by": "image_rows"}, [IMAGES], "7 clients cannot share 6 rows of pixels"),
        ({"clients": 6, "by": "image_columns"}, [IMAGES], "6 clients cannot share 5 columns of pixels"),
        (
            {"by": "image_rows", "shares": [0.05, 0.95]},
            [IMAGES],
            r"partition\.shares: the share 0.05 of 6 rows of pixels is none",
        ),
        ({"by": "columns", "shares": [1 / 16] * 16}, [TABLE], "16 clients cannot share 10 columns"),
        ({"clients": 2, "by": "image_rows"}, [TABLE], "needs images, but the data are a table"),
        ({"clients": 2, "by": "patches"}, [TABLE], "needs images"),
        ({"by": "views"}, [TABLE], "the data have one view only"),
        ({"clients": 3, "by": "views"}, [TABLE, TABLE], "3 clients for 2 views"),
        ({}, [TABLE], "the number of clients is not said"),
        ({"by": "explicit", "columns": [["a"], ["b", "a"]]}, [TABLE], "client 2: feature 'a' belongs to client 1"),
        ({"by": "explicit", "columns": [["a", "a"]]}, [TABLE], "belongs to client 1 already"),
        ({"by": "explicit", "columns": [[10]]}, [TABLE], "there is no feature 10"),
        ({"by": "explicit", "columns": [[-1]]}, [TABLE], "there is no feature -1"),
        ({"by": "explicit", "columns": [["5..2"]]}, [TABLE], "the range '5..2' runs backwards"),
        ({"by": "explicit", "columns": [["A"]]}, [TABLE], "there is no feature 'A'"),
        ({"by": "explicit", "columns": [["a"], []]}, [TABLE], "client 2: holds no features"),
        ({"by": "explicit", "columns": [["a"]]}, [TABLE, TABLE], "several features are called 'a'"),
    ],
)
def test_partitions_that_do_not_fit_the_data_are_refused(partition, views, message):
    with pytest.raises(DataError, match=message) as caught:
        cut(Partition(**partition), views)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "partition",
    [
        {"by": "explicit"},
        {"by": "columns"},
        {"by": "explicit", "columns": []},
        {"columns": [["a"]]},
        {"by": "explicit", "columns": [["a"]], "clients": 2},
        {"by": "explicit", "columns": [[True]]},
        {"clients": 3, "by": "columns", "shares": [0.5, 0.5]},
        {"clients": 2, "by": "columns", "shares": [0.5, 0.5], "active": True},
        {"by": "columns", "shares": [1], "active": True},
        {"clients": 4, "by": "patches", "shares": [0.25] * 4},
        {"clients": 2, "shares": [0.5, 0.5]},
        {"by": "columns", "shares": [0.5, 0.4]},
        {"by": "columns", "shares": [1.5, -0.5]},
        {"by": "columns", "shares": [1, 0]},
        {"by": "columns", "shares": []},
        {"clients": 0},
        {"clients": 2, "by": "rows"},
    ],
)
def test_sections_that_make_no_sense_are_refused(partition):
    with pytest.raises(ValidationError):
        Partition(**partition)


@pytest.mark.parametrize(
    ("data", "partition", "symbols", "expected"),
    [
        ({"name": "digits"}, {"clients": 8}, {}, 8),
        ({"name": "digits"}, {"clients": "2*k"}, {"k": 3}, 6),
        ({"name": "handwritten"}, None, {}, 6),
        ({"name": "handwritten"}, {"by": "views"}, {}, 6),
        ({"name": "digits"}, {"by": "explicit", "columns": [[0], "1..3"]}, {}, 2),
        ({"name": "digits"}, {"by": "columns", "shares": ["r", "1 - r"]}, {}, 2),
        ({"parties": ["a.csv", "b.csv", "c.csv"], "id": "i", "label": "y"}, {}, {}, 3),
        (Data(name="handwritten"), Partition(), {}, 6),
        (Data(name="digits"), Partition(clients=4), {}, 4),
    ],
)
def test_the_number_of_clients_is_known_without_reading_files(data, partition, symbols, expected):
    assert clients_hint(data, partition, symbols) == expected


@pytest.mark.parametrize(
    ("data", "partition"),
    [
        ({"name": "digits"}, {}),
        ({"name": "digits"}, {"clients": "many"}),
        ({"name": "digits"}, {"clients": 0}),
        ({"name": "digits"}, {"clients": True}),
        ({"file": "a.csv"}, {"by": "views"}),
        ([], {}),
        ({"name": "digits"}, "eight"),
    ],
)
def test_a_number_of_clients_that_cannot_be_known_is_an_error(data, partition):
    with pytest.raises(DataError, match="partition"):
        clients_hint(data, partition)


# --- an active server -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "server", "clients"),
    [
        ({"clients": 3}, "abc", ["def", "gh", "ij"]),
        ({"by": "explicit", "columns": [["a", "c"], ["b"], ["d..f"]]}, "ac", ["b", "def"]),
    ],
)
def test_the_first_part_is_the_active_servers(partition, server, clients):
    views = cut(Partition(active=True, **partition), [TABLE])
    assert ["".join(view.names) for view in views] == [server, *clients]


def test_pixels_and_views_are_cut_for_the_server_too():
    assert [v.width for v in cut(Partition(active=True, clients=3, by="patches"), [IMAGES])] == [27, 18, 27, 18]
    assert cut(Partition(active=True), [TABLE, IMAGES])[0].name == TABLE.name
    with pytest.raises(DataError, match=r"2 clients and the server for 2 views(.|\n)*allowed: 1\n"):
        cut(Partition(active=True, clients=2), [TABLE, IMAGES])
    with pytest.raises(DataError, match=r"10 clients and the server cannot share 10 columns(.|\n)*allowed: 1 to 9\n"):
        cut(Partition(active=True, clients=10), [TABLE])
    with pytest.raises(DataError, match=r"client 1: feature 'a' belongs to the server already"):
        cut(Partition(active=True, by="explicit", columns=[["a"], ["a"]]), [TABLE])


@pytest.mark.parametrize(
    ("data", "partition", "clients"),
    [
        ({"name": "digits"}, {"active": True, "clients": 8}, 8),
        ({"name": "handwritten"}, {"active": True}, 5),
        ({"name": "digits"}, {"active": True, "by": "explicit", "columns": [[0], [1], [2]]}, 2),
        ({"parties": ["a.csv", "b.csv"], "id": "i", "label": "y"}, {"active": True}, 1),
    ],
)
def test_the_active_server_is_no_client(data, partition, clients):
    assert clients_hint(data, partition) == clients
    with pytest.raises(ValidationError, match="no list but the server's"):
        Partition(active=True, by="explicit", columns=[["a"]])
    with pytest.raises(ValidationError, match="the first of which is the server's"):
        Partition(active=True, by="explicit", columns=[["a"], ["b"]], clients=2)


def test_loading_gives_the_server_its_own_features():
    from vflsim.learning.data import load
    from vflsim.learning.data.loaded_data import LoadedData
    from vflsim.learning.optimizers import Sgd
    from vflsim.learning.training import Training

    data, training = Data(name="digits"), Training(batch=10, client_optimizer=Sgd(lr=1), server_optimizer=Sgd(lr=1))
    plain, active = (
        LoadedData.of(load(data, Partition(clients=clients, active=extra)), training)
        for clients, extra in ((4, False), (3, True))
    )
    assert plain.active is None
    assert active.active_shape == plain.shapes[0]
    assert np.array_equal(active.active["test"], plain.features[0]["test"])
    assert all(np.array_equal(a["train"], p["train"]) for a, p in zip(active.features, plain.features[1:], strict=True))
    assert np.shares_memory(active.active["train"].numpy(), active.joint["train"].numpy())
    assert "64 features at 3 clients and the server" in active.summary()
    server, client = active.parts(0, training, 7), active.parts(2, training, 7)
    assert (server.features, server.labels, client.labels) == (active.active, active.labels, None)
    assert client.features["train"].data_ptr() == active.features[1]["train"].data_ptr()
    moved = active.on("meta")
    assert moved.active["train"].shape == active.active["train"].shape
    with pytest.raises(DataError, match=r"partition\.active"):
        _ = plain.active_shape


NAMED = {"by": "explicit", "columns": [["mean radius"], ["worst radius", "mean area"]]}


@pytest.mark.parametrize(("active", "names"), [(False, ["client-1", "client-2"]), (True, ["server", "client-1"])])
def test_parties_are_called_by_their_names_if_they_have_some(active, names):
    data = Data(name="breast_cancer")
    for named, expected in (({}, names), ({"names": ["clinic", "laboratory"]}, ["clinic", "laboratory"])):
        loaded = load(data, Partition(**NAMED, **named, active=active))
        assert [each.name for each in (*filter(None, [loaded.active]), *loaded.parties)] == expected


def test_errors_about_columns_have_the_name_of_the_party():
    wrong = Partition(**{**NAMED, "columns": [["a"], ["a"]]}, names=("clinic", "laboratory"))
    with pytest.raises(DataError, match=r"partition.columns, laboratory: feature 'a' belongs to clinic already"):
        cut(wrong, [TABLE])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({**NAMED, "names": ["a", "b", "c"]}, "names are 3 for 2 parties"),
        ({**NAMED, "names": ["a", "a"]}, "names has a name twice"),
        ({"by": "columns", "clients": 3, "names": ["a", "b"]}, "clients is 3, but names has 2 names"),
        ({"by": "columns", "active": True, "names": ["a"]}, "names has no name but the server's"),
    ],
)
def test_names_are_one_for_each_party(section, message):
    with pytest.raises(ValidationError, match=message):
        Partition(**section)


def test_names_say_how_many_clients_there_are():
    assert len(cut(Partition(by="columns", names=("a", "b", "c")), [TABLE])) == 3
    assert clients_hint({"name": "digits"}, {"by": "columns", "names": ["a", "b", "c"], "active": True}) == 2


def test_more_names_than_views_are_refused_when_the_data_are_read():
    with pytest.raises(DataError, match=r"3 clients for 2 views"):
        cut(Partition(by="views", names=("a", "b", "c")), [TABLE, TABLE])
