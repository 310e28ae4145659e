"""Time of each metric on one teacher's tensors, as a ratio to the reference LogME in the same process.

    python benchmarks/ranking.py [--threads 2] [--repeats 3] [--size cub|large|all]
    python benchmarks/ranking.py --quick     # the smaller size once; keeps nothing
    python benchmarks/ranking.py --render    # the table from the kept numbers

The reference is LogME as its authors publish it: one SVD, then a fixed point for each class, in plain numpy
and float64. Both published forms are timed (ICML 2021, and the faster one of JMLR 2022); ratios are to the
faster one. Results go to results/benchmarks/ranking.json and, between its markers, to docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import time

SIZES = {"cub": (3000, 1024, 100, 100), "large": (10_000, 2048, 1000, 100)}  # N, d, C_T, C_S
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
TRAINED_STUDENTS = ("sinkhorn-single", "sinkhorn-exact")  # the training is what they cost


def teacher(samples, dimensions, sources, targets, strength, seed=0):
    """Features like a network's (rectified, a spectrum that decays), labels, logits and classifier rows."""
    import numpy as np

    generator = np.random.default_rng(seed)
    spread = np.arange(1, dimensions + 1) ** -0.6
    source_means = generator.normal(size=(sources, dimensions)) * spread
    target_means = generator.normal(size=(targets, dimensions)) * spread * strength
    labels = generator.permutation(np.arange(samples) % targets)
    points = target_means[labels] + generator.normal(size=(samples, dimensions)) * spread
    turn, _ = np.linalg.qr(generator.normal(size=(dimensions, dimensions)))
    offset = 0.3 * spread.mean()
    features = np.maximum(points @ turn + offset, 0)
    classifier = np.maximum(source_means @ turn + offset, 0)
    classifier -= classifier.mean(axis=0)
    classifier /= np.linalg.norm(classifier, axis=1, keepdims=True)
    logits = (features - features.mean(axis=0)) @ classifier.T
    logits *= 3 / logits.std()
    single = np.float32
    return {
        "features": features.astype(single),
        "labels": labels,
        "logits": logits.astype(single),
        "classifier": classifier.astype(single),
    }


def logme_2021(features, labels):
    """You et al., ICML 2021, as published: SVD of F^T F, then m and the residual in each step."""
    import numpy as np

    features = features.astype(np.float64)
    samples, dimensions = features.shape
    v, s, vh = np.linalg.svd(features.T @ features, full_matrices=True)
    evidences = []
    for label in range(labels.max() + 1):
        y = (labels == label).astype(np.float64)
        alpha = beta = ratio = 1.0
        projected = vh @ (features.T @ y)
        for _ in range(11):
            gamma = (s / (s + ratio)).sum()
            m = v @ (projected * beta / (alpha + beta * s))
            alpha_de, beta_de = (m * m).sum(), ((y - features @ m) ** 2).sum()
            alpha, beta = gamma / (alpha_de + 1e-5), (samples - gamma) / (beta_de + 1e-5)
            new_ratio = alpha / beta
            if abs(new_ratio - ratio) / ratio < 0.01:
                break
            ratio = new_ratio
        evidence = dimensions / 2 * np.log(alpha) + samples / 2 * np.log(beta)
        evidence -= 0.5 * np.log(alpha + beta * s).sum() + beta / 2 * beta_de + alpha / 2 * alpha_de
        evidences.append(evidence / samples - 0.5 * np.log(2 * np.pi))
    return float(np.mean(evidences))


def logme_2022(features, labels):
    """You et al., JMLR 2022, as published: U of the SVD once, then a fixed point in its coordinates."""
    import numpy as np

    features = features.astype(np.float64)
    samples, dimensions = features.shape
    _, s, vh = np.linalg.svd(features.T @ features)
    s = np.sqrt(s)
    kept = s > 1e-10
    u = (features @ vh.T)[:, kept] / s[kept]
    sigma = s[kept] ** 2
    evidences = []
    for label in range(labels.max() + 1):
        y = (labels == label).astype(np.float64)
        x2 = (u.T @ y) ** 2
        rest = (y**2).sum() - x2.sum()
        alpha = beta = 1.0
        for _ in range(11):
            ratio = alpha / beta
            gamma = (sigma / (sigma + ratio)).sum()
            m2 = (sigma * x2 / (ratio + sigma) ** 2).sum()
            res2 = (x2 / (1 + sigma / ratio) ** 2).sum() + rest
            alpha, beta = gamma / (m2 + 1e-5), (samples - gamma) / (res2 + 1e-5)
            evidence = dimensions / 2 * np.log(alpha) + samples / 2 * np.log(beta)
            evidence -= 0.5 * np.log(alpha + beta * sigma).sum() + beta / 2 * res2 + alpha / 2 * m2
            if abs(alpha / beta - ratio) / ratio <= 1e-3:
                break
        evidences.append(evidence / samples - 0.5 * np.log(2 * np.pi))
    return float(np.mean(evidences))


