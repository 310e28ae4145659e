"""A stored teacher against the framework that its network comes from."""

from __future__ import annotations

import torch
from torch import Tensor

from preceptor.zoo import Preprocessing, Teacher, Zoo

SMALL = Preprocessing.for_size((3, 32, 32), (0.5,) * 3, (0.25,) * 3)
INPUTS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(5))


def check(
    zoo: Zoo,
    name: str,
    features: Tensor,
    logits: Tensor,
    weight: Tensor,
    inputs: Tensor = INPUTS,
    **tolerance: float,
) -> Teacher:
    """The stored teacher against the framework's own features, logits and classifier rows."""
    teacher = zoo.load(name, trust_code=True)
    output = teacher.outputs(inputs)
    torch.testing.assert_close(output.features, features.detach(), **tolerance)
    torch.testing.assert_close(output.logits, logits.detach(), **tolerance)
    torch.testing.assert_close(teacher.classifier, weight.detach())
    if teacher.card.centers_source == "classifier":
        torch.testing.assert_close(
            teacher.centers, weight.detach() / weight.detach().norm(dim=1, keepdim=True)
        )
    assert not output.logits.requires_grad
    assert not teacher.train().training
    assert zoo.verify(name, trust_code=True) == []
    return teacher
