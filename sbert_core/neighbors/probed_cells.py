"""Approximate neighbours: rows are compared only with rows of the cells that one of the two probes.

The space is divided into small cells. The nearest cell of a row is its home, and a row probes some more of its nearest
cells. A pair of rows is compared if either row probes the other's home. Neighbours of neighbours are then compared too,
which finds most of what is still missing (see `refine`).

Rows are kept in groups of consecutive cells. All work is done on one group, or on two, so groups can be distributed.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from sbert_core.neighbors.candidates import EMPTY, kth_scores, merge_candidates, ordinals_of, pack
from sbert_core.neighbors.topk import TopK
from sbert_core.neighbors.unit_vectors import Block

TILE_ROWS = 2048  # probing rows that are compared with a cell at once
NEAR_PROBES = 4  # probes that are compared first: they raise the thresholds, so that later ones give few hits
CHUNK_ROWS = 256  # rows of a cell whose neighbours of neighbours are collected at once
GATHERED_PAIRS = 512  # pairs whose vectors are gathered at once; they fit the processor's cache


@dataclasses.dataclass(frozen=True, eq=False)
class CellGroup:
    """The rows whose homes are the cells from `first_cell` to before `end_cell`, ordered by home, then by ordinal.

    `probes` (n, p) are the numbers of each row's nearest cells, nearest first: the first is its home. `corpus_rows`
    (n,) are the numbers of the rows in the corpus.
    """

    block: Block
    probes: np.ndarray  # int32
    corpus_rows: np.ndarray  # uint32
    first_cell: int
    end_cell: int

    def __len__(self) -> int:
        return len(self.block)

    @property
    def nbytes(self) -> int:
        """The size of the vectors and of what is known of each row."""
        return self.block.vectors.nbytes + self.probes.nbytes + 8 * len(self)

    @property
    def homes(self) -> np.ndarray:
        """The home cell (n,) of each row."""
        return self.probes[:, 0]

    def cells(self) -> Iterator[tuple[int, slice]]:
        """The cells that have rows, and their rows."""
        starts = np.searchsorted(self.homes, np.arange(self.first_cell, self.end_cell + 1)).tolist()
        for number, (start, end) in enumerate(itertools.pairwise(starts)):
            if start < end:
                yield self.first_cell + number, slice(start, end)

    def probers(self, cells: "CellGroup", probes: slice = slice(None)) -> "_Probers":
        """The rows of this group that probe cells of another one, or of this one, with some of their probes."""
        chosen = self.probes[:, probes]
        flat = np.flatnonzero((chosen >= cells.first_cell) & (chosen < cells.end_cell))
        cell_of_probe = chosen.ravel()[flat] - cells.first_cell
        order = np.argsort(cell_of_probe.astype(np.uint16), kind="stable")  # 16 bits: a fast radix sort
        starts = np.searchsorted(cell_of_probe[order], np.arange(cells.end_cell - cells.first_cell + 1))
        return _Probers(flat[order] // max(chosen.shape[1], 1), starts, cells.first_cell)


@dataclasses.dataclass(frozen=True, eq=False)
class _Probers:
    """Rows by the cells that they probe."""

    rows: np.ndarray
    starts: np.ndarray  # of each cell in `rows`, and the end
    first_cell: int

    def of_cell(self, cell: int) -> np.ndarray:
        """The rows that probe a cell, in ascending order."""
        number = cell - self.first_cell
        return self.rows[self.starts[number] : self.starts[number + 1]]


def join_within(group: CellGroup, topk: TopK, same_group: bool | None = None) -> int:
    """Adds to `topk` the pairs of rows of a group of which one probes the other's home; returns how many.

    Rows of the same cell come first, then those of near probes: thresholds are then high when the many others come.
    """
    joiner = _Joiner(group, group, topk, topk, same_group)
    joiner.compare_cells()
    topk.reduce()
    for probes in (slice(1, 1 + NEAR_PROBES), slice(1 + NEAR_PROBES, None)):
        joiner.probe(probes)
        topk.reduce()
    return joiner.n_cosines


def join_across(
    left: CellGroup, right: CellGroup, left_topk: TopK, right_topk: TopK, same_group: bool | None = None
) -> int:
    """Adds the pairs of rows of two groups of which one probes the other's home, to both sides; returns how many."""
    forth = _Joiner(left, right, left_topk, right_topk, same_group)
    forth.probe(slice(None))
    back = _Joiner(right, left, right_topk, left_topk, same_group, sources=forth.sources[::-1])
    back.probe(slice(None))
    return forth.n_cosines + back.n_cosines


