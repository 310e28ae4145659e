"""The losses of the distillation methods in a few lines of numpy, written from the papers' formulas.

Loops over samples and pairs instead of matrix tricks; only rows with weight 1 are passed in.
"""

from __future__ import annotations

import itertools

import numpy as np


def softmax(logits, temperature=1.0):
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    shifted = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def cross_entropy(logits, targets):
    return float(np.mean([-np.dot(t, np.log(p)) for t, p in zip(targets, softmax(logits), strict=True)]))


def divergence(p, q):
    return float(sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0))


def kd(teacher, student, temperature):
    pairs = zip(softmax(teacher, temperature), softmax(student, temperature), strict=True)
    return temperature**2 * float(np.mean([divergence(p, q) for p, q in pairs]))


def entropic_value(p, q, cost, epsilon, iterations=5000):
    """Eq. (5) by plain iterations of Eq. (20)."""
    kernel = np.exp(-cost / epsilon)
    v = np.ones(len(q))
    for _ in range(iterations):
        u = p / (kernel @ v)
        v = q / (kernel.T @ u)
    plan = u[:, None] * kernel * v[None, :]
    entropy = -np.sum(plan * (np.log(np.maximum(plan, 1e-300)) - 1))
    return float(np.sum(plan * cost) - epsilon * entropy), plan


def sinkhorn(teacher, student, cost, temperature, epsilon):
    pairs = zip(softmax(teacher, temperature), softmax(student, temperature), strict=True)
    return float(np.mean([entropic_value(p, q, cost, epsilon)[0] for p, q in pairs]))


def unit(vector):
    norm = np.linalg.norm(vector)
    return vector / norm if norm > 0 else vector


def huber(x):
    return 0.5 * x**2 if abs(x) < 1 else abs(x) - 0.5


def rkd(teacher, student):
    """The distance and the angle term."""
    count = len(student)

    def relative(points):
        lengths = {
            (i, j): np.linalg.norm(points[i] - points[j]) for i, j in itertools.permutations(range(count), 2)
        }
        mean = np.mean(list(lengths.values()))
        return {pair: length / mean for pair, length in lengths.items()}

    def cosine(points, i, j, k):
        return float(np.dot(unit(points[i] - points[j]), unit(points[k] - points[j])))

    t, s = relative(teacher), relative(student)
    distance = np.mean([huber(t[pair] - s[pair]) for pair in t])
    angle = np.mean(
        [
            huber(cosine(teacher, i, j, k) - cosine(student, i, j, k))
            for i, j, k in itertools.permutations(range(count), 3)
        ]
    )
    return float(distance), float(angle)


def aml(student, teacher, labels, margin, include_self=True):
    """Contrastive loss between the student's anchors (already projected) and the teacher's features."""
    losses = []
    for a, anchor in enumerate(student):
        lengths = [np.linalg.norm(unit(anchor) - unit(other)) for other in teacher]
        pull = [
            0.5 * d**2 for b, d in enumerate(lengths) if labels[b] == labels[a] and (include_self or b != a)
        ]
        push = [0.5 * max(0, margin - d) ** 2 for b, d in enumerate(lengths) if labels[b] != labels[a]]
        losses.append((np.mean(pull) if pull else 0.0) + (np.mean(push) if push else 0.0))
    return float(np.mean(losses))


def refilled_embedding(teacher, student, labels, temperature, margin=None):
    """KL of the Bernoulli comparisons over triplets; semi-hard ones with a margin, all without."""
    losses = []
    for a, p, n in itertools.permutations(range(len(labels)), 3):
        if labels[a] != labels[p] or labels[a] == labels[n]:
            continue

        def gap(points, a=a, p=p, n=n):
            anchor, near, far = (unit(points[i]) for i in (a, p, n))
            return np.linalg.norm(anchor - far) - np.linalg.norm(anchor - near)

        if margin is not None and not 0 < gap(student) <= margin:
            continue
        first, second = (1 / (1 + np.exp(-gap(points) / temperature)) for points in (teacher, student))
        losses.append(divergence([first, 1 - first], [second, 1 - second]))
    return float(np.mean(losses)) if losses else 0.0


