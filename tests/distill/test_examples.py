from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from torch import Tensor

from preceptor.ot import SinkhornLoss

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("plain_loop", ()),
        ("hugging_face_trainer", ("transformers", "accelerate")),
        ("lightning_module", ("lightning",)),
    ],
)
@pytest.mark.filterwarnings("ignore")  # what the trainers warn of is not ours
def test_the_student_of_an_example_learns_with_the_transport_term(
    name: str, needs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in needs:
        pytest.importorskip(package)
    values: list[Tensor] = []
    forward = SinkhornLoss.forward

    def noted(self: SinkhornLoss, *arguments: Tensor) -> Tensor:
        values.append(forward(self, *arguments))
        return values[-1]

    monkeypatch.setattr(SinkhornLoss, "forward", noted)
    assert load(name).main() > 0.9
    assert len(values) > 20
    assert all(value.requires_grad and value > 0 for value in values)
