import numpy as np
import pytest

from preceptor.metrics import scatter as module
from preceptor.metrics.sampling import content_hash, stratified_rows
from preceptor.metrics.scatter import forget, largest_eigenvalue, leading_eigenpairs, scatter
from tests.metrics.rival_cases import task


@pytest.mark.parametrize("shape", [(90, 5), (20, 40)])
def test_moments_agree_with_numpy(shape):
    inputs = task(samples=shape[0], dimensions=shape[1])
    features, labels = inputs["features"], inputs["labels"]
    values, moments = scatter(features, labels, 4)
    centred = features - features.mean(axis=0)
    np.testing.assert_allclose(
        (values - moments.mean) @ (values - moments.mean).T, centred @ centred.T, atol=1e-9
    )
    spectrum = np.linalg.svd(centred, compute_uv=False) ** 2 / len(features)
    eigenvalues = np.linalg.eigvalsh(moments.covariance)[::-1]
    np.testing.assert_allclose(eigenvalues, np.resize(spectrum, len(eigenvalues)), atol=1e-9)
    np.testing.assert_allclose(moments.energies, (centred**2).sum(axis=1))
    np.testing.assert_allclose(moments.along_mean, centred @ features.mean(axis=0), atol=1e-9)
    means = np.stack([centred[labels == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(moments.class_means @ moments.class_means.T, means @ means.T, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("samples", [3, 90, 5000])
def test_constant_columns_have_no_variance_at_all(samples, dtype):
    features = task(samples=samples, dimensions=5)["features"].astype(dtype)
    features[:, [1, 3]] = [0.1, 1e6 / 3]
    _, moments = scatter(features, np.arange(samples) % 2, 2)
    if samples >= 5:
        assert not moments.covariance[[1, 3]].any()
        assert not moments.class_means[:, [1, 3]].any()
    features[:] = features[0]
    assert scatter(features, np.arange(samples) % 2, 2)[1].total_variance == 0


def test_the_same_arrays_are_not_worked_through_twice():
    inputs = task()
    first = scatter(inputs["features"], inputs["labels"], 4)[1]
    assert scatter(inputs["features"], inputs["labels"], 4)[1] is first


def test_an_array_overwritten_in_place_is_not_taken_for_the_old_one():
    features, labels = task()["features"], task()["labels"]
    first = scatter(features, labels, 4)[1]
    features *= -1  # same mean of squares, same covariance, other means
    second = scatter(features, labels, 4)[1]
    np.testing.assert_allclose(second.mean, -first.mean)
    labels[:] = labels[::-1].copy()
    third = scatter(features, labels, 4)[1]
    assert third is not second


def test_what_is_forgotten_is_computed_anew():
    inputs = task()
    first = scatter(inputs["features"], inputs["labels"], 4)[1]
    assert scatter(inputs["features"], inputs["labels"], 4)[1] is first
    forget()
    assert scatter(inputs["features"], inputs["labels"], 4)[1] is not first


def test_nothing_holds_the_features_once_the_metric_is_done():
    inputs = task()
    held = scatter(inputs["features"], inputs["labels"], 4)[1]
    assert all(value is not inputs["features"] for value in vars(held).values())


def test_shuffled_rows_give_the_same_bits():
    inputs = task(samples=300, dimensions=12)
    rows = np.random.default_rng(0).permutation(300)
    first = scatter(inputs["features"], inputs["labels"], 4)[1]
    second = scatter(inputs["features"][rows], inputs["labels"][rows], 4)[1]
    np.testing.assert_array_equal(first.covariance, second.covariance)
    np.testing.assert_array_equal(first.mean, second.mean)


@pytest.mark.parametrize("count", [1, 64])
@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_krylov_space_finds_the_leading_eigenpairs(decay, count):
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((600, 600)))[0]
    spectrum = decay ** np.arange(600)
    matrix = (turn * spectrum) @ turn.T
    values, vectors = leading_eigenpairs(matrix, count)
    np.testing.assert_allclose(values, spectrum[:count], rtol=2e-3)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-5)
    captured = (np.linalg.norm(turn[:, :count].T @ vectors) ** 2) / count
    assert captured > 0.99


def test_a_hash_belongs_to_its_row_whatever_the_order():
    features = task()["features"]
    rows = np.random.default_rng(0).permutation(120)
    np.testing.assert_array_equal(content_hash(features)[rows], content_hash(features[rows]))


def test_a_sample_of_rows_gives_each_class_its_share():
    labels = np.repeat(np.arange(4), [1000, 500, 250, 1])
    features = np.random.default_rng(0).standard_normal((1751, 3))
    hashes = content_hash(features)
    rows = stratified_rows(hashes, labels, 4, 175)
    np.testing.assert_array_equal(np.bincount(labels[rows]), [100, 50, 25, 1])
    assert len(np.unique(rows)) == len(rows)
    np.testing.assert_array_equal(np.sort(stratified_rows(hashes, labels, 4, 1751)), np.arange(1751))
    # A hash is as good as chance: the mean of the chosen is that of all.
    np.testing.assert_allclose(features[rows].mean(axis=0), 0, atol=0.3)


@pytest.mark.parametrize(
    "spectrum",
    [0.9 ** np.arange(600), np.linspace(1, 0, 600), np.ones(600), np.eye(1, 600)[0], np.zeros(600)],
    ids=["decay", "no gap", "all alike", "rank one", "zero"],
)
def test_the_largest_eigenvalue(spectrum):
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((600, 600)))[0]
    np.testing.assert_allclose(
        largest_eigenvalue((turn * spectrum) @ turn.T), spectrum[0], rtol=1e-3, atol=1e-12
    )
    small = (turn[:200] * spectrum) @ turn[:200].T
    np.testing.assert_allclose(
        largest_eigenvalue(small), np.linalg.eigvalsh(small)[-1], rtol=1e-9, atol=1e-12
    )


def test_rows_are_hashed_once_for_all_metrics(monkeypatch):
    calls = []
    forget()
    monkeypatch.setattr(module, "content_hash", lambda rows: calls.append(len(rows)) or content_hash(rows))
    inputs = task()
    first = module.row_hashes(inputs["features"])
    assert scatter(inputs["features"], inputs["labels"], 4)[1].hashes is first
    assert calls == [120]
    inputs["features"][0] += 1
    assert (module.row_hashes(inputs["features"]) != first).sum() == 1
