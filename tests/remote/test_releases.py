"""Releases that clients tell the server of: it counts what they count."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_worlds import data_of, tiny

from vflsim.errors import ProtocolError
from vflsim.learning.batches import BatchSequence
from vflsim.learning.learners.releases import Releases
from vflsim.remote.control import Control, ControlError, NoiseAdded
from vflsim.remote.message_checks import ReleaseCounts, telling
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting

NOISE = {"kind": "gaussian", "clip": 1, "delta": 1e-5, "noise_multiplier": 2}


def resolved(batches: str = "shared", **said: object) -> Setting:
    scenario = tiny({"only": {"kind": "asynchronous", **said}}, training__batches=batches)
    return setting(scenario, "only", data_of(scenario))


def sequence(given: Setting, client: int) -> BatchSequence:
    return BatchSequence(given.data.rows, given.training, 3, client)


@pytest.mark.parametrize("batches", ["shared", "own"])
def test_the_server_accounts_for_what_a_client_has_released(batches: str) -> None:
    given = resolved(batches, mechanism=NOISE)
    assert given.mechanism is not None
    told, sent = ReleaseCounts(given, 3, sequence(given, 1)), list[Control]()
    own = Releases(given.mechanism, 3, 2, given.data.rows)
    own.reporter = telling(sent.append)
    for index in (0, 1, 1, 7):
        batch = sequence(given, 2).batch(index)
        own.begin("embed", batch).commit()
    own.begin("first_fill", slice(None)).commit()
    for message in sent:
        assert isinstance(message, NoiseAdded)
        told.take(2, message, due=0)
    theirs = told.of_all[1]
    assert theirs.counts.tolist() == own.counts.tolist()
    assert (theirs.released, theirs.epsilon) == (own.released, own.epsilon)
    assert [each.times for each in told.of_all] == [0, 5, 0, 0]


def test_releases_that_a_run_does_not_have_are_refused() -> None:
    given = resolved(mechanism=NOISE)
    told = ReleaseCounts(given, 3, sequence(given, 1))
    with pytest.raises(ControlError, match="client-2 has released a batch of sequence 3"):
        told.take(2, NoiseAdded(batch=(3, 0)), due=0)
    clear = resolved()
    with pytest.raises(ControlError, match="client-2 has released under noise"):
        ReleaseCounts(clear, 3, sequence(clear, 1)).take(2, NoiseAdded(batch=(-1, 0)), due=0)


def test_rows_that_are_no_batch_cannot_be_told() -> None:
    given = resolved(mechanism=NOISE)
    assert given.mechanism is not None
    own = Releases(given.mechanism, 3, 2, given.data.rows)
    own.reporter = telling(lambda _: None)
    with pytest.raises(ProtocolError, match="some rows that are no mini-batch"):
        own.begin("embed", np.array([1, 2])).commit()
