"""What a training drew from the socket, where the machine lets one read that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

RAPL = Path("/sys/class/powercap")  # running counters of the processor packages, in microjoules
Reader = Callable[[], tuple[float, ...]]


class EnergyMeter:
    """Joules since it was made, of the GPU (NVML, with nvidia-ml-py) or else of the processor packages (RAPL).

    On a shared machine a counter includes what others drew. None where nothing can be read, as on virtual machines.
    """

    def __init__(self, device: torch.device, rapl: Path = RAPL) -> None:
        found = _gpu_reader(device) or _package_reader(rapl)
        self._read: Reader | None = found[0] if found else None
        self._spans: tuple[float, ...] = found[1] if found else ()
        self._start = self._read() if self._read else ()

    def joules(self) -> float | None:
        """What was drawn so far."""
        if self._read is None:
            return None
        try:
            ends = self._read()
        except (OSError, ValueError):
            return None
        # A counter that ran over has begun again at 0.
        return sum(
            (end - start) % span for end, start, span in zip(ends, self._start, self._spans, strict=True)
        )


def _package_reader(folder: Path) -> tuple[Reader, tuple[float, ...]] | None:
    try:
        packages = [path for path in sorted(folder.glob("intel-rapl:*")) if path.name.count(":") == 1]
        spans = tuple(int((path / "max_energy_range_uj").read_text()) / 1e6 for path in packages)

        def read() -> tuple[float, ...]:
            return tuple(int((path / "energy_uj").read_text()) / 1e6 for path in packages)

        read()
    except (OSError, ValueError):
        return None
    return (read, spans) if packages else None


def _gpu_reader(device: torch.device) -> tuple[Reader, tuple[float, ...]] | None:
    if device.type != "cuda":
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # the library, the driver or the card may lack any part of this
        return None
    return lambda: (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,), (float("inf"),)
