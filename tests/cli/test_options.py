"""``-o NAME=VALUE`` and ``--seed``, over every command that has them."""

from __future__ import annotations

import inspect

import pytest
import typer
from typer.testing import CliRunner

from preceptor.cli import app
from preceptor.cli.options import parse_options
from preceptor.cli.run import run
from preceptor.core import PreceptorError
from preceptor.distill.recipe import RECIPE_FIELDS
from preceptor.distill.schedules import distill as distill_in_python
from preceptor.distill.train import train as train_in_python
from preceptor.pipeline import run as run_in_python

COMMANDS = typer.main.get_command(app).commands
WITH_OPTIONS = {name: c for name, c in COMMANDS.items() if any(p.name == "option" for p in c.params)}
IN_PYTHON = {
    "run": (run_in_python,),
    "distill": (distill_in_python, train_in_python),
    "train": (train_in_python,),
}
NEEDED = {  # nothing is looked for before the options
    "run": ["no-zoo", "no-data"],
    "distill": ["no-data"],
    "train": ["no-data", "--arch", "cnn-4"],
}


def refused(command: str, name: str) -> str:
    result = CliRunner().invoke(app, [command, *NEEDED[command], "-o", f"{name}=1"])
    assert isinstance(result.exception, PreceptorError), (command, name, result.exception)
    return str(result.exception)


def test_these_commands_take_options() -> None:
    assert WITH_OPTIONS.keys() == IN_PYTHON.keys()


@pytest.mark.parametrize(
    ("command", "name", "place"),
    [
        (command, parameter.name, parameter.opts[0] if parameter.param_type_name == "option" else "")
        for command, entry in WITH_OPTIONS.items()
        for parameter in entry.params
        if parameter.name not in RECIPE_FIELDS | {"help"}
    ],
)
def test_what_has_an_option_of_its_own_is_refused_with_its_name(command: str, name: str, place: str) -> None:
    wanted = f"use {place}" if place else f"give it as {name.upper()}"
    assert refused(command, name) == (
        f"-o {name}=… came, and {name} is a setting of neither recipe nor method; {wanted}"
    )


@pytest.mark.parametrize("command", WITH_OPTIONS)
def test_no_parameter_of_the_function_behind_can_be_given_twice(command: str) -> None:
    for function in IN_PYTHON[command]:
        for name in inspect.signature(function).parameters.keys() - {"options"}:
            assert refused(command, name).startswith(f"-o {name}=… came")


def test_one_text_says_what_options_are() -> None:
    texts = {p.help for c in WITH_OPTIONS.values() for p in c.params if p.name == "option"}
    assert len(texts) == 1


def test_the_same_thing_under_another_name_in_python() -> None:
    assert refused("run", "task").endswith("give it as DATA")
    assert refused("run", "metrics").endswith("use --metric")
    assert refused("distill", "compile").endswith("use --compile")
    assert refused("distill", "with-baseline").endswith("use --with-baseline")
    assert refused("distill", "teacher_classes").endswith("only Python's distill takes it")


def test_options_are_json_where_they_can_be() -> None:
    given = ["weight=1e1", "centers=data", "normalize=false", "max-iterations=5", "epochs=3", "image_size=8"]
    assert parse_options(given, run, run_in_python) == {
        "weight": 10.0, "centers": "data", "normalize": False, "max_iterations": 5, "epochs": 3, "image_size": 8,
    }  # fmt: skip
    for wrong in ("weight", "=3"):
        with pytest.raises(PreceptorError, match="expected NAME=VALUE, such as weight=10"):
            parse_options([wrong], run, run_in_python)


@pytest.mark.parametrize(
    "command", [n for n, c in COMMANDS.items() if any(p.name == "seed" for p in c.params)]
)
def test_a_seed_below_0_is_a_wrong_call(command: str) -> None:
    needed = {"train": ["no-data", "--arch", "cnn-4"], "rank": ["no-zoo", "no-data"], **NEEDED}
    result = CliRunner().invoke(app, [command, *needed[command], "--seed", "-1"])
    assert result.exit_code == 2
    assert "'--seed'" in result.output
