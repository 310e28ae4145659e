from __future__ import annotations

from pathlib import Path

import pytest
import torch

from preceptor.distill.energy import EnergyMeter


@pytest.fixture
def rapl(tmp_path: Path) -> Path:
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):  # the last is a part of the first
        (tmp_path / name).mkdir()
        (tmp_path / name / "max_energy_range_uj").write_text("100000000\n")
        (tmp_path / name / "energy_uj").write_text("90000000\n")
    return tmp_path


def test_packages_are_added_up_and_counters_may_run_over(rapl: Path) -> None:
    meter = EnergyMeter(torch.device("cpu"), rapl)
    assert meter.joules() == 0
    (rapl / "intel-rapl:0" / "energy_uj").write_text("95000000\n")
    (rapl / "intel-rapl:1" / "energy_uj").write_text("3000000\n")
    assert meter.joules() == pytest.approx(5 + 13)


def test_nothing_readable_is_none(tmp_path: Path, rapl: Path) -> None:
    assert EnergyMeter(torch.device("cpu"), tmp_path / "nowhere").joules() is None
    meter = EnergyMeter(torch.device("cpu"), rapl)
    (rapl / "intel-rapl:1" / "energy_uj").write_text("nonsense")
    assert meter.joules() is None
