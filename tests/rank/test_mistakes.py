"""What cannot be ranked is explained."""

import pytest

from preceptor.core import PreceptorError
from preceptor.rank import rank


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": ["sinkorn"]}, "no metric 'sinkorn'; did you mean 'sinkhorn'?"),
        ({"metrics": []}, "no metric was named"),
        ({"by": "logme"}, "cannot rank by 'logme': it is not among the metrics bridge, sinkhorn"),
        ({"engine": "spark"}, "no engine 'spark'; there are local and ray"),
        ({"teachers": ["sam"]}, "no teacher 'sam' in .*; did you mean 'same'"),
        ({"options": {"leep": {}}}, "options for 'leep', which is not among the metrics bridge, sinkhorn"),
        (
            {"options": {"bridge": {"epsilom": 1.0}}},
            "'bridge' has no option 'epsilom'; it has epsilon, temperature",
        ),
        ({"device": "gpu"}, "device 'gpu' is unknown; expected auto, cpu, cuda, cuda:N or mps"),
        ({"seed": -1}, "seed -1 came; expected a whole number of 0 or more"),
        ({"memory_limit": "lots"}, "memory limit 'lots' is no size; write it as 800M or 4GB"),
    ],
)
def test_mistakes_are_explained_before_anything_starts(zoo, task, arguments, message):
    with pytest.raises(PreceptorError, match=message):
        rank(zoo, task, **arguments)


def test_an_empty_zoo_is_a_mistake(task, tmp_path):
    (tmp_path / "zoo").mkdir()
    with pytest.raises(PreceptorError, match="holds no teacher"):
        rank(str(tmp_path / "zoo"), task)


def test_no_teacher_ranked_is_said_when_the_best_is_asked_for(zoo, task):
    ranking = rank(zoo, task, teachers=["broken"])
    with pytest.raises(PreceptorError, match="no teacher could be ranked by bridge"):
        _ = ranking.best


def test_arrays_in_the_place_of_a_task_are_explained(zoo):
    with pytest.raises(PreceptorError, match=r"tuple came as data, .* with Task\.from_arrays"):
        rank(zoo, ([[0.0]], [0]))
