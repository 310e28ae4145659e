from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from experiments.choirs import _compiled
from experiments.packed import Pack
from experiments.passes import clean_outputs, normalised
from experiments.pupils import Scene, Student, Tutor
from experiments.schedule import Schedule
from experiments.variants import STAGES, stages_of
from torch._dynamo.utils import counters

from experiments import sources
from preceptor import ot
from preceptor.core import Outputs
from preceptor.distill.inputs import mixup_share
from preceptor.distill.losses import METHODS, Method
from preceptor.distill.losses.method import task_loss
from preceptor.models import build


class Broken(Method):
    name = "broken"
    reference = "a student that diverges"
    needs = frozenset()

    def terms(self, step):
        return {"task": task_loss(step) * torch.nan}


class Noting(Method):
    name = "noting"
    reference = "writes down what it sees"
    needs = frozenset()

    def __init__(self, context, **options):
        super().__init__(context, **options)
        self.seen = []

    def terms(self, step):
        self.seen.append((step.images.clone(), step.labels.clone(), float(step.progress)))
        self.targets = step.targets.clone()
        return {"task": task_loss(step)}


@pytest.fixture(scope="module")
def source():
    return sources.toy("cifar100", "cpu")


def scene(source, epochs=1, seed=0, **changes):
    train, _, names = source.task(0)
    return Scene(
        train, names, source.mean, source.std, Schedule(epochs=epochs, batch_size=8, **changes), seed
    )


def tutor(source, arch="wrn-10-1"):
    train, _, names = source.task(0)
    network = build(arch, len(names), train.shape, seed=9).eval().requires_grad_(False)
    features, logits = clean_outputs(network, train, source.mean, source.std)
    outputs = Outputs(features.numpy(), logits.numpy(), train.labels.numpy())
    return Tutor(network, names, ot.class_centers(features, train.labels, len(names)), outputs)


def weights(student):
    return torch.cat([p.detach().flatten() for p in student.network.parameters()])


def test_a_pack_does_what_sgd_does(source):
    setting = scene(source, epochs=2)
    student = Student(build("cnn-4", 5, setting.data.shape, seed=1), Noting)
    network = build("cnn-4", 5, setting.data.shape, seed=1)
    pack = Pack([student], setting)
    pack.train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    steps = pack.methods[0].seen
    for images, labels, progress in steps:
        optimiser.param_groups[0]["lr"] = setting.schedule.rate_at(round(progress * 2))
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimiser.step()
    assert len(steps) == 2 * (40 // 8)
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    torch.testing.assert_close(weights(student), expected, atol=1e-5, rtol=1e-4)


def test_a_patient_pack_mixes_images_and_labels_as_the_product_does(source):
    def pack(**changes):
        return Pack([Student(build("cnn-4", 5, (3, 16, 16), seed=1), Noting)], scene(source, **changes))

    plain, mixed = pack(), pack(mixup=1.0)
    plain.train()
    mixed.train()
    (images, labels, _), (blends, same, _) = plain.methods[0].seen[-1], mixed.methods[0].seen[-1]
    assert torch.equal(labels, same), "the batches are those of the plain pack"
    share = mixup_share(1.0, 0, 4)
    torch.testing.assert_close(blends, share * images + (1 - share) * images.roll(4, 0), atol=1e-5, rtol=1e-5)
    hot = torch.nn.functional.one_hot(labels, 5)
    torch.testing.assert_close(mixed.methods[0].targets, share * hot + (1 - share) * hot.roll(4, 0))


def test_images_mixed_early_are_left_as_they_are_later(source):
    def seen(**changes):
        pack = Pack(
            [Student(build("cnn-4", 5, (3, 16, 16), seed=1), Noting)], scene(source, epochs=4, **changes)
        )
        pack.train()
        return [images for images, *_ in pack.methods[0].seen]

    plain, mixed, early = seen(), seen(mixup=1.0), seen(mixup=1.0, mixup_until=0.5)
    half = len(plain) // 2
    for number, (image, blend, own) in enumerate(zip(plain, mixed, early, strict=True)):
        torch.testing.assert_close(own, blend if number < half else image)
    assert (early[0] - plain[0]).abs().max() > 0.1


def test_each_epoch_sees_every_image_once(source):
    pack = Pack([Student(build("cnn-4", 5, (3, 16, 16), seed=1), Noting)], scene(source, epochs=2))
    pack.train()
    labels = [torch.cat([step[1] for step in pack.methods[0].seen[start : start + 5]]) for start in (0, 5)]
    for half in labels:
        assert torch.bincount(half).tolist() == [8] * 5
    assert not torch.equal(*labels)


def test_neighbours_do_not_matter_even_if_one_diverges(source):
    def student(method="none"):
        return Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS[method], {}, taught)

    taught = tutor(source)
    alone = Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS["sinkhorn"], {}, taught)
    Pack([alone], scene(source)).train()
    bad = Student(build("cnn-6", 5, (3, 16, 16), seed=2), Broken)
    same = Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS["sinkhorn"], {}, taught)
    pack = Pack([bad, same, student("rkd")], scene(source))
    pack.train()
    pack.evaluate(source.task(0)[1])
    torch.testing.assert_close(weights(same), weights(alone), atol=1e-5, rtol=1e-4)
    assert math.isnan(bad.accuracy)
    assert math.isfinite(same.accuracy)


