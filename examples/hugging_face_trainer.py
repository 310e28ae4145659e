"""The transport loss inside a Hugging Face `Trainer`. Needs ``pip install transformers accelerate``.

python examples/hugging_face_trainer.py
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from preceptor.ot import SinkhornLoss, class_centers, classifier_centers, cost_matrix


class DistillationTrainer(Trainer):
    """A Trainer whose loss has the transport term: each row brings the teacher's logits along."""

    def __init__(self, *arguments: Any, transport: SinkhornLoss, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.transport = transport

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Cross-entropy plus the weighted transport term, Eq. (11)."""
        outputs = model(pixel_values=inputs["pixel_values"])
        transport = self.transport.to(outputs["logits"].device)
        loss = nn.functional.cross_entropy(outputs["logits"], inputs["labels"])
        loss = loss + transport(outputs["logits"], inputs["teacher_logits"])
        return (loss, outputs) if return_outputs else loss


class Student(nn.Module):
    """Any model that returns logits will do; a Hugging Face model does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
        """Logits by name, as a Hugging Face model gives them."""
        return {"logits": self.layer(pixel_values)}


def main(epochs: int = 20) -> float:
    """Train a student of four classes with a teacher of six; returns its accuracy on the training rows."""
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 6)
    labels = torch.arange(64) % 4
    inputs = torch.randn(4, 8)[labels] + 0.3 * torch.randn(64, 8)
    with torch.no_grad():
        features = body(inputs)
        teacher_logits = head(features)
    cost = cost_matrix(classifier_centers(head.weight.detach()), class_centers(features, labels, 4))
    rows = [
        {"pixel_values": x, "labels": y, "teacher_logits": z}
        for x, y, z in zip(inputs, labels, teacher_logits, strict=True)
    ]
    student = Student()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, num_train_epochs=epochs, learning_rate=0.05, per_device_train_batch_size=16,
            remove_unused_columns=False, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
            dataloader_pin_memory=False, logging_strategy="no",
        )  # fmt: skip
        transport = SinkhornLoss(cost, weight=1.0)
        DistillationTrainer(model=student, args=settings, train_dataset=rows, transport=transport).train()
    return float((student(inputs)["logits"].argmax(1) == labels).float().mean())


if __name__ == "__main__":
    print(f"training accuracy of the student: {main():.3f}")
