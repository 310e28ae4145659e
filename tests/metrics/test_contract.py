"""What every registered metric promises."""

import inspect
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, needs
from tests.metrics.rival_cases import HARD, task

TENSORS = {"features", "labels", "logits", "student_logits"}
EVERY_CLASS_NEEDS_A_SAMPLE = {"sinkhorn", "sinkhorn-single", "sinkhorn-exact", "bridge"}
ON_THE_TEACHERS_CLASSES = {*EVERY_CLASS_NEEDS_A_SAMPLE, "otce"}  # they take classifier or centers


def with_student(inputs):
    """The inputs and logits of a student that knows the labels somewhat."""
    labels = np.asarray(inputs["labels"])
    noise = np.random.default_rng(7).standard_normal((len(labels), int(labels.max()) + 1))
    return {**inputs, "student_logits": noise + 2 * np.eye(noise.shape[1])[labels]}


def reordered(inputs, seed=3):
    """The same samples in another order."""
    order = np.random.default_rng(seed).permutation(len(inputs["labels"]))
    per_sample = ("features", "labels", "logits", "student_logits")
    return {name: value[order] if name in per_sample else value for name, value in inputs.items()}


def renamed(inputs, seed=4):
    """The same samples with the class numbers of both sides permuted."""
    generator = np.random.default_rng(seed)
    students = generator.permutation(inputs["student_logits"].shape[1])  # new -> old
    teachers = generator.permutation(inputs["logits"].shape[1])
    return {
        "features": inputs["features"],
        "labels": np.argsort(students)[inputs["labels"]],
        "logits": inputs["logits"][:, teachers],
        "classifier": inputs["classifier"][teachers],
        "student_logits": inputs["student_logits"][:, students],
    }


@pytest.fixture(scope="module", params=[(120, 8), (40, 90)], ids=["N > d", "N < d"])
def inputs(request):
    return with_student(task(*request.param, classes=4, sources=6, signal=1.0))


@pytest.mark.parametrize("name", METRICS)
def test_the_order_of_samples_does_not_matter(name, inputs):
    expected = METRICS[name](**inputs)
    np.testing.assert_allclose(METRICS[name](**reordered(inputs)), expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_the_numbers_of_classes_do_not_matter(name, inputs):
    expected = METRICS[name](**inputs)
    np.testing.assert_allclose(METRICS[name](**renamed(inputs)), expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_deterministic_and_leaves_its_inputs_alone(name, inputs):
    copies = {key: value.copy() for key, value in inputs.items()}
    first = METRICS[name](**copies)
    torch.manual_seed(1)
    assert METRICS[name](**copies) == first
    for key, value in inputs.items():
        np.testing.assert_array_equal(copies[key], value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", METRICS)
def test_numpy_and_torch_give_the_same_float(name, dtype, inputs):
    arrays = {key: value if key == "labels" else value.astype(dtype) for key, value in inputs.items()}
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    tensors["features"].requires_grad_()
    value = METRICS[name](**arrays)
    assert type(value) is float
    assert METRICS[name](**tensors) == value


@pytest.mark.parametrize("name", METRICS)
def test_float32_agrees_with_float64(name, inputs):
    single = {key: value if key == "labels" else value.astype(np.float32) for key, value in inputs.items()}
    np.testing.assert_allclose(METRICS[name](**single), METRICS[name](**inputs), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("name", METRICS)
def test_finite_on_hard_inputs(name, case):
    inputs = with_student(HARD[case])
    if case == "gaps in the labels" and name in EVERY_CLASS_NEEDS_A_SAMPLE:
        with pytest.raises(PreceptorError, match="class 0 has no sample"):
            METRICS[name](**inputs)
        return
    assert np.isfinite(METRICS[name](**inputs))


@pytest.mark.parametrize("name", METRICS)
def test_needs_are_the_whole_of_what_it_needs(name, inputs):
    required = needs(name)
    assert set(required) <= TENSORS
    only = {key: inputs[key] for key in required}
    if name in ON_THE_TEACHERS_CLASSES:
        only["classifier"] = inputs["classifier"]
    assert METRICS[name](**only) == METRICS[name](**inputs)
    for key in required:
        with pytest.raises(TypeError, match=key):
            METRICS[name](**{other: only[other] for other in only if other != key})
        with pytest.raises(PreceptorError, match=f"{key} is missing; this metric needs it"):
            METRICS[name](**{**only, key: None})


@pytest.mark.parametrize("name", sorted(ON_THE_TEACHERS_CLASSES))
def test_centers_will_do_for_the_classifier(name, inputs):
    others = {key: value for key, value in inputs.items() if key != "classifier"}
    centers = np.random.default_rng(5).standard_normal(inputs["classifier"].shape)
    expected = METRICS[name](**others, classifier=centers)
    assert METRICS[name](**others, centers=centers) == expected
    assert METRICS[name](**inputs, centers=centers) == expected != METRICS[name](**inputs)
    with pytest.raises(PreceptorError, match="neither classifier nor centers came; this metric needs one of"):
        METRICS[name](**others)


@pytest.mark.parametrize("name", METRICS)
def test_every_option_is_a_keyword_and_others_are_ignored(name):
    kinds = {parameter.kind for parameter in inspect.signature(METRICS[name]).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_an_unknown_metric_is_named_with_those_there_are():
    with pytest.raises(PreceptorError, match="no metric 'logmee'; there are bridge, sinkhorn, "):
        needs("logmee")


@pytest.fixture(scope="module")
def teachers():
    """Small networks seen by digits 5 to 9: trained on these, on 3 to 7, not trained; three of each.

    Deep and narrow, so that an untrained one really loses what the task needs: wide random layers keep
    digits apart better than a teacher of other digits does, and then the metrics rightly say so.
    """
    images, digits = load_digits(return_X_y=True)
    images = torch.from_numpy(images / 16).float()
    source, target = slice(0, 900), slice(900, None)
    mine = digits[target] >= 5
    task_images, labels = images[target][mine], digits[target][mine] - 5
    student = _network(images[source], digits[source], (5, 6, 7, 8, 9), steps=30, seed=9)
    student_logits = student(task_images).detach().numpy()
    kinds = {
        "same": ((5, 6, 7, 8, 9), 100),
        "overlapping": ((3, 4, 5, 6, 7), 100),
        "random": ((5, 6, 7, 8, 9), 0),
    }
    result = {}
    for name, (classes, steps) in kinds.items():
        networks = [_network(images[source], digits[source], classes, steps, seed) for seed in range(3)]
        result[name] = [
            {
                "features": network[:-1](task_images).detach().numpy(),
                "labels": labels,
                "logits": network(task_images).detach().numpy(),
                "classifier": network[-1].weight.detach().numpy(),
                "student_logits": student_logits,
            }
            for network in networks
        ]
    return result


def _network(images, digits, classes, steps, seed):
    widths = (64, 32, 32, 32, 16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [layer for pair in pairwise(widths) for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], len(classes)))
    rows = np.isin(digits, classes)
    labels = torch.from_numpy(np.searchsorted(classes, digits[rows]))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images[rows]), labels).backward()
        optimizer.step()
    return network


@pytest.mark.parametrize("name", METRICS)
def test_same_classes_beat_overlapping_ones_beat_a_random_network(name, teachers):
    scores = {kind: np.mean([METRICS[name](**each) for each in found]) for kind, found in teachers.items()}
    assert scores["same"] > scores["overlapping"] > scores["random"], scores
