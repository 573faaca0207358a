"""Clustering task: whether k-means on the vectors finds the classes of the texts."""

from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from sbert_core.clusters.quality import quality_with_labels
from sbert_core.data.examples import Examples
from sbert_core.errors import DataError
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import check_examples, encode_columns, labels_of
from sbert_core.neighbors.cosine import unit_rows

MAIN = "v_measure"
N_INIT = 3  # starts of k-means for each seed; the best is used


def evaluate_clustering(
    encoder: Encode, examples: Examples, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), model: str = "model"
) -> Evaluation:
    """V-measure, NMI and adjusted Rand index of k-means with the true number of classes, against the classes.

    k-means is scikit-learn's, on vectors of unit length. Each figure is the mean over `seeds`; with the suffix
    `_deviation`, it is the standard deviation of these runs.
    """
    from sklearn.cluster import KMeans  # takes a second

    check_examples("clustering", examples, [1], "classes")
    truth = labels_of(examples)
    k = len(np.unique(truth))
    if k < 2:
        raise DataError(f"{examples.name} has one class only: use rows of at least two classes")
    if not seeds:
        raise DataError("there are no seeds: give at least one")
    vectors = unit_rows(encode_columns(encoder, examples.texts)[0])[0]
    distinct = len(np.unique(vectors, axis=0))
    if k > distinct:
        raise DataError(
            f"{examples.name} has {k} classes, but only {distinct} different vectors: use more texts or fewer classes"
        )
    runs = []
    with threadpool_limits(1):  # with several threads the order of sums changes the outcome
        for seed in seeds:
            runs.append(quality_with_labels(truth, KMeans(k, n_init=N_INIT, random_state=seed).fit_predict(vectors)))
    names = ("v_measure", "nmi", "ari")
    scores = {name: float(np.mean([run[name] for run in runs])) for name in names}
    scores |= {f"{name}_deviation": float(np.std([run[name] for run in runs])) for name in names}
    counts = {"rows": len(examples), "classes": k, "seeds": len(seeds)}
    return Evaluation("clustering", examples.name, model, MAIN, scores, counts)
