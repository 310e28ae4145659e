"""Shared by all tests: features, journals and decoded folders go to a folder of the test session, not the user's."""

from __future__ import annotations

import gc
import os

import pytest

# Tests run side by side, and the results of several engines are compared to the last digit: one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Libraries and thousands of tests leave a heap that takes a second to look through: do so seldom.
gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("cache"))
    before = os.environ.get("PRECEPTOR_CACHE")
    os.environ["PRECEPTOR_CACHE"] = place
    yield
    if before is None:
        del os.environ["PRECEPTOR_CACHE"]
    else:
        os.environ["PRECEPTOR_CACHE"] = before
