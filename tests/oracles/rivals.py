"""The rival metrics by brute force: loops over samples, pairs and classes, dense matrices, scipy, sklearn."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from scipy import integrate, optimize, special, stats
from sklearn.covariance import ledoit_wolf


def nce_by_counting(predictions, labels):
    """-H(Y | Z) from the definition, with Counters."""
    joint, source = Counter(zip(labels, predictions, strict=True)), Counter(predictions)
    total = len(labels)
    return sum(n / total * math.log(n / source[z]) for (_, z), n in joint.items())


def leep_by_loops(probabilities, labels):
    """LEEP by three nested loops over plain floats."""
    samples, sources = len(labels), len(probabilities[0])
    total = 0.0
    for n in range(samples):
        expected = 0.0
        for z in range(sources):
            mass = math.fsum(probabilities[m][z] for m in range(samples))
            same = math.fsum(probabilities[m][z] for m in range(samples) if labels[m] == labels[n])
            if mass > 0:
                expected += same / mass * probabilities[n][z]
        total += math.log(expected)
    return total / samples


def hscore_dense(features, labels):
    """tr(S_alpha^-1 (1 - alpha) B) with sklearn's Ledoit-Wolf estimate and dense inverses."""
    features = np.asarray(features, dtype=np.float64)
    shrunk, alpha = ledoit_wolf(features)
    means = np.stack([features[labels == label].mean(axis=0) for label in labels])
    between = np.atleast_2d(np.cov(means.T, bias=True))
    return float(np.trace(np.linalg.pinv(shrunk, rcond=1e-10) @ between) * (1 - alpha))


def lfc_dense(features, labels):
    """Pearson's coefficient of all N^2 entries of the two similarity matrices."""
    features = np.asarray(features, dtype=np.float64)
    kernel = features @ features.T
    equal = np.where(np.equal.outer(labels, labels), 1.0, -1.0)
    return float(stats.pearsonr(kernel.ravel(), equal.ravel()).statistic)


def transrate_dense(features, labels, epsilon=1e-4, normalize=True):
    """Coding rates from singular values of each dense matrix."""
    centred = np.asarray(features, dtype=np.float64) - np.mean(features, axis=0, dtype=np.float64)
    if normalize:
        centred = centred / math.sqrt((centred**2).sum(axis=1).mean())

    def rate(rows):
        singular = np.linalg.svd(rows, compute_uv=False)
        return 0.5 * np.log1p(singular**2 / (len(rows) * epsilon)).sum()

    inner = sum((labels == c).mean() * rate(centred[labels == c]) for c in np.unique(labels))
    return float(rate(centred) - inner)


def bhattacharyya_1d(mean_a, deviation_a, mean_b, deviation_b):
    """The overlap integral of sqrt(f g) for two Gaussians on the line, by quadrature."""
    first, second = stats.norm(mean_a, deviation_a), stats.norm(mean_b, deviation_b)
    low = min(mean_a - 12 * deviation_a, mean_b - 12 * deviation_b)
    high = max(mean_a + 12 * deviation_a, mean_b + 12 * deviation_b)
    return integrate.quad(lambda x: math.sqrt(first.pdf(x) * second.pdf(x)), low, high, limit=200)[0]


