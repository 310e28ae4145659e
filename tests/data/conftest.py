import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRECEPTOR_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def make_folder(tmp_path):
    """Write PNG files: {"train/cat": 3, ...} -> images whose content is their number."""

    def make(counts, size=(8, 6), mode="RGB", name="pets"):
        root = tmp_path / name
        number = 0
        for folder, count in counts.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            for index in range(count):
                number += 1
                side = size(number) if callable(size) else size
                depth = () if mode == "L" else (3,)
                pixels = np.random.default_rng(number).integers(
                    0, 256, (side[1], side[0], *depth), dtype=np.uint8
                )
                Image.fromarray(pixels).save(root / folder / f"{index:03}.png")
        return root

    return make
