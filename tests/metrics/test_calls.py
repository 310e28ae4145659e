"""What every registered metric makes of odd calls: unknown keywords, other defaults, strange arrays, wrong options."""

import pickle
import re

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.metrics import METRICS, options_of
from preceptor.metrics.scatter import forget
from tests.metrics.rival_cases import task
from tests.metrics.test_contract import EVERY_CLASS_NEEDS_A_SAMPLE, with_student
from tests.torch_defaults import UNUSUAL, unusual


@pytest.fixture(scope="module", params=[(120, 8), (40, 90)], ids=["N > d", "N < d"])
def inputs(request):
    return with_student(task(*request.param, classes=4, sources=6, signal=1.0))


@pytest.mark.parametrize("name", METRICS)
def test_a_keyword_that_nobody_knows_is_refused_with_those_there_are(name, inputs):
    options = ", ".join(options_of(name)) or "none"
    with pytest.raises(PreceptorError, match=f"has no option 'epsilom'; its options are: {options}$"):
        METRICS[name](**inputs, epsilom=0.1)
    data = {"centers": inputs["classifier"], "student_classes": ["a", "b", "c", "d"]}
    assert METRICS[name](**inputs, **data) == METRICS[name](**inputs)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_travels_to_other_processes(name):
    assert pickle.loads(pickle.dumps(METRICS[name])) is METRICS[name]
    assert METRICS[name].__name__ == name.replace("-", "_")


@pytest.mark.parametrize("name", METRICS)
def test_torchs_defaults_of_the_caller_change_nothing(name, inputs):
    expected = METRICS[name](**inputs)
    forget()
    with unusual(*UNUSUAL):
        assert METRICS[name](**inputs) == expected
        assert (torch.zeros(1).device.type, torch.zeros(1).dtype) == ("meta", torch.float64)


@pytest.mark.parametrize("name", METRICS)
def test_arrays_that_torch_does_not_take(name, inputs):
    expected = METRICS[name](**inputs)
    backwards = {
        key: value if key == "classifier" else np.ascontiguousarray(value[::-1])[::-1]
        for key, value in inputs.items()
    }
    assert backwards["logits"].strides[0] < 0
    frozen = {key: value.copy() for key, value in inputs.items()}
    for value in frozen.values():
        value.setflags(write=False)
    for odd in (backwards, frozen):
        np.testing.assert_allclose(METRICS[name](**odd), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", METRICS)
def test_a_wild_label_asks_for_no_table_of_classes(name, inputs):
    labels = inputs["labels"].copy()
    labels[labels == 3] = 10**12
    if name in EVERY_CLASS_NEEDS_A_SAMPLE:
        with pytest.raises(
            PreceptorError, match=r"class 3 has no sample|expected less than 4, the class count"
        ):
            METRICS[name](**{**inputs, "labels": labels})
    else:
        assert METRICS[name](**{**inputs, "labels": labels}) == METRICS[name](**inputs)
    with pytest.raises(
        PreceptorError, match=r"labels go from 0.* to 1e\+300; expected class indices from 0 on"
    ):
        METRICS[name](**{**inputs, "labels": np.where(labels == 0, 1e300, 0)})


@pytest.mark.parametrize("dimensions", [8, 300])
@pytest.mark.parametrize("scale", [1e-25, 1e25])
@pytest.mark.parametrize("name", METRICS)
def test_the_scale_of_the_features_may_be_extreme(name, scale, dimensions):
    inputs = with_student(task(400, dimensions, classes=4, sources=6, signal=1.0, dtype=np.float32))
    value = METRICS[name](**{**inputs, "features": inputs["features"] * np.float32(scale)})
    if name == "sfda":  # its lambda depends on the scale
        assert np.isfinite(value)
    else:
        np.testing.assert_allclose(value, METRICS[name](**inputs), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("value", [0.1, 3.7, 1e6 / 3])
@pytest.mark.parametrize("name", METRICS)
def test_constant_features_score_alike_in_either_precision(name, value):
    inputs = with_student(task(40, 5, classes=3, sources=6))
    inputs["labels"][:5] = 0  # classes of different size have sums that round apart
    inputs["features"] = np.full((40, 5), value) * np.array([1, 1.3, 0.7, 0.11, 2.9])
    single = METRICS[name](**{**inputs, "features": inputs["features"].astype(np.float32)})
    np.testing.assert_allclose(METRICS[name](**inputs), single, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["bridge", "sinkhorn", "sinkhorn-single", "leep", "nce"])
def test_only_the_differences_of_the_logits_count(name, inputs):
    moved = {key: inputs[key] + 1e9 for key in ("logits", "student_logits")}
    np.testing.assert_allclose(METRICS[name](**{**inputs, **moved}), METRICS[name](**inputs), rtol=1e-5)
    sure = {key: inputs[key] * 1e10 for key in moved}
    surest = {key: inputs[key] * 1e100 for key in moved}
    np.testing.assert_allclose(METRICS[name](**{**inputs, **surest}), METRICS[name](**{**inputs, **sure}))


@pytest.mark.parametrize(
    ("features", "text"),
    [
        (torch.ones(4, 2, dtype=torch.complex64), "features is of type complex64; expected numbers"),
        ([[1, 2], [3]], "features has rows of different lengths; expected a table of numbers"),
    ],
)
def test_features_that_are_no_table_of_real_numbers_are_refused(features, text):
    with pytest.raises(PreceptorError, match=f"^{text}$"):
        METRICS["logme"](features=features, labels=[0, 1])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, {option: value})
        for name, option, values in [
            ("bridge", "epsilon", (0, -0.1, np.nan, np.inf, "small")),
            ("bridge", "temperature", (0, -1.0)),
            ("sinkhorn", "epsilon", (0, -0.1)),
            ("sinkhorn", "temperature", (0.0,)),
            ("sinkhorn", "strength", (0, -1, np.nan)),
            ("sinkhorn", "probe_tolerance", (0,)),
            ("sinkhorn", "tolerance", (0,)),
            ("sinkhorn-single", "epsilon", (0,)),
            ("transrate", "epsilon", (0,)),
            ("otce", "epsilon", (0,)),
            ("otce", "tolerance", (-1,)),
            ("otce", "max_samples", (0, 1.5)),
            ("probe", "strength", (0, -10.0)),
            ("probe", "tolerance", (0,)),
            ("probe", "folds", (1, 2.5)),
            ("knn", "neighbors", (0, 2.5)),
            ("knn", "max_queries", (0, -5)),
            ("nleep", "components_per_class", (0,)),
            ("nleep", "max_iterations", (0,)),
            ("parc", "max_samples", (1,)),
        ]
        for value in values
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(name, options, inputs):
    ((option, value),) = options.items()
    number = "a finite number above 0|a whole number, at least [12]"
    with pytest.raises(PreceptorError, match=f"^{option} is {re.escape(repr(value))}; expected ({number})$"):
        METRICS[name](**inputs, **options)