class _Joiner:
    """Compares the rows of one group that probe cells of another group with the members of these cells."""

    def __init__(
        self,
        probing: CellGroup,
        members: CellGroup,
        probing_topk: TopK,
        member_topk: TopK,
        same_group: bool | None,
        sources: tuple[int, int] | None = None,
    ) -> None:
        self._probing, self._members = probing, members
        self._probing_topk, self._member_topk = probing_topk, member_topk
        self._same_group = same_group
        if sources is None:
            first = probing_topk.open_source(probing.block, members.block)
            is_one = probing is members
            sources = first, first if is_one else member_topk.open_source(members.block, probing.block)
        # The numbers of the first member among the sources of the probing rows' collector, and the other way round.
        self.sources = sources
        self.n_cosines = 0
        self._gathered = torch.empty(TILE_ROWS, probing.block.vectors.shape[1])
        self._products = torch.empty(0)

    def compare_cells(self) -> None:
        """Compares the members of each cell with each other; each row keeps its best."""
        block, topk = self._members.block, self._member_topk
        for _, members in self._members.cells():
            if members.stop - members.start > TILE_ROWS:  # its members probe it too: see `probe`
                self._probe_cell(np.arange(members.start, members.stop), members)
                continue
            products = block.vectors[members] @ block.vectors[members].T
            products.fill_diagonal_(-np.inf)
            self._mask(products.numpy(), np.arange(members.start, members.stop), members)
            n_best = min(topk.k + 8, members.stop - members.start - 1)
            if n_best:
                best, columns = (each.numpy() for each in products.topk(n_best, 1))
                is_hit = best >= np.maximum(topk.min_score - topk.tolerance, np.finfo(np.float32).min)
                rows, places = np.nonzero(is_hit)
                numbers = columns[rows, places] + (self.sources[0] + members.start)
                topk.add(rows + members.start, pack(best[rows, places], numbers))
            self.n_cosines += len(products) ** 2

    def probe(self, probes: slice) -> None:
        """Compares rows with the members of the cells that they probe with some of their probes."""
        probers = self._probing.probers(self._members, probes)
        for cell, members in self._members.cells():
            rows = probers.of_cell(cell)
            for start in range(0, len(rows), TILE_ROWS):
                self._probe_cell(rows[start : start + TILE_ROWS], members)

    def _probe_cell(self, rows: np.ndarray, members: slice) -> None:
        shape = len(rows), members.stop - members.start
        self.n_cosines += shape[0] * shape[1]
        if len(self._products) < shape[0] * shape[1]:
            self._products = torch.empty(shape[0] * shape[1])
        products = self._products[: shape[0] * shape[1]].view(shape)
        gathered = self._gathered[: len(rows)]
        torch.index_select(self._probing.block.vectors, 0, torch.from_numpy(rows), out=gathered)
        torch.mm(gathered, self._members.block.vectors[members].T, out=products)
        tile = products.numpy()
        self._mask(tile, rows, members)
        self._add_to_probing(tile, rows, members)
        self._add_to_members(tile, rows, members)

    def _mask(self, tile: np.ndarray, rows: np.ndarray, members: slice) -> None:
        """Masks pairs that `same_group` excludes, and a row's pair with itself."""
        if self._same_group is not None:
            groups, others = self._probing.block.groups, self._members.block.groups
            assert groups is not None
            assert others is not None
            tile[(groups[rows, None] == others[members]) != self._same_group] = -np.inf
        if self._probing is self._members:
            own = np.flatnonzero((rows >= members.start) & (rows < members.stop))
            tile[own, rows[own] - members.start] = -np.inf

    def _add_to_probing(self, tile: np.ndarray, rows: np.ndarray, members: slice) -> None:
        topk = self._probing_topk
        hit_rows, hit_columns = np.divmod(np.flatnonzero(tile >= _lowest(topk, rows)[:, None]), tile.shape[1])
        numbers = hit_columns + (self.sources[0] + members.start)
        topk.add(rows[hit_rows], pack(tile[hit_rows, hit_columns], numbers))

    def _add_to_members(self, tile: np.ndarray, rows: np.ndarray, members: slice) -> None:
        """Adds the probing rows to the members; but not where the member probes the row's home: it meets it there."""
        topk = self._member_topk
        hit_rows, hit_columns = np.divmod(np.flatnonzero(tile >= _lowest(topk, members)), tile.shape[1])
        homes = self._probing.homes[rows[hit_rows]]
        is_new = ~(self._members.probes[hit_columns + members.start] == homes[:, None]).any(axis=1)
        hit_rows, hit_columns = hit_rows[is_new], hit_columns[is_new]
        order = np.argsort(hit_columns.astype(np.uint16), kind="stable")
        hit_rows, hit_columns = hit_rows[order], hit_columns[order]
        numbers = rows[hit_rows] + self.sources[1]
        topk.add(hit_columns + members.start, pack(tile[hit_rows, hit_columns], numbers))


