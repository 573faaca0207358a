"""The steps of routed mining that compare groups of cells; each reads and writes work files.

A step returns the number of cosines that it computed, or None if an earlier run of the job has stored its result.
"""

import numpy as np

from sbert_core.neighbors.candidates import EMPTY, merge_candidates
from sbert_core.neighbors.probed_cells import (
    Neighborhood,
    join_across,
    join_within,
    near_slots,
    refine,
    topk_above,
)
from sbert_core.neighbors.topk import TopK
from sbert_core.process_cache import ByteCache
from transforms.dataset.work_files import need_arrays
from transforms.neighbors.group_layout import GroupLayout
from transforms.neighbors.mining_plan import MiningPlan
from transforms.neighbors.routed_files import (
    across_file,
    found_file,
    is_stored,
    load_found,
    load_group,
    pair_file,
    store_found,
    within_file,
)
from transforms.neighbors.row_candidates import RowCandidates

NEAR = 24  # neighbours of a row whose neighbours it is compared with
CACHED_LIST_BYTES = 128 * 2**20  # per process; the lists of a group of 32,768 rows have 3.1 MB


def join_within_group(plan: MiningPlan, layout: GroupLayout, number: int) -> int | None:
    """Compares the rows of a group."""
    name = within_file(number)
    if is_stored(plan, name):
        return None
    group = load_group(plan.work, number)
    topk = TopK(len(group), plan.k, plan.min_score)
    n_cosines = join_within(group, topk, plan.same_group)
    store_found(plan, name, topk.candidates())
    return n_cosines


def join_with_partners(plan: MiningPlan, layout: GroupLayout, number: int) -> int | None:
    """Compares a group with its partners of higher numbers.

    Stores what is better than what was found within the groups: for the group's own rows at the end, so that a file
    tells that all partners are done, and for the rows of each partner.
    """
    name = across_file(number)
    if is_stored(plan, name):
        return None
    group = load_group(plan.work, number)
    topk = topk_above(_load_within(plan, layout, number), plan.min_score)
    n_cosines = 0
    for other_number in _later_partners(layout, number):
        other = load_group(plan.work, other_number)
        other_topk = topk_above(_load_within(plan, layout, other_number), plan.min_score)
        n_cosines += join_across(group, other, topk, other_topk, plan.same_group)
        store_found(plan, pair_file(number, other_number), other_topk.candidates())
    store_found(plan, name, topk.candidates())
    return n_cosines


def merge_group(plan: MiningPlan, layout: GroupLayout, number: int) -> int | None:
    """Merges all that was found for a group by comparing it with itself and its partners."""
    name = found_file(number, 0)
    if is_stored(plan, name):
        return None
    earlier = [each for each in layout.partners(number).tolist() if each < number]
    names = [within_file(number), across_file(number), *(pair_file(each, number) for each in earlier)]
    found = load_found(plan, names[0], layout.rows(number))
    for each in names[1:]:
        more = load_found(plan, each, len(found))
        has_any = more[:, 0] != EMPTY
        found[has_any] = merge_candidates([found[has_any], more[has_any]], plan.k)
    store_found(plan, name, found)
    return 0


def refine_group(plan: MiningPlan, layout: GroupLayout, number: int, round_number: int) -> int | None:
    """Compares the rows of a group with the neighbours of their neighbours, if the layout has such a round."""
    name = found_file(number, round_number)
    if round_number > layout.rounds:
        return 0
    if is_stored(plan, name):
        return None
    around = Neighborhood(
        layout.starts,
        layout.homes,
        layout.n_cells,
        near=lambda each: _load_near(plan, layout, each, round_number - 1),
        load=lambda each: load_group(plan.work, each),
    )
    found = load_found(plan, found_file(number, round_number - 1), layout.rows(number))
    topk = topk_above(found, plan.min_score)
    better, n_cosines = refine(number, found, layout.partners(number).tolist(), around, topk, plan.same_group)
    store_found(plan, name, better)
    return n_cosines


def found_of_group(plan: MiningPlan, layout: GroupLayout, number: int) -> RowCandidates:
    """What was found for the rows of a group in all steps, by the numbers of the rows in the corpus."""
    candidates = load_found(plan, found_file(number, layout.rounds), layout.rows(number))
    return RowCandidates(load_group(plan.work, number).corpus_rows, candidates)


def _later_partners(layout: GroupLayout, number: int) -> list[int]:
    return [each for each in layout.partners(number).tolist() if each > number]


def _load_within(plan: MiningPlan, layout: GroupLayout, number: int) -> np.ndarray:
    return load_found(plan, within_file(number), layout.rows(number))


_near_lists = ByteCache(CACHED_LIST_BYTES)


def _load_near(plan: MiningPlan, layout: GroupLayout, number: int, round_number: int) -> np.ndarray:
    """The slots (n, m) of the nearest neighbours of a group's rows, as they were found until a round."""

    def load() -> np.ndarray:
        arrays = need_arrays(f"{plan.work}/{found_file(number, round_number)}")
        near = np.full((layout.rows(number), min(NEAR, plan.k)), -1, np.int32)
        near[arrays["rows"]] = near_slots(arrays["candidates"], layout.slot_of_ordinal, NEAR)
        return near

    return _near_lists.get((plan.work, number, round_number), load)
