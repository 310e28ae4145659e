"""What holds for every rival metric: finite on hard inputs, and a function of the data alone."""

import numpy as np
import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.metrics.gbc import gbc
from preceptor.metrics.hscore import hscore
from preceptor.metrics.knn import knn
from preceptor.metrics.leep import leep
from preceptor.metrics.lfc import lfc
from preceptor.metrics.nce import nce
from preceptor.metrics.nleep import nleep
from preceptor.metrics.otce import otce
from preceptor.metrics.parc import parc
from preceptor.metrics.sfda import sfda
from preceptor.metrics.transrate import transrate
from tests.metrics.rival_cases import HARD, shuffled, task

RIVALS = [nce, leep, nleep, hscore, gbc, otce, transrate, sfda, parc, lfc, knn]
every_rival = pytest.mark.parametrize("metric", RIVALS, ids=lambda metric: metric.__name__)


@every_rival
@pytest.mark.parametrize("case", HARD)
def test_hard_inputs_give_a_finite_float(metric, case):
    score = metric(**HARD[case])
    assert isinstance(score, float)
    assert np.isfinite(score)


@every_rival
@pytest.mark.parametrize("case", ["friendly", "large", *HARD])
def test_the_order_of_samples_and_the_names_of_classes_do_not_matter(metric, case):
    inputs = (
        task() if case == "friendly" else task(samples=2500, dimensions=12) if case == "large" else HARD[case]
    )
    # float32 features are multiplied in float32 where that is faster, so the last digits move.
    tolerance = 1e-5 if inputs["features"].dtype == np.float32 else 1e-7
    np.testing.assert_allclose(metric(**shuffled(inputs)), metric(**inputs), rtol=tolerance, atol=tolerance)


@every_rival
def test_numpy_torch_and_half_precision_agree(metric):
    inputs = task(dtype=np.float32)
    expected = metric(**inputs)
    tensors = {key: torch.from_numpy(value) for key, value in inputs.items()}
    tensors["features"].requires_grad_()
    assert metric(**tensors) == expected
    doubles = {key: value.astype(np.float64) for key, value in inputs.items() if key != "labels"}
    np.testing.assert_allclose(metric(**doubles, labels=inputs["labels"]), expected, rtol=1e-4, atol=1e-6)


@every_rival
def test_inputs_are_left_alone_and_repeats_agree(metric):
    inputs = task()
    copies = {key: value.copy() for key, value in inputs.items()}
    first = metric(**inputs)
    for key, value in inputs.items():
        np.testing.assert_array_equal(value, copies[key])
    assert metric(**copies) == metric(**inputs) == first


@every_rival
def test_better_features_score_higher(metric):
    # The mean of five draws: single draws of a weak metric may fall either way.
    good = np.mean([metric(**task(signal=2.0, seed=seed)) for seed in range(5)])
    poor = np.mean([metric(**task(signal=0.2, seed=seed)) for seed in range(5)])
    assert good > poor


@every_rival
def test_errors_name_what_is_wrong(metric):
    inputs = task()
    with pytest.raises(PreceptorError, match=r"labels have shape \(119,\); expected \(120,\)"):
        metric(**inputs | {"labels": inputs["labels"][:-1]})
    name = "logits" if metric in (nce, leep) else "features"
    broken = inputs[name].copy()
    broken[3, 1] = np.nan
    with pytest.raises(PreceptorError, match=f"{name} has NaN or infinite values in 1 of 120 rows"):
        metric(**inputs | {name: broken})
    with pytest.raises(PreceptorError, match=rf"{name} has shape \(120,\)"):
        metric(**inputs | {name: inputs[name][:, 0]})