def _lowest(topk: TopK, rows: np.ndarray | slice) -> np.ndarray:
    """The product (n,) that a candidate of these rows must reach; above -inf, so that masked pairs never do."""
    return np.maximum(topk.thresholds[rows] - topk.tolerance, np.finfo(np.float32).min)


@dataclasses.dataclass(frozen=True, eq=False)
class Neighborhood:
    """What `refine` needs of the other groups. A slot is the position of a row when groups follow one another."""

    group_starts: np.ndarray  # (groups + 1,): the first slot of each group, and the end
    homes: np.ndarray  # (rows,): the home cell of each slot
    n_cells: int
    near: Callable[[int], np.ndarray]  # of a group: the slots (n, m) of each row's nearest neighbours; -1 for none
    load: Callable[[int], CellGroup]


def refine(
    number: int,
    found: np.ndarray,
    partners: Sequence[int],
    around: Neighborhood,
    topk: TopK,
    same_group: bool | None = None,
) -> tuple[np.ndarray, int]:
    """The best candidates (n, k) of a group's rows, of those `found` (n, k) and of the neighbours of neighbours.

    Pairs that were compared before, because one row probes the other's home, are left out. `partners` are the groups
    whose rows probe cells of this group. `topk` has the thresholds of `found`. The second result is the number of
    pairs that were compared.
    """
    group = around.load(number)
    rows, slots = _propose(number, group, partners, around)
    groups = np.searchsorted(around.group_starts, slots, side="right") - 1
    order = np.argsort(groups.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(len(around.group_starts)))
    for other_number in np.unique(groups).tolist():
        chosen = order[bounds[other_number] : bounds[other_number + 1]]
        other = around.load(other_number)
        others = slots[chosen] - around.group_starts[other_number]
        _score_pairs(group, other, rows[chosen], others, topk, same_group)
    return merge_candidates([found, topk.candidates()], found.shape[1]), len(rows)


