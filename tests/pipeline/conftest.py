"""One zoo for all tests of the pipeline, none of which changes it."""

from __future__ import annotations

import pytest

from preceptor import Zoo, train
from tests.pipeline.blobs import blobs


@pytest.fixture(scope="session")
def zoo(tmp_path_factory) -> Zoo:
    folder = tmp_path_factory.mktemp("pipeline")
    zoo = Zoo(str(folder / "zoo"))
    for name, classes in (("same", "abcd"), ("other", "wxyz")):
        train(blobs(classes, per_class=60), student="mlp-32", out=folder / name, recipe="quick", device="cpu")
        zoo.add(f"run:{folder / name}", name=name)
    return zoo
