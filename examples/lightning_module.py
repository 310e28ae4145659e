"""The transport loss inside a `LightningModule`. Needs ``pip install lightning``.

python examples/lightning_module.py
"""

from __future__ import annotations

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from preceptor.ot import SinkhornLoss, class_centers, classifier_centers, cost_matrix


class DistilledStudent(lightning.LightningModule):
    """A student that learns from labels and from a frozen teacher of other classes."""

    def __init__(self, student: nn.Module, body: nn.Module, head: nn.Linear, transport: SinkhornLoss) -> None:
        super().__init__()
        self.student, self.body, self.head, self.transport = student, body, head, transport
        for part in (self.body, self.head):
            part.requires_grad_(False)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """Cross-entropy plus the weighted transport term, Eq. (11)."""
        inputs, labels = batch
        logits = self.student(inputs)
        with torch.no_grad():
            teacher_logits = self.head(self.body(inputs))
        return nn.functional.cross_entropy(logits, labels) + self.transport(logits, teacher_logits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam on the student alone."""
        return torch.optim.Adam(self.student.parameters(), lr=0.05)


def main(epochs: int = 20) -> float:
    """Train a student of four classes with a teacher of six; returns its accuracy on the training rows."""
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 6)
    labels = torch.arange(64) % 4
    inputs = torch.randn(4, 8)[labels] + 0.3 * torch.randn(64, 8)
    with torch.no_grad():
        centers = class_centers(body(inputs), labels, 4)
    transport = SinkhornLoss(cost_matrix(classifier_centers(head.weight.detach()), centers), weight=1.0)
    student = nn.Linear(8, 4)
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    rows = DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True)
    trainer.fit(DistilledStudent(student, body, head, transport), rows)
    return float((student(inputs).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    print(f"training accuracy of the student: {main():.3f}")
