"""A codec from outside is tried out before it is believed; those of the package pass the same trial."""

import pytest
import torch
from int8_codec import Int8, Int8Feedback
from own_codecs import Honest
from pydantic import TypeAdapter
from tiny_worlds import raw

from vflsim.codecs import CODECS, AnyCodec
from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.vocabulary.base import examples_of
from vflsim.vocabulary.trial import Trial

SHAPES = ((5,), (1, 3), (6, 4), (2, 3, 4))
WRONG = {
    "Cheap": r"Cheap.payload_bytes says 1 bytes where pack writes 20",
    "Zipped": "Zipped.payload_bytes says 20 bytes where pack writes",
    "Other": "Other.through differs from unpack",
    "NanLost": "NanLost.through differs from unpack.* nan",
    "Narrow": r"Narrow.through returned a Tensor of shape \(5,\), torch.float16",
    "Flat": "Flat treats an element",
    "Noisy": "Noisy.through draws from PyTorch's global generator",
    "Random": "Random",
    "InPlace": "InPlace",
    "Stacked": "Stacked treats an element differently in a stack",
    "Lossless": "Lossless is lossless, but changes",
    "IdleRule": "IdleRule defines 'backward', which is never called",
    "WrongRule": r"WrongRule.backward returned a Tensor of shape \(\), torch.float32",
    "IdleMemory": "IdleMemory defines 'transmit', which is never called",
    "Hoarder": "Hoarder.transmit changes what it is given",
    "Framed": "Framed.size_of says 80 bytes where encode writes 81",
    "Broken": "Broken fails: RuntimeError: no cable; remedy: mend it; raised in .*own_codecs.py",
}


@pytest.mark.parametrize(("name", "says"), WRONG.items(), ids=WRONG)
def test_a_codec_that_breaks_its_contract_is_refused(name, says):
    with pytest.raises(ValueError, match=says):
        TypeAdapter(AnyCodec).validate_python({"kind": "module", "path": f"own_codecs:{name}"})


@pytest.mark.parametrize("codec", [Honest(), Int8(), Int8Feedback()])
def test_a_codec_that_keeps_its_contract_is_taken(codec):
    assert TypeAdapter(AnyCodec).validate_python(codec) is codec


@pytest.mark.sampled(3)
@pytest.mark.parametrize("codec", CODECS)
def test_codecs_of_the_package_pass_the_trial(codec):
    for said in examples_of(codec):
        made = TypeAdapter(AnyCodec).validate_python(said)
        made._contract_at(Trial(made), SHAPES, (torch.float32, torch.float64, torch.float16))


CHEAP = {"kind": "module", "path": "own_codecs:Cheap"}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("codec", {"codec": CHEAP}),
        ("codec.up", {"codec": {"kind": "by_direction", "up": CHEAP}}),
        ("codec.down", {"codec": {"kind": "by_direction", "down": CHEAP}}),
        ("protocols.wait.codec", {"protocols": {"wait": {"kind": "synchronous", "codec": CHEAP}}}),
    ],
)
def test_the_error_names_key_class_value_and_remedy(key, changes):
    changes = dict(changes)
    protocols = changes.pop("protocols", {"wait": {"kind": "synchronous"}})
    with pytest.raises(ScenarioError) as refused:
        load(raw(protocols, **changes))
    for part in (f"{key}:", "Cheap.payload_bytes says 1", "allowed", "mend 'payload_bytes'", "own_codecs.py"):
        assert part in str(refused.value)
