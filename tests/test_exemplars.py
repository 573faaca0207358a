"""Exemplars of clusters."""

import numpy as np

from sbert_core.clusters.exemplars import choose_exemplars


def unit(*degrees):
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1).astype(np.float32)


def test_exemplars_are_near_and_diverse():
    flat = np.concatenate([unit(20, 22), np.zeros((2, 1))], axis=1)
    vectors = np.concatenate([flat, [[np.cos(0.43), 0, np.sin(0.43)], [0, 0, 1]]]).astype(np.float32)
    center = np.array([1, 0, 0], np.float32)
    assert choose_exemplars(vectors, center, 2) == [0, 2]  # 1 is nearer, but too like 0
    assert choose_exemplars(vectors, center, 2, diversity=0) == [0, 1]
    assert choose_exemplars(vectors * 7, center * 3, 2) == [0, 2]


def test_exemplars_are_not_chosen_twice():
    vectors = unit(0, 0, 30, 30, 0)
    assert choose_exemplars(vectors, np.array([1, 0], np.float32), 5) == [0, 2]
    assert choose_exemplars(np.tile(vectors[:1], (4, 1)), vectors[0]) == [0]


def test_exemplars_of_nothing():
    assert choose_exemplars(np.empty((0, 2), np.float32), np.array([1, 0])) == []
    assert choose_exemplars(unit(0, 5), np.array([1, 0]), 0) == []
    assert choose_exemplars(np.zeros((2, 2), np.float32), np.array([1, 0]), 1) == [0]


def test_exemplars_against_the_definition():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 8)) + 2
    center = vectors.mean(axis=0)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    chosen = choose_exemplars(vectors, center, 6, diversity=0.4)
    for step in range(6):
        scores = {
            row: 0.6 * cosine(vectors[row], center)
            - 0.4 * max((cosine(vectors[row], vectors[other]) for other in chosen[:step]), default=0)
            for row in range(40)
            if row not in chosen[:step]
        }
        assert chosen[step] == max(scores, key=scores.get)
