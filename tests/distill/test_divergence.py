"""A training that diverges stops, says where, and leaves only good checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from preceptor.core import PreceptorError
from preceptor.distill.losses import Context, Method, Step
from preceptor.distill.losses.method import task_loss
from preceptor.distill.run_folder import RunFolder
from preceptor.distill.train import train
from tests.distill.plain import Plain
from tests.distill.toys import vector_task


class Explodes(Method):
    name = "explodes"
    reference = "a test"
    needs = frozenset()
    term_names = ("task", "bad")

    def __init__(self, context: Context, **options: object) -> None:
        super().__init__(context, **options)
        self.register_buffer("count", torch.zeros(()))

    def terms(self, step: Step) -> dict[str, Tensor]:
        self.count += 1
        bad = torch.where(self.count > 8, torch.nan, 1.0)
        return {"task": task_loss(step), "bad": bad * step.student.logits.mean()}


def test_nan_stops_with_step_term_and_last_good_checkpoint(tmp_path: Path) -> None:
    message = r"diverged at step 8: term bad \(NaN\); the last good checkpoint is .*step-000000006.*; lower"
    with pytest.raises(PreceptorError, match=message):
        train(vector_task(), student=Plain(), method=Explodes, epochs=4, batch_size=32, out=tmp_path / "a",
              checkpoint_every=3)  # fmt: skip
    found = RunFolder(tmp_path / "a").load_checkpoint()
    assert found is not None
    assert all(value.isfinite().all() for value in found.section("student").values())


class Steep(Method):
    name, reference, needs, term_names = "steep", "a test", frozenset(), ("task",)

    def terms(self, step: Step) -> dict[str, Tensor]:
        """A finite value with a gradient that is none: the root of zero."""
        return {"task": (0 * step.student.logits).sum().sqrt()}


def test_nan_in_the_weights_alone_never_reaches_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(
        PreceptorError, match="a weight is NaN or infinite after step 1; no checkpoint was written"
    ):
        train(vector_task(), student=Plain(), method=Steep, epochs=1, out=tmp_path / "a", checkpoint_every=1)
    assert RunFolder(tmp_path / "a").load_checkpoint() is None