def gbc_by_loops(features, labels, covariance="spherical", dimensions=64):
    """GBC over pairs of classes with dense covariance matrices in principal coordinates from an SVD."""
    centred = np.asarray(features, dtype=np.float64) - np.mean(features, axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    projected = centred @ axes[:dimensions].T
    gaussians = []
    for label in np.unique(labels):
        rows = projected[labels == label]
        variances = rows.var(axis=0, ddof=1)
        if covariance == "spherical":
            variances = np.full(len(variances), variances.mean())
        gaussians.append((rows.mean(axis=0), np.diag(variances)))
    total = 0.0
    for i, (mean_i, cov_i) in enumerate(gaussians):
        for j, (mean_j, cov_j) in enumerate(gaussians):
            if i == j:
                continue
            middle = (cov_i + cov_j) / 2
            apart = mean_i - mean_j
            logs = [np.linalg.slogdet(c)[1] for c in (middle, cov_i, cov_j)]
            distance = apart @ np.linalg.inv(middle) @ apart / 8 + (logs[0] - (logs[1] + logs[2]) / 2) / 2
            total -= math.exp(-distance)
    return total


def sfda_dense(features, labels):
    """SFDA step by step with dense inverses and scipy's softmax; no rotation, no blocks."""
    features = np.asarray(features, dtype=np.float64)
    dimensions = features.shape[1]
    names = np.unique(labels)
    priors = np.array([(labels == c).mean() for c in names])
    jitter = 1e-10 * features.var(axis=0).sum() / dimensions

    def fit(rows, strength):
        means = np.stack([rows[labels == c].mean(axis=0) for c in names])
        within = sum(
            p * np.atleast_2d(np.cov(rows[labels == c].T, bias=True))
            for p, c in zip(priors, names, strict=True)
        )
        if strength is None:
            strength = max(math.exp(-5 * np.linalg.eigvalsh(within)[-1]), 1e-10)
        shrunk = (1 - strength) * within + (strength * np.trace(within) / dimensions + jitter) * np.eye(
            dimensions
        )
        inverse = np.linalg.inv(shrunk)
        scores = rows @ inverse @ means.T
        scores = scores - 0.5 * np.array([m @ inverse @ m for m in means]) + np.log(priors)
        return strength, means, scores

    strength, means, scores = fit(features, None)
    probability = special.softmax(scores, axis=1)
    mixed = np.empty_like(features)
    for n, label in enumerate(labels):
        own = int(np.flatnonzero(names == label)[0])
        others = np.delete(means, own, axis=0).mean(axis=0)
        mixed[n] = probability[n, own] * features[n] + (1 - probability[n, own]) * others
    _, _, scores = fit(mixed, strength)
    logs = special.log_softmax(scores, axis=1)
    return float(np.mean([logs[n, int(np.flatnonzero(names == label)[0])] for n, label in enumerate(labels)]))


def parc_dense(features, labels):
    """Spearman over all pairs from two dense matrices of Pearson distances.

    Rounded first: rounding errors in the correlations of one-hot labels would make ranks of what is equal.
    """
    features = np.asarray(features, dtype=np.float64)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    one_hot = (labels[:, None] == np.unique(labels)).astype(np.float64)
    pairs = np.triu_indices(len(labels), 1)
    first, second = (np.round(1 - np.corrcoef(side)[pairs], 9) for side in (features, one_hot))
    return float(stats.spearmanr(first, second).statistic)


def knn_by_loops(features, labels, neighbors=5):
    """Leave-one-out vote with shared ties, sample by sample, from differences."""
    features = np.asarray(features, dtype=np.float64)
    neighbors = min(neighbors, len(features) - 1)
    total = 0.0
    for n in range(len(features)):
        others = [m for m in range(len(features)) if m != n]
        distance = {m: float(((features[m] - features[n]) ** 2).sum()) for m in others}
        last = sorted(distance.values())[neighbors - 1]
        close = 1e-9 * (1 + last)
        closer = [m for m in others if distance[m] < last - close]
        tied = [m for m in others if abs(distance[m] - last) <= close]
        votes = Counter({label: 0.0 for label in labels})
        for m in closer:
            votes[labels[m]] += 1
        for m in tied:
            votes[labels[m]] += (neighbors - len(closer)) / len(tied)
        leaders = [label for label, count in votes.items() if count > max(votes.values()) - 1e-6]
        total += (labels[n] in leaders) / len(leaders)
    return total / len(features)


def transport_plan_exact(source_mass, target_mass, cost):
    """The plan of unregularised transport by linear programming."""
    m, n = cost.shape
    rows = np.kron(np.eye(m), np.ones(n))
    columns = np.kron(np.ones(m), np.eye(n))
    solution = optimize.linprog(
        cost.ravel(),
        A_eq=np.vstack([rows, columns]),
        b_eq=np.concatenate([source_mass, target_mass]),
        bounds=(0, None),
    )
    return solution.x.reshape(m, n)


def entropic_plan(source_mass, target_mass, cost, epsilon, iterations=5000):
    """The entropic plan by plain scaling in float64."""
    kernel = np.exp(-cost / epsilon)
    scale = np.ones(len(target_mass))
    for _ in range(iterations):
        left = source_mass / (kernel @ scale)
        scale = target_mass / (kernel.T @ left)
    return left[:, None] * kernel * scale


def otce_dense(features, labels, source, epsilon=0.1, distance_weight=1.0):
    """OTCE from a plain entropic plan, with loops over source classes and labels."""
    unit_source = source / np.linalg.norm(source, axis=1, keepdims=True)
    unit_target = features / np.linalg.norm(features, axis=1, keepdims=True)
    cost = ((unit_source[:, None] - unit_target[None]) ** 2).sum(axis=2)
    m, n = cost.shape
    plan = entropic_plan(np.full(m, 1 / m), np.full(n, 1 / n), cost, epsilon)
    entropy = 0.0
    for z in range(m):
        for label in np.unique(labels):
            joint = plan[z, labels == label].sum()
            entropy -= joint * math.log(joint / plan[z].sum())
    return -entropy - distance_weight * float((plan * cost).sum())
