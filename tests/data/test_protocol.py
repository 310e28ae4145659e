import pytest
from hypothesis import given
from hypothesis import strategies as st

from preceptor.core import PreceptorError
from preceptor.data.protocol import (
    Window,
    double_sliding_windows,
    overlap,
    parse_classes,
    parse_window,
    sliding_windows,
    window_classes,
)


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_cifar100_windows_of_the_paper(seed):
    windows = sliding_windows(100, 50, 10, seed)
    assert len(windows) == 6
    assert [overlap(windows[0], window) for window in windows] == [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_cub_windows_of_the_paper(seed):
    windows = sliding_windows(200, 100, 25, seed)
    assert len(windows) == 5
    assert [overlap(windows[0], window) for window in windows] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_cub_double_windows_give_five_teachers_for_each_of_five_tasks():
    pairs = double_sliding_windows(200, 100, 25, seed=0)
    assert len(pairs) == len(set(pairs)) == 25
    ratios = [overlap(teacher, student) for teacher, student in pairs]
    assert ratios[:5] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert ratios[10:15] == [0.5, 0.75, 1.0, 0.75, 0.5]


def test_seed_sorts_the_classes_and_none_leaves_them():
    assert sliding_windows(6, 3, 3) == ((0, 1, 2), (3, 4, 5))
    assert sliding_windows(100, 50, 10, seed=1) == sliding_windows(100, 50, 10, seed=1)
    assert sliding_windows(100, 50, 10, seed=1) != sliding_windows(100, 50, 10, seed=2)
    assert window_classes(10, Window(0, 10, 3)) == (1, 5, 6, 0, 9, 4, 7, 2, 8, 3)  # results depend on it


@given(
    num_classes=st.integers(2, 60),
    size=st.integers(2, 60),
    step=st.integers(1, 20),
    seed=st.none() | st.integers(0, 9),
)
def test_windows_are_what_they_say(num_classes, size, step, seed):
    if size > num_classes:
        with pytest.raises(PreceptorError, match="only"):
            sliding_windows(num_classes, size, step, seed)
        return
    windows = sliding_windows(num_classes, size, step, seed)
    assert len(windows) == (num_classes - size) // step + 1
    for index, window in enumerate(windows):
        assert len(set(window)) == size
        assert set(window) <= set(range(num_classes))
        assert overlap(windows[0], window) == max(0, size - index * step) / size
        assert window == window_classes(num_classes, Window(index * step, size, seed))


def test_overlap_counts_the_students_classes():
    assert overlap(["a", "b", "c", "d"], ["a", "x"]) == 0.5
    assert overlap([], ["a"]) == 0.0
    with pytest.raises(PreceptorError, match="no classes"):
        overlap(["a"], [])


@pytest.mark.parametrize(
    ("text", "window"), [("20:50@0", (20, 50, 0)), ("0:2", (0, 2, None)), (" 3:4@12 ", (3, 4, 12))]
)
def test_window_text(text, window):
    assert parse_window(text) == window


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:2@", "-1:2", "1:2:3", "1.5:2"])
def test_wrong_window_text(text):
    with pytest.raises(PreceptorError, match="START:SIZE or START:SIZE@SEED"):
        parse_window(text)


@pytest.mark.parametrize(
    ("window", "message"),
    [((5, 6, None), "ends at class 11 but there are only 10"), ((0, 1, None), "size of 2 or more")],
)
def test_window_that_does_not_fit(window, message):
    with pytest.raises(PreceptorError, match=message):
        window_classes(10, Window(*window))
    with pytest.raises(PreceptorError, match="step of 1"):
        sliding_windows(10, 5, 0)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b,c", ["a", "b", "c"]),
        (" a , b ", ["a", "b"]),
        ('"salt, pepper", oil', ["salt, pepper", "oil"]),
        ('5" disk,"a ""b"""', ['5" disk', 'a "b"']),
        ("", [""]),
    ],
)
def test_class_names_with_commas_stand_in_quotes(text, names):
    assert parse_classes(text) == names


def test_a_quote_without_an_end_is_told():
    with pytest.raises(PreceptorError, match=r"cannot be told apart .*in double quotes: \"salt, pepper\",b"):
        parse_classes('"salt, pepper')
