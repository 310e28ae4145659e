"""Second ways to the numbers of preceptor.metrics: dense, slow, from other people's optimisers."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression


def greatest_log_evidence(features, target, largest_precision=1e6):
    """Max over alpha, beta of log N(target | 0, I/beta + F F^T/alpha) / N, by scipy from many starts."""
    features = np.asarray(features, dtype=np.float64)
    samples = len(target)
    products = features @ features.T

    def negative(logs):
        alpha, beta = np.exp(logs)
        covariance = np.eye(samples) / beta + products / alpha
        factor = scipy.linalg.cho_factor(covariance, lower=True)
        log_determinant = 2 * np.log(np.diag(factor[0])).sum()
        quadratic = target @ scipy.linalg.cho_solve(factor, target)
        return 0.5 * (samples * np.log(2 * np.pi) + log_determinant + quadratic) / samples

    typical = np.log(max(np.trace(products) / samples, 1e-30))
    bounds = [(typical - 12, typical + 25), (-10, np.log(largest_precision))]
    starts = [(typical + a, b) for a in (-6, 0, 6) for b in (0, 4, 10)]
    found = [scipy.optimize.minimize(negative, start, bounds=bounds, method="L-BFGS-B") for start in starts]
    best = min(found, key=lambda result: result.fun)
    polished = scipy.optimize.minimize(
        negative, best.x, bounds=bounds, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13}
    )
    return -min(best.fun, polished.fun)


def scaled(features):
    """Centred, with a root mean squared norm of 1: what the probe is defined on."""
    features = np.asarray(features, dtype=np.float64)
    centred = features - features.mean(axis=0)
    norm = np.sqrt((centred**2).sum(axis=1).mean())
    return centred / norm if norm > 0 else centred


def probe_loss(logits, weight, labels, strength=10.0):
    """Cross-entropy plus penalty, as the probe defines them."""
    cross_entropy = (logsumexp(logits, axis=1) - logits[np.arange(len(labels)), labels]).mean()
    return cross_entropy + (weight**2).sum() / (2 * strength * len(labels))


def converged_probe(features, labels, strength=10.0):
    """Logits and loss of scikit-learn's fit, run to the end."""
    x = scaled(features)
    model = LogisticRegression(C=strength, tol=1e-9, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        model.fit(x, labels)
    weight, bias = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn keeps one row there, and penalises the difference alone
        raise ValueError("two classes are parametrised differently there; use three or more")
    logits = x @ weight.T + bias
    return logits, probe_loss(logits, weight, labels, strength)


def transport(p, q, cost, epsilon, iterations=20_000):
    """One entropic problem in float64, in the log domain: value, plan."""
    log_p, log_q = np.log(p), np.log(q)
    alpha, beta = np.zeros(len(p)), np.zeros(len(q))
    for _ in range(iterations):
        alpha = epsilon * (log_p - logsumexp((beta[None, :] - cost) / epsilon, axis=1))
        new = epsilon * (log_q - logsumexp((alpha[:, None] - cost) / epsilon, axis=0))
        change, beta = np.abs(new - beta).max(), new
        if change < 1e-13:
            break
    plan = np.exp((alpha[:, None] + beta[None, :] - cost) / epsilon)
    entropy = -(plan * (np.log(plan) - 1)).sum()
    return (plan * cost).sum() - epsilon * entropy, plan


def centre_distances(teacher, features, labels):
    """Euclidean distances of unit vectors: teacher rows and class means, less the mean of each side."""
    means = np.stack([features[labels == c].mean(axis=0) for c in range(labels.max() + 1)]).astype(np.float64)
    sides = [side - side.mean(axis=0) for side in (teacher, means)]
    teacher, means = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    return np.sqrt(((teacher[:, None, :] - means[None, :, :]) ** 2).sum(axis=2))


def softened(logits, temperature=3.0):
    """Softmax with a temperature, in float64."""
    return softmax(np.asarray(logits, dtype=np.float64) / temperature, axis=1)