def test_students_of_two_teachers_learn_from_their_own(source):
    setting = scene(source)
    tutors = [tutor(source, arch) for arch in ("wrn-10-1", "cnn-6")]

    def student(one):
        return Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS["kd"], {}, one)

    together = [student(one) for one in tutors]
    Pack(together, setting).train()
    for one, packed in zip(tutors, together, strict=True):
        alone = student(one)
        Pack([alone], setting).train()
        torch.testing.assert_close(weights(packed), weights(alone), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "name", sorted({*METHODS, *STAGES} - {"sftn", "refilled-embedding", "refilled-classifier"})
)
def test_every_method_runs_in_a_pack(source, name):
    taught = tutor(source)
    for method in stages_of(name):
        student = Student(
            build("wrn-10-1", 5, (3, 16, 16), seed=1), method, {}, taught if method.needs else None
        )
        before = weights(student).clone()
        pack = Pack([student], scene(source))
        pack.train()
        assert math.isfinite(student.final_loss)
        assert not torch.equal(before, weights(student))


def test_a_smaller_rate_moves_less(source):
    moved = []
    for scale in (1.0, 0.1):
        student = Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS["none"], rate_scale=scale)
        before = weights(student).clone()
        Pack([student], scene(source)).train()
        moved.append(float((weights(student) - before).norm()))
    assert moved[1] < 0.3 * moved[0]


def test_training_in_bfloat16_rounds_and_does_the_same(source):
    def trained(bfloat16):
        student = Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS["none"])
        pack = Pack([student], replace(scene(source), bfloat16=bfloat16))
        assert pack.bfloat16 == bfloat16
        start = weights(student)
        pack.train()
        assert all(p.dtype == torch.float32 for p in student.network.parameters())
        return weights(student) - start

    exact, rounded = trained(False), trained(True)
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.99


def test_the_seed_gives_the_batches(source):
    seen = []
    for seed in (0, 0, 1):
        pack = Pack([Student(build("cnn-4", 5, (3, 16, 16), seed=1), Noting)], scene(source, seed=seed))
        pack.train()
        seen.append(pack.methods[0].seen[0][0])
    torch.testing.assert_close(seen[0], seen[1], atol=0, rtol=0)
    assert not torch.equal(seen[0], seen[2])


def test_no_two_steps_show_an_image_alike(source):
    pack = Pack([Student(build("cnn-4", 5, (3, 16, 16), seed=1), Noting)], scene(source, epochs=3))
    shifts = []
    pack.data = replace(
        pack.data, pixels=torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(40, 3, -1, -1)
    )
    pack.train()
    for images, _, _ in pack.methods[0].seen:
        shifts += [bytes(image[0].contiguous().numpy().tobytes()) for image in images]
    assert len(set(shifts)) > 40  # of 50 views: 5 x 5 shifts, mirrored or not


def test_accuracy_is_the_share_of_right_answers(source):
    _, test, _ = source.task(0)
    student = Student(build("cnn-4", 5, (3, 16, 16), seed=1), METHODS["none"])
    pack = Pack([student], scene(source, epochs=3))
    pack.train()
    pack.evaluate(test)
    with torch.no_grad():
        guess = student.network.eval()(normalised(test.pixels, source.mean, source.std)).argmax(1)
    assert student.accuracy == pytest.approx(float((guess == test.labels).float().mean()))
    assert student.network.training is False or student.accuracy > 0.2


def test_networks_of_one_form_are_compiled_once_for_all_packs(source, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    _compiled.cache_clear()
    torch._dynamo.reset()
    counters.clear()
    graphs, weights = [], []
    for compiled, seeds in ((False, (2, 3)), (True, (0, 1)), (True, (2, 3))):
        teacher = tutor(source)
        setting = replace(scene(source), compiled=compiled)
        networks = [build("cnn-4", 5, setting.data.shape, seed=seed) for seed in seeds]
        students = [Student(one, METHODS["sinkhorn"], tutor=teacher) for one in networks]
        Pack(students, setting).train()
        graphs.append(counters["stats"]["unique_graphs"])
        weights.append([student.network.classifier.weight.detach().clone() for student in students])
    _compiled.cache_clear()
    assert graphs[0] == 0 < graphs[1] == graphs[2]
    torch.testing.assert_close(weights[2], weights[0], atol=1e-5, rtol=1e-4)