def _propose(
    number: int, group: CellGroup, partners: Sequence[int], around: Neighborhood
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n,) of a group and slots (n,) that are neighbours of their neighbours, ordered by row; each pair once."""
    start = int(around.group_starts[number])
    near = around.near(number)
    distinct = np.unique(near[near >= 0])
    lists = _lists_of(distinct, around)
    index = np.searchsorted(distinct, np.maximum(near, 0)).clip(max=max(len(distinct) - 1, 0))
    probers = [(int(around.group_starts[each]), around.load(each).probers(group)) for each in partners]
    probes_cell = np.zeros(int(around.group_starts[-1]), bool)
    found_rows, found_slots = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for cell, members in group.cells():
        slots_of_probers = [first + each.of_cell(cell) for first, each in probers]
        for slots in slots_of_probers:
            probes_cell[slots] = True
        for first in range(members.start, members.stop, CHUNK_ROWS):
            chunk = np.arange(first, min(first + CHUNK_ROWS, members.stop))
            candidates = np.where((near[chunk] >= 0)[:, :, None], lists[index[chunk]], -1).reshape(len(chunk), -1)
            is_new = (candidates >= 0) & ~probes_cell[candidates]
            places = np.flatnonzero(is_new)
            rows, slots = places // candidates.shape[1], candidates.ravel()[places]
            is_probed = np.zeros((len(chunk), around.n_cells), bool)
            is_probed[np.arange(len(chunk))[:, None], group.probes[chunk]] = True
            keys = (rows << 32 | slots)[~is_probed[rows, around.homes[slots]] & (slots != rows + (start + first))]
            keys.sort()  # faster than np.unique
            keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
            found_rows.append((keys >> 32) + first)
            found_slots.append(keys & 0xFFFFFFFF)
        for slots in slots_of_probers:
            probes_cell[slots] = False
    return np.concatenate(found_rows), np.concatenate(found_slots)


def _lists_of(slots: np.ndarray, around: Neighborhood) -> np.ndarray:
    """The nearest neighbours (n, m) of ascending slots (n,)."""
    parts = []
    bounds = np.searchsorted(slots, around.group_starts)
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        own = slots[bounds[number] : bounds[number + 1]] - around.group_starts[number]
        parts.append(around.near(number)[own])
    return np.concatenate(parts).astype(np.int64) if parts else np.empty((1, 0), np.int64)


def _score_pairs(
    group: CellGroup, other: CellGroup, rows: np.ndarray, others: np.ndarray, topk: TopK, same_group: bool | None
) -> None:
    """Adds pairs of rows (n,), ascending, and other rows (n,) that reach the rows' thresholds."""
    if same_group is not None:
        groups, other_groups = group.block.groups, other.block.groups
        assert groups is not None
        assert other_groups is not None
        is_allowed = (groups[rows] == other_groups[others]) == same_group
        rows, others = rows[is_allowed], others[is_allowed]
    first = topk.open_source(group.block, other.block)
    vectors, other_vectors = group.block.vectors, other.block.vectors
    left, right = (torch.empty(GATHERED_PAIRS, vectors.shape[1]) for _ in range(2))
    products = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), GATHERED_PAIRS):
        part = slice(start, min(start + GATHERED_PAIRS, len(rows)))
        n_pairs = part.stop - part.start
        torch.index_select(vectors, 0, torch.from_numpy(rows[part]), out=left[:n_pairs])
        torch.index_select(other_vectors, 0, torch.from_numpy(others[part]), out=right[:n_pairs])
        np.einsum("nd,nd->n", left[:n_pairs].numpy(), right[:n_pairs].numpy(), out=products[part])
    hits = np.flatnonzero(products >= _lowest(topk, rows))
    topk.add(rows[hits], pack(products[hits], others[hits] + first))


def near_slots(found: np.ndarray, slot_of_ordinal: np.ndarray, n_near: int) -> np.ndarray:
    """The slots (n, n_near) of the nearest of each row's candidates (n, k); -1 where a row has fewer."""
    nearest = found[:, :n_near]
    is_empty = nearest == EMPTY
    return np.where(is_empty, -1, slot_of_ordinal[np.where(is_empty, 0, ordinals_of(nearest))].astype(np.int64))


def topk_above(found: np.ndarray, min_score: float) -> TopK:
    """A collector of candidates that are better than those `found` (n, k)."""
    return TopK(len(found), found.shape[1], min_score, kth_scores(found, min_score))
