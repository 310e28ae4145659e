from preceptor.wording import counted, hint, listed, with_comma_quoted


def test_a_hint_offers_near_names_only():
    assert hint("blu", ["blue", "big", "green"], "see the list") == "did you mean 'blue'?"
    assert hint("x", ["blue, big"], "see the list") == "see the list"
    assert hint("blue", ["blue, big", "blues"], "") == "did you mean 'blues' or 'blue, big'?"


def test_one_is_told_from_several():
    assert [counted(number, "epoch") for number in (0, 1, 2)] == ["0 epochs", "1 epoch", "2 epochs"]
    assert [counted(number, "entry", "entries") for number in (1, 7)] == ["1 entry", "7 entries"]


def test_a_list_ends_somewhere():
    assert listed("abc", 3) == "a, b, c"
    assert listed(iter("abcde"), 3) == "a, b, c and 2 more"
    assert listed([]) == ""


def test_a_comma_is_told_from_that_of_the_list():
    assert listed(map(with_comma_quoted, ["salt, pepper", "tea"])) == "'salt, pepper', tea"