def refilled_classifier(features, centers, student, labels, temperature):
    present = sorted(set(labels))
    centers = np.stack([unit(centers[c]) for c in present])
    losses = [
        divergence(softmax(centers @ feature, temperature), softmax(logits[present], temperature))
        for feature, logits in zip(features, student, strict=True)
    ]
    return float(np.mean(losses))


def pooled(maps, size):
    """Average (c, h, w) down to `size`, which divides h and w."""
    c, h, w = maps.shape
    return maps.reshape(c, size, h // size, size, w // size).mean(axis=(2, 4))


def convolve_1x1(maps, weight):
    return np.einsum("oc,chw->ohw", weight.reshape(weight.shape[0], -1), maps)


def fitnet(student, teacher, weight):
    size = min(student.shape[2], teacher.shape[2])
    guess = batch_norm(np.stack([convolve_1x1(pooled(s, size), weight) for s in student]))
    return float(np.mean((guess - np.stack([pooled(t, size) for t in teacher])) ** 2))


def vid(student, teacher, weights, raw_variance, floor):
    losses = []
    variance = (np.log1p(np.exp(raw_variance)) + floor)[:, None, None]
    for s, t in zip(student, teacher, strict=True):
        size = min(s.shape[1], t.shape[1])
        mean, t = pooled(s, size), pooled(t, size)
        for number, weight in enumerate(weights):
            mean = convolve_1x1(mean if number == 0 else np.maximum(mean, 0), weight)
        losses.append(np.mean(0.5 * np.log(variance) + (t - mean) ** 2 / (2 * variance)))
    return float(np.mean(losses))


def batch_norm(values, epsilon=1e-5):
    """(N, c) or (N, c, h, w) to mean 0, deviation 1 by channel."""
    axes = (0, *range(2, values.ndim))
    mean = values.mean(axis=axes, keepdims=True)
    return (values - mean) / np.sqrt(values.var(axis=axes, keepdims=True) + epsilon)


def channel_cost(student, teacher):
    """The mean squared distance of unit maps, by channel pair."""
    cost = np.zeros((student.shape[1], teacher.shape[1]))
    for i, j in np.ndindex(*cost.shape):
        cost[i, j] = np.mean(
            [
                np.sum((unit(s[i].ravel()) - unit(t[j].ravel())) ** 2)
                for s, t in zip(student, teacher, strict=True)
            ]
        )
    return cost


def best_matching(cost):
    """Brute force over injective maps from groups of student channels to teacher channels."""
    student, teacher = cost.shape
    groups = teacher // student
    places = [(g, s) for g in range(groups) for s in range(student)]
    return min(
        itertools.permutations(range(teacher), len(places)),
        key=lambda columns: sum(cost[s, c] for (_, s), c in zip(places, columns, strict=True)),
    )


def mgd_level(student, teacher, matches):
    """The partial squared distance to the absolute maximum of the matched channels, summed over a map."""
    student = batch_norm(student)
    losses = []
    for s, t in zip(student, teacher, strict=True):
        total = 0.0
        for channel, y, x in np.ndindex(*s.shape):
            group = [t[c, y, x] for c in matches[:, channel]]
            wanted, own = max(group, key=abs), s[channel, y, x]
            total += 0.0 if own <= wanted <= 0 else (wanted - own) ** 2
        losses.append(total)
    return float(np.mean(losses))


def wcord(student, teacher, epsilon):
    """The global contrast and the local transport cost of embedded features."""
    student, teacher = (np.stack([unit(row) for row in side]) for side in (student, teacher))
    count = len(student)
    scores = [[float(np.dot(s, t)) for t in teacher] for s in student]
    joint = np.mean([scores[i][i] for i in range(count)])
    product = (
        np.mean([scores[i][j] for i, j in itertools.permutations(range(count), 2)]) if count > 1 else 0.0
    )
    cost = 1 - np.array(scores)
    mass = np.full(count, 1 / count)
    _, plan = entropic_value(mass, mass, cost, epsilon)
    return float(-(joint - product)), float(np.sum(plan * cost))


def afd(student, teacher, attention):
    """Attended squared distances between unit energies; `attention` is (N, T, S)."""
    losses = []
    for row in range(len(attention)):
        total = 0.0
        for t, s in np.ndindex(*attention.shape[1:]):
            theirs, ours = (teacher[t][row] ** 2).mean(axis=0), (student[s][row] ** 2).mean(axis=0)
            if ours.shape[0] > theirs.shape[0]:
                ours = pooled(ours[None], theirs.shape[0])[0]
            elif ours.shape[0] < theirs.shape[0]:
                ours = np.kron(ours, np.ones([theirs.shape[0] // ours.shape[0]] * 2))
            total += attention[row, t, s] * np.mean((unit(theirs.ravel()) - unit(ours.ravel())) ** 2)
        losses.append(total)
    return float(np.mean(losses))


def seed(student, teacher, queue, student_temperature, teacher_temperature):
    losses = []
    for s, t in zip(student, teacher, strict=True):
        known = [unit(t), *queue]
        wanted = softmax(np.array([np.dot(unit(t), k) for k in known]), teacher_temperature)
        given = softmax(np.array([np.dot(unit(s), k) for k in known]), student_temperature)
        losses.append(-np.dot(wanted, np.log(given)))
    return float(np.mean(losses))


def sskd_similarity(student, teacher, temperature, share):
    """The similarity term on features after the heads: 4N rows, view after view."""
    count = len(student) // 4

    def cosines(features):
        return np.array([[np.dot(unit(v), unit(u)) for u in features[:count]] for v in features[count:]])

    t, s = cosines(teacher), cosines(student)
    ranks = [int(np.sum(row > row[r % count])) for r, row in enumerate(t)]
    right = [r for r, rank in enumerate(ranks) if rank == 0]
    wrong = sorted((r for r, rank in enumerate(ranks) if rank > 0), key=lambda r: ranks[r])
    chosen = right + wrong[: int(np.floor(share * len(wrong)))]
    losses = [divergence(softmax(t[r], temperature), softmax(s[r], temperature)) for r in chosen]
    return temperature**2 * float(np.mean(losses))


def correlation(x, y):
    return float(np.corrcoef(x, y)[0, 1])


def dist(teacher, student, temperature):
    """The terms over classes and over samples, without weights."""
    t, s = softmax(teacher, temperature), softmax(student, temperature)
    inter = np.mean([1 - correlation(a, b) for a, b in zip(t, s, strict=True)])
    intra = np.mean([1 - correlation(a, b) for a, b in zip(t.T, s.T, strict=True)])
    return temperature**2 * float(inter), temperature**2 * float(intra)


def dkd(teacher, student, labels, temperature):
    """The target-class and the other-classes terms, without weights."""
    target, others = [], []
    for t, s, label in zip(softmax(teacher, temperature), softmax(student, temperature), labels, strict=True):
        target.append(divergence([t[label], 1 - t[label]], [s[label], 1 - s[label]]))
        t, s = np.delete(t, label), np.delete(s, label)
        others.append(divergence(t / t.sum(), s / s.sum()))
    return temperature**2 * float(np.mean(target)), temperature**2 * float(np.mean(others))


def vkd(student, teacher):
    """Huber loss between projected features and standardised teacher features."""
    losses = []
    for s, t in zip(student, teacher, strict=True):
        wanted = (t - t.mean()) / np.sqrt(t.var() + 1e-5)
        losses.append(np.mean([huber(a - b) for a, b in zip(s, wanted, strict=True)]))
    return float(np.mean(losses))
