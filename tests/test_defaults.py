from __future__ import annotations

import pytest
import torch

from preceptor.defaults import own_defaults
from tests.torch_defaults import UNUSUAL, unusual


@pytest.fixture
def _unusual():
    with unusual(*UNUSUAL):
        yield


@pytest.mark.usefixtures("_unusual")
def test_ours_inside_the_callers_outside():
    with own_defaults():
        inside = torch.zeros(2)
    outside = torch.zeros(2)
    assert (inside.device.type, inside.dtype) == ("cpu", torch.float32)
    assert (outside.device.type, outside.dtype) == ("meta", torch.float64)


@pytest.mark.usefixtures("_unusual")
def test_the_callers_come_back_after_an_error():
    @own_defaults()
    def failing():
        raise RuntimeError(torch.zeros(1).device.type)

    with pytest.raises(RuntimeError, match="cpu"):
        failing()
    assert (torch.zeros(1).device.type, torch.get_default_dtype()) == ("meta", torch.float64)