def seconds(call, repeats, clock):
    """The shortest of `repeats` runs, with what else runs on the machine least in the way."""
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def loss_over_minimum(tensors):
    """The probe's loss as the metric fits it, over that of a fully converged scikit-learn fit."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from preceptor.metrics.linear_probe import STRENGTH, fit_probe, prepare
    from preceptor.metrics.scatter import scatter

    labels = tensors["labels"]
    design = prepare(*scatter(tensors["features"], labels, int(labels.max()) + 1))
    fitted = fit_probe(design, labels)
    x = design.values.double().numpy()
    model = LogisticRegression(C=STRENGTH, tol=1e-6, max_iter=5000).fit(x, labels)
    log_probabilities = model.predict_log_proba(x)
    loss = -log_probabilities[np.arange(len(x)), labels].mean()
    return fitted.loss / (loss + (model.coef_**2).sum() / (2 * STRENGTH * len(x)))


def measure(size, repeats, clock, with_loss):
    from preceptor.metrics import METRICS
    from preceptor.metrics.scatter import forget

    tensors = teacher(*SIZES[size], strength=0.45)
    pair = {name: tensors[name] for name in ("features", "labels")}
    reference = {
        "logme as published in 2021": seconds(lambda: logme_2021(**pair), repeats, clock),
        "logme as published in 2022": seconds(lambda: logme_2022(**pair), repeats, clock),
    }
    fastest = min(reference.values())
    names = [name for name in METRICS if name not in TRAINED_STUDENTS]
    alone = {}
    for name in names:

        def one(name=name):
            forget()  # nothing shared with the metrics before it
            METRICS[name](**tensors)

        alone[name] = seconds(one, repeats, clock)

    def together():
        forget()
        for name in names:
            METRICS[name](**tensors)

    everything = seconds(together, repeats, clock)
    report = {
        "shape": dict(zip(("N", "d", "C_T", "C_S"), SIZES[size], strict=True)),
        "reference_seconds": reference,
        "seconds": alone,
        "times_faster_than_reference": {name: fastest / value for name, value in alone.items()},
        "all_together_seconds": everything,
        "all_together_over_sinkhorn_plus_logme": everything / (alone["sinkhorn"] + alone["logme"]),
    }
    if with_loss:
        report["probe_loss_over_converged"] = loss_over_minimum(tensors)
    return report


def table(results):
    lines = ["| metric | " + " | ".join(f"{r['shape']['N']:,} x {r['shape']['d']:,}" for r in results) + " |"]
    lines.append("|---|" + "---:|" * len(results))
    for name in results[0]["reference_seconds"]:
        lines.append(
            f"| {name} | " + " | ".join(f"{r['reference_seconds'][name]:.2f} s" for r in results) + " |"
        )
    for name in results[0]["seconds"]:
        cells = (
            f"{r['seconds'][name]:.3f} s, {r['times_faster_than_reference'][name]:.1f}x" for r in results
        )
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    ratios = (
        f"{r['all_together_seconds']:.2f} s, {r['all_together_over_sinkhorn_plus_logme']:.2f} of "
        "`sinkhorn` + `logme`"
        for r in results
    )
    lines.append("| all of them | " + " | ".join(ratios) + " |")
    losses = (
        f"{r['probe_loss_over_converged']:.4f}" if "probe_loss_over_converged" in r else "-" for r in results
    )
    lines.append("| the probe's loss over a converged fit's | " + " | ".join(losses) + " |")
    return "\n".join(lines)


def goals(results):
    """What was asked of these figures, and whether they meet it."""
    lines = []
    for r in results:
        faster, whole = (
            r["times_faster_than_reference"]["sinkhorn"],
            r["all_together_over_sinkhorn_plus_logme"],
        )
        rest = r["all_together_seconds"] - r["seconds"]["probe"]
        rest /= r["seconds"]["sinkhorn"] + r["seconds"]["logme"]
        lines.append(
            f"- {r['shape']['N']:,} x {r['shape']['d']:,}: `sinkhorn` at least 3 times faster than the reference: "
            f"{'met' if faster >= 3 else 'missed'} ({faster:.2f}). All metrics in less than twice `sinkhorn` + "
            f"`logme`: {'met' if whole < 2 else 'missed'} ({whole:.2f}; {rest:.2f} less the time of `probe`)."
        )
    return "\n".join(lines)


def section(data):
    """The part of the page."""
    results, proof = data["results"], data["evidence"]
    shapes = "; ".join(
        f"{r['shape']['N']:,} x {r['shape']['d']:,} with {r['shape']['C_T']:,} source and "
        f"{r['shape']['C_S']} target classes"
        for r in results
    )
    return (
        "## Metrics on one teacher\n\n"
        f"{shapes}; synthetic features. `{proof['command']}`, {proof['date'][:10]}, {proof['threads']} thread(s), "
        f"{data['clock']} time on {proof['hardware']}, torch {proof['versions']['torch']}. "
        "Times faster than the faster of the two published LogME algorithms in plain numpy.\n\n"
        f"{table(results)}\n\n{goals(results)}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu, with one thread, on a machine that others use"
    )
    parser.add_argument("--size", choices=[*SIZES, "all"], default="all")
    parser.add_argument("--no-loss", action="store_true", help="leave out the converged scikit-learn fit")
    parser.add_argument("--quick", action="store_true", help="the smaller size once; keeps nothing")
    parser.add_argument("--render", action="store_true", help="only write the table from the kept numbers")
    options = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(options.threads)  # before numpy is imported
    if options.render:
        render()
        return
    if options.quick:
        options.size, options.repeats = "cub", 1
    sizes = list(SIZES) if options.size == "all" else [options.size]
    results = [
        measure(size, options.repeats, CLOCKS[options.clock], not options.no_loss and size == "cub")
        for size in sizes
    ]
    print(table(results))
    if not options.quick:
        from common import keep  # imports torch, which must not come before the threads are set

        keep("ranking", {"clock": options.clock, "results": results})
        render()


def render():
    """The table in docs/performance.md."""
    from common import PAGE, kept, put

    put("ranking", section(kept("ranking")), PAGE)


if __name__ == "__main__":
    main()
