"""How many cells a row must probe, learned from rows whose true neighbours are known."""

import dataclasses

import numpy as np

# Of the neighbours that are missed without rounds over neighbours' neighbours, the share that is still missed after
# one round and after two. From trials on 50,000 rows of two models; no script in benchmarks/ measures it.
MISSED_AFTER_ROUNDS = (1.0, 0.4, 0.32)
MIN_ROUND_RECALL = 0.8  # without rounds; below it, neighbours of neighbours lead nowhere
ROUND_COSINES = 2000  # per row: a round costs about as much as so many cosines of probes


@dataclasses.dataclass(frozen=True)
class Probing:
    """The cells that a row probes, and the rounds over neighbours' neighbours."""

    probes: int
    rounds: int


@dataclasses.dataclass(frozen=True, eq=False)
class ProbedRows:
    """Rows by ordinal (n,), each once and ascending, and their nearest cells (n, p), nearest first."""

    ordinals: np.ndarray
    probes: np.ndarray

    def of(self, ordinals: np.ndarray) -> np.ndarray:
        """The nearest cells (m, p) of some of the rows (m,)."""
        return self.probes[np.searchsorted(self.ordinals, ordinals)]


def join_probed(parts: list[ProbedRows]) -> ProbedRows:
    """The rows of one or more parts together."""
    ordinals = np.concatenate([part.ordinals for part in parts])
    order = np.argsort(ordinals)
    return ProbedRows(ordinals[order], np.concatenate([part.probes for part in parts])[order])


def probes_needed(rows: np.ndarray, neighbors: np.ndarray, probed: ProbedRows) -> np.ndarray:
    """The number of probes (n,) with which rows (n,) and their neighbours (n,) are compared.

    One of the two must probe the other's home, which is its nearest cell. It is one more than there are cells in
    `probed` if neither does.
    """
    first, second = probed.of(rows), probed.of(neighbors)
    return np.minimum(_places(first, second[:, 0]), _places(second, first[:, 0])) + 1


def _places(probes: np.ndarray, homes: np.ndarray) -> np.ndarray:
    """The place (n,) of each home (n,) among the probes (n, p) of a row; p if it is not there."""
    is_home = probes == homes[:, None]
    return np.where(is_home.any(axis=1), is_home.argmax(axis=1), probes.shape[1])


def choose_probing(needed: np.ndarray, recall: float, max_probes: int, rows_per_cell: float) -> Probing:
    """The least work with which about this share of all neighbours is found.

    `needed` (n,) are the probes with which pairs of true neighbours are found. If nothing suffices, as much as possible
    is done: `max_probes`, and two rounds.
    """
    found = np.cumsum(np.bincount(needed, minlength=max_probes + 2)[1 : max_probes + 1]) / max(len(needed), 1)
    options = []
    for rounds, missed in enumerate(MISSED_AFTER_ROUNDS):
        wanted = 1 - (1 - recall) / missed
        enough = np.flatnonzero(found >= (max(wanted, MIN_ROUND_RECALL) if rounds else wanted))
        if len(enough):
            options.append(Probing(int(enough[0]) + 1, rounds))
    if not options:
        return Probing(max_probes, len(MISSED_AFTER_ROUNDS) - 1)
    return min(options, key=lambda each: each.probes * rows_per_cell + each.rounds * ROUND_COSINES)


def rounds_for(recall: float) -> int:
    """The rounds over neighbours' neighbours if the number of probes is given."""
    return 0 if recall <= MIN_ROUND_RECALL else 1
