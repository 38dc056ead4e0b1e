"""Own codecs are tried out on the shapes that the scenario sends, before anything runs."""

from typing import Any

import pytest
from tiny_worlds import tiny

from vflsim.errors import ScenarioError
from vflsim.studies.checks.data import read_and_check


def world(name: str, key: str | None = None, **changes: Any) -> Any:
    codec: dict[str, Any] = {"kind": "module", "path": f"own_codecs:{name}"}
    if key is not None:
        codec = {"kind": "by_direction", key: codec}
    return tiny("synchronous", codec=codec, **changes)


@pytest.mark.parametrize("key", [None, "up", "down"])
def test_a_codec_that_is_wrong_for_the_width_of_embeddings_is_refused(key: str | None) -> None:
    wide = {"models__client": {"kind": "linear", "embedding": 36}}
    with pytest.raises(ScenarioError, match=r"(?s)codec.*OneShort.payload_bytes says \d+ bytes where pack writes \d+"):
        read_and_check(world("OneShort", key, **wide))
    read_and_check(world("OneShort", key))  # no tensor has this width


def test_a_codec_that_cannot_encode_the_last_batch_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"(?s)codec.*SevenRows fails: .*seven rows do not fit.*own_codecs.py"):
        read_and_check(world("SevenRows", training__batch=83))  # 90 rows: 83 and 7
    read_and_check(world("SevenRows", training__batch=30))


def test_honest_codecs_pass_whatever_is_sent() -> None:
    read_and_check(world("Honest", models__client={"kind": "linear", "embedding": 20_000}))
