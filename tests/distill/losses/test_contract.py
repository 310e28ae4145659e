"""What every registered method has to say about itself and to refuse, whatever its formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from preceptor.core import PreceptorError
from preceptor.distill.losses import METHODS
from tests.distill.losses.cases import (
    MAPS,
    NAMES,
    SAME,
    TAUGHT,
    build,
    loss,
    make_context,
    make_step,
)


@pytest.mark.parametrize("name", NAMES)
def test_declares_itself(name):
    method = METHODS[name]
    assert method.name == name
    assert method.reference
    assert method.needs <= {"teacher", "same-classes", "maps", "views", "special-teacher"}
    assert method.__doc__
    context = make_context()
    terms = build(name, context)(make_step(name, context))
    assert tuple(terms) == method.term_names
    assert all(value.ndim == 0 for value in terms.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused(name):
    with pytest.raises(PreceptorError, match=rf"method {name.replace('+', '.')} has no option \['wieght'\]"):
        METHODS[name](make_context(), wieght=3.0)


@pytest.mark.parametrize("name", NAMES)
def test_unequal_classes_work_or_are_refused(name):
    context = make_context(same=False)
    if name in SAME:
        with pytest.raises(PreceptorError) as refusal:
            METHODS[name](context)
        assert str(refusal.value) == (
            f"method {name} compares predictions class by class and needs a teacher with the student's "
            "classes; "
            "only the student has cat, dog, only the teacher has car, ship, tram: "
            "use a method without this need, such as sinkhorn or probe-kd"
        )
    else:
        assert torch.isfinite(loss(build(name, context), make_step(name, context)))


@pytest.mark.parametrize("name", TAUGHT)
def test_a_missing_teacher_is_refused(name):
    context = make_context(teacher=False)
    with pytest.raises(
        PreceptorError, match="needs a teacher and none was given; pass one or use method none"
    ):
        METHODS[name](context)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("side", ["student", "teacher"])
def test_missing_maps_are_refused(name, side):
    context = make_context()
    shape = getattr(context, f"{side}_shape")
    context = replace(context, **{f"{side}_shape": replace(shape, maps=())})
    with pytest.raises(
        PreceptorError, match=f"method {name} compares feature maps and the {side} gives none"
    ):
        METHODS[name](context)
