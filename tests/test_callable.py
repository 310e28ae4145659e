from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys

import pytest

from preceptor import distill, rank
from preceptor.distill.schedules import distill as distill_function
from preceptor.rank.ranking import rank as rank_function


@pytest.mark.parametrize(("package", "function"), [(distill, distill_function), (rank, rank_function)])
def test_signature_and_help_are_those_of_the_function(package, function):
    assert inspect.signature(package) == inspect.signature(function)
    shown = pydoc.plain(pydoc.render_doc(package))
    assert f"{function.__name__}{inspect.signature(function)}" in shown
    assert inspect.getdoc(function).splitlines()[0] in shown
    assert "The package can be called" in shown


def test_nothing_heavy_is_imported_for_it():
    program = "import sys, preceptor; preceptor.distill, preceptor.rank; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_fabric_is_imported_when_something_is_trained():
    program = "import sys, preceptor.pipeline; assert 'lightning_fabric' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
