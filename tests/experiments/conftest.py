from __future__ import annotations

import pytest
import torch
from experiments.jobs import SMOKE
from experiments.lab import Lab


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def lab(tmp_path):
    return Lab(SMOKE, tmp_path / "work", results=tmp_path / "results")
