"""Logs of measured activities: what is read, and how mistakes are told."""

from pathlib import Path

import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.timing.measured.activity_log import read_log

HEADER = "party,activity,start,end,bytes,peer,flops,note"
LOG = f"""# of a testbed
{HEADER}
client-1,compute.embed,0.5,0.75,,,2e6,first

server,compute.server_step,1.0,1.25,,,,
client-1,upload,0.75,1,,,,
client-2,transfer.embedding,1,1.5,800,,,
server,transfer.gradient,1.5,1.75,400,client-2,,
client-1,compute.embed,2,2.125,,,1e6,last
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "log.csv"
    file.write_text(text)
    return file


def test_a_log_has_operations_messages_and_delays_by_party(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, LOG))
    assert set(log.operations) == {(1, "embed"), (0, "server_step")}
    assert log.operations[1, "embed"].seconds.tolist() == [0.25, 0.125]
    assert log.operations[1, "embed"].size.tolist() == [2e6, 1e6]
    assert np.isnan(log.operations[0, "server_step"].size).all()
    assert (log.uplinks[2].seconds.tolist(), log.uplinks[2].size.tolist()) == ([0.5], [800])
    assert (log.downlinks[2].seconds.tolist(), log.downlinks[2].size.tolist()) == ([0.25], [400])
    assert log.upload_delays[1].seconds.tolist() == [0.25]


def test_what_begins_early_can_be_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, LOG)
    assert read_log(file, after=1.5).operations[1, "embed"].seconds.tolist() == [0.125]
    with pytest.raises(DataError, match=r"no activity begins 2 s after the first one\n  allowed: at most 1\.5 s"):
        read_log(file, after=2)


@pytest.mark.parametrize(
    ("row", "place", "says"),
    [
        ("client-1,embed,0,1,,,,", ":2: activity", "activity is 'embed'\n  allowed: compute.OPERATION, transfer."),
        ("client-1,compute.,0,1,,,,", ":2: activity", "activity is 'compute.'"),
        ("client-0,compute.embed,0,1,,,,", ":2: party", "party is 'client-0'\n  allowed: server, client-1"),
        ("phone,compute.embed,0,1,,,,", ":2: party", "party is 'phone'"),
        ("server,upload,0,1,,,,", ":2: party", "party is 'server'\n  allowed: client-1, client-2, … of an upload"),
        ("client-1,compute.embed,soon,1,,,,", ":2: start", "start is 'soon'\n  allowed: a number of seconds"),
        ("client-1,compute.embed,0,nan,,,,", ":2: end", "end is 'nan'"),
        ("client-1,compute.embed,0,inf,,,,", ":2: end", "end is 'inf'"),
        ("client-1,compute.embed,-1,1,,,,", ":2: start", "start is '-1'"),
        ("client-1,compute.embed,2,1,,,,", ":2: end", "end is '1'\n  allowed: at least the start, 2"),
        ("client-1,compute.embed,0,1,,,-3,", ":2: flops", "flops is '-3'\n  allowed: a number of operations"),
        ("client-1,transfer.embedding,0,1,,,,", ":2: bytes", "bytes is ''\n  allowed: a number of bytes"),
        ("client-1,transfer.embedding,0,1,1.5,,,", ":2: bytes", "bytes is '1.5'\n  allowed: a whole number"),
        ("client-1,transfer.share,0,1,9,client-2,,", ":2: peer", "peer is 'client-2'\n  allowed: server, or nothing"),
        ("server,transfer.gradient,0,1,9,,,", ":2: peer", "a transfer of the server has no peer"),
        ("server,transfer.gradient,0,1,9,server,,", ":2: peer", "peer is 'server'\n  allowed: client-1"),
        ("client-1,compute.embed,0,1", ":2", "4 cells under 8 columns\n  allowed: 8 cells"),
    ],
)
def test_a_bad_row_is_told_with_line_column_value_and_what_is_allowed(
    row: str, place: str, says: str, tmp_path: Path
) -> None:
    file = written(tmp_path, f"{HEADER}\n{row}\n")
    with pytest.raises(DataError) as caught:
        read_log(file)
    assert caught.value.where == f"{file}{place}"
    assert says in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("", "", "holds no activity"),
        (HEADER, "", "holds no activity"),
        ("party,activity,start,stop,bytes\n", ":1", "there is no column 'end'"),
        ("# x\nparty,activity,start,end,byte\n", ":2", "there is no column 'bytes'"),
        ("party,activity,start,end,bytes,end\n", ":1", "the column 'end' stands twice"),
        ("party,activity,start,end,bytes\nclient-1,compute.\xff,0,1,\n", "", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_log_is_refused(text: str, where: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        read_log(file)
    assert caught.value.where == f"{file}{where}"
    assert says in caught.value.what


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_log(tmp_path / "none.csv")
