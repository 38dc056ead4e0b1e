"""What stands for PyTorch before it is there, in a process of its own, and afterwards gives its place to it."""

import subprocess
import sys

import pytest
import torch

from vflsim.vocabulary import on_demand


def before_pytorch(code: str) -> None:
    """Run code that begins without PyTorch."""
    begin = "import sys\nfrom vflsim.vocabulary import on_demand\nassert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_dtype_equals_what_stood_for_it_and_has_its_size() -> None:
    before_pytorch(
        "names = 'float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool'.split()\n"
        "stands = [on_demand.dtype(name) for name in names]\n"
        "import torch\n"
        "for name, stand in zip(names, stands):\n"
        "    dtype = getattr(torch, name)\n"
        "    assert stand == dtype and dtype == stand and on_demand.real(stand) is dtype is on_demand.dtype(name)\n"
        "    assert (stand.itemsize, stand.is_floating_point) == (dtype.itemsize, dtype.is_floating_point)\n"
        "    assert [stand == other for other in stands] == [name == other for other in names]\n"
    )


@pytest.mark.slow
def test_the_first_use_of_a_name_puts_the_library_in_the_place_of_its_stand_in() -> None:
    before_pytorch(
        "from vflsim.learning import states\n"
        "assert not isinstance(3, on_demand.Tensor) and 'torch' not in sys.modules\n"
        "one = states.torch.ones(1)\n"
        "import torch\n"
        "assert states.torch is torch is on_demand.torch and isinstance(one, on_demand.Tensor)\n"
    )


def test_tensors_are_outlines_before_pytorch_is_there_and_made_once_afterwards() -> None:
    before_pytorch(
        "outline = on_demand.TensorOutline((3, 2), on_demand.dtype('float64'))\n"
        "held = on_demand.OnDemand({'train': outline}, lambda key: on_demand.torch.ones(3, 2).double())\n"
        "before = held['train']\n"
        "assert (len(before), before.nbytes, before.device.type) == (3, 48, 'cpu')\n"
        "import torch\n"
        "assert held['train'] is held['train'] and held['train'].nbytes == 48\n"
    )


@pytest.mark.parametrize("thing", [torch.float32, torch.device("cpu"), None])
def test_what_is_real_stays_as_it_is(thing: object) -> None:
    assert on_demand.real(thing) is thing
