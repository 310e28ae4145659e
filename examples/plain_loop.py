"""The transport loss in a training loop of your own: the teacher has other classes than the student.

python examples/plain_loop.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from preceptor.ot import SinkhornLoss, class_centers, classifier_centers, cost_matrix


def clouds(classes: int, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points around one centre for each class."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(classes, 8, generator=generator)
    labels = torch.arange(samples) % classes
    return centers[labels] + 0.3 * torch.randn(samples, 8, generator=generator), labels


def fit(network: nn.Module, inputs: Tensor, labels: Tensor, extra_loss=None, steps: int = 200) -> float:
    """Plain training; `extra_loss` of the student's logits is added where given. Returns the last loss."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    loss = torch.zeros(())
    for _ in range(steps):
        logits = network(inputs)
        loss = nn.functional.cross_entropy(logits, labels)
        if extra_loss is not None:
            loss = loss + extra_loss(logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def main() -> float:
    """A teacher of six classes helps a student of four; returns the student's accuracy."""
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 6)
    fit(nn.Sequential(body, head), *clouds(6, 300, seed=1))
    inputs, labels = clouds(4, 40, seed=2)

    # The five lines.
    with torch.no_grad():
        features = body(inputs)
        teacher_logits = head(features)
    cost = cost_matrix(classifier_centers(head.weight.detach()), class_centers(features, labels, 4))
    transport = SinkhornLoss(cost, epsilon=0.1, temperature=3.0, weight=10.0)

    student = nn.Linear(8, 4)
    fit(student, inputs, labels, lambda logits: transport(logits, teacher_logits))
    return float((student(inputs).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    print(f"training accuracy of the student: {main():.3f}")
