import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.devices import resolve_device


def test_a_gpu_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        PreceptorError,
        match="device 'cuda:7' came and the last one of this machine is cuda:1; use auto or that",
    ):
        resolve_device("cuda:7")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    assert resolve_device("cuda") == torch.device("cuda")
