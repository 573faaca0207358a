"""Texts of clusters."""

import random

from sbert_core.clusters.names.term_counts import count_terms

SHOP = {
    0: ["Where is my parcel?", "My parcel has not arrived", "The parcel is late", "parcels arrive late"],
    1: ["I want a refund", "When is my refund paid?", "The refund is not paid", "Refunds take weeks"],
    2: ["My credit card was declined", "The credit card is declined again", "Why was my credit card declined?"],
    -1: ["Is it my turn?", "The end", "What was that?"],
}


def counts_of(clusters):
    texts = [(text, label) for label, texts in clusters.items() for text in texts]
    return count_terms(*zip(*texts, strict=True)) if texts else {}


def make_texts(stop, topics, clusters, texts, seed=0):
    """Texts of words every cluster has and of one topic word, which is of its cluster only."""
    rng = random.Random(seed)
    return {
        cluster: [" ".join(rng.sample([*rng.sample(stop, 3), topics[cluster % len(topics)]], 4)) for _ in range(texts)]
        for cluster in range(clusters)
    }
