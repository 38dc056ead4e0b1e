import pytest
import torch

from vflsim.learning.models.build import least_batch, mixes_rows, seeded, weights_of
from vflsim.learning.models.client import Resnet18Client
from vflsim.learning.models.shapes import Norm


def test_resnet18_has_the_weights_of_the_usual_one_for_small_images() -> None:
    """Known of ResNet-18 on CIFAR-10: 11,173,962 weights, and 0.56 · 10⁹ multiply-adds an image."""
    assert weights_of(lambda: Resnet18Client(embedding=10).build((3, 32, 32)))[0] == 11_173_962


@pytest.mark.parametrize("shape", [(3, 32, 8), (1, 7, 28), (1, 1, 28)])
def test_any_piece_of_an_image_will_do(shape: tuple[int, ...]) -> None:
    model = Resnet18Client(embedding=4, width=2)
    model.check(shape)
    assert model.build(shape)(torch.randn(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(("norm", "least"), [("batch", 2), ("group", 1)])
def test_batch_normalisation_mixes_rows_and_needs_two(norm: Norm, least: int) -> None:
    """Of 8 × 8 pixels the last blocks see one, so that one row has no spread."""
    shape = (1, 8, 8)
    module = seeded(lambda: Resnet18Client(embedding=4, width=2, norm=norm).build(shape), 0, torch.float64)
    assert mixes_rows(module, shape) is (norm == "batch")
    assert least_batch(module, shape) == least


def test_a_table_is_no_image() -> None:
    with pytest.raises(ValueError, match="a resnet18 client needs images"):
        Resnet18Client(embedding=4).check((9,))
