"""Agreement between metrics: Spearman's correlation over the teachers that have both scores."""

import math

import pytest
from scipy.stats import spearmanr

from preceptor.core import RankingRow
from preceptor.rank.table import agreement

A, B = [0.3, 0.1, 0.9, 0.9, 0.2], [5.0, 1.0, 2.0, 7.0, 3.0]


def rows(**columns):
    values = zip(*columns.values(), strict=True)
    return [
        RankingRow(f"t{k}", None, {name: x for name, x in zip(columns, row, strict=True) if x is not None})
        for k, row in enumerate(values)
    ]


def test_agreement_is_spearmans_over_teachers_with_both():
    found = agreement(rows(a=A, b=[*B[:4], None], c=[math.nan, *B[1:]]), ["a", "b", "c"])
    assert found["a"]["b"] == found["b"]["a"] == pytest.approx(spearmanr(A[:4], B[:4]).statistic)
    assert found["a"]["c"] == pytest.approx(spearmanr(A[1:], B[1:]).statistic)


def test_where_there_is_no_order_to_agree_on_there_is_no_number():
    assert agreement(rows(a=A[:2], b=B[:2]), ["a", "b"]) == {}
    assert agreement(rows(a=A, b=[1.0] * 5), ["a", "b"]) == {}
    assert agreement([], ["a", "b"]) == {}
    assert list(agreement(rows(a=A, b=B, c=[1.0] * 5), ["a", "b", "c"])) == ["a", "b"]
