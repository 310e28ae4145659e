"""Distillation methods: tensors in, weighted loss terms out. `METHODS` maps names to classes."""

from preceptor.distill.losses.afd import AttentionFeatures
from preceptor.distill.losses.aml import AsymmetricMetric
from preceptor.distill.losses.dist import Dist
from preceptor.distill.losses.dkd import Decoupled
from preceptor.distill.losses.fitnet import FitNet
from preceptor.distill.losses.kd import BornAgain, KnowledgeDistillation
from preceptor.distill.losses.method import Method
from preceptor.distill.losses.mgd import MatchingGuided
from preceptor.distill.losses.none import NoDistillation
from preceptor.distill.losses.probe import Probe, ProbeDistillation, SinkhornProbe, fit_probe
from preceptor.distill.losses.refilled import ReFilledClassifier, ReFilledEmbedding
from preceptor.distill.losses.rkd import Relational
from preceptor.distill.losses.seed import SelfSupervised
from preceptor.distill.losses.sftn import StudentFriendly, StudentFriendlyTeacher
from preceptor.distill.losses.sinkhorn import Sinkhorn
from preceptor.distill.losses.sskd import SelfSupervisionKD
from preceptor.distill.losses.step import Context, Step
from preceptor.distill.losses.vid import VariationalInformation
from preceptor.distill.losses.vkd import OrthogonalProjection
from preceptor.distill.losses.wcord import WassersteinContrastive

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        NoDistillation,
        Sinkhorn,
        KnowledgeDistillation,
        BornAgain,
        FitNet,
        VariationalInformation,
        Relational,
        AsymmetricMetric,
        ReFilledEmbedding,
        ReFilledClassifier,
        MatchingGuided,
        WassersteinContrastive,
        AttentionFeatures,
        StudentFriendly,
        StudentFriendlyTeacher,
        SelfSupervised,
        SelfSupervisionKD,
        ProbeDistillation,
        SinkhornProbe,
        Dist,
        Decoupled,
        OrthogonalProjection,
    )
}

__all__ = ["METHODS", "Context", "Method", "Probe", "Step", "fit_probe"]
