"""Distillation methods: tensors in, weighted loss terms out. `METHODS` maps names to classes."""

from preceptor.distill.losses.kd import BornAgain, KnowledgeDistillation
from preceptor.distill.losses.method import Method
from preceptor.distill.losses.none import NoDistillation
from preceptor.distill.losses.sinkhorn import Sinkhorn
from preceptor.distill.losses.step import Context, Step

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (NoDistillation, Sinkhorn, KnowledgeDistillation, BornAgain)
}

__all__ = ["METHODS", "Context", "Method", "Step"]
