"""The steps of routed mining that compare groups of cells; each reads and writes work files."""

import dataclasses

import numpy as np
from apache_beam.metrics import Metrics

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
from sbert_core.process_cache import process_cache
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.neighbors.mining_plan import MiningPlan
from transforms.neighbors.routed_files import (
    CACHED_LISTS,
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
SLOTS = "slots.npz"


@dataclasses.dataclass(frozen=True, eq=False)
class GatheredGroup:
    """A group that was stored: the ordinals (n,) and home cells (n,) of its rows, and the groups that they probe."""

    number: int
    ordinals: np.ndarray
    homes: np.ndarray
    probed: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class GroupLayout:
    """The groups of a corpus. `partners` of each are the groups, itself included, that share probes with it."""

    starts: np.ndarray  # (groups + 1,): the first slot of each group, and the end
    partners: tuple[np.ndarray, ...]
    n_cells: int
    rounds: int

    def __len__(self) -> int:
        return len(self.partners)

    def rows(self, number: int) -> int:
        """Rows of a group."""
        return int(self.starts[number + 1] - self.starts[number])


def store_layout(gathered: list[GatheredGroup], plan: MiningPlan, n_cells: int, rounds: int) -> GroupLayout:
    """The layout of all groups; stores where the row with each ordinal is, 8 bytes a row, for `refine_group`."""
    ordered = sorted(gathered, key=lambda group: group.number)
    partners: list[set[int]] = [{group.number} for group in ordered]
    for group in ordered:
        for other in group.probed.tolist():
            partners[group.number].add(other)
            partners[other].add(group.number)
    starts = np.cumsum([0, *(len(group.ordinals) for group in ordered)])
    ordinals = np.concatenate([np.empty(0, np.uint32), *(group.ordinals for group in ordered)])
    slot_of_ordinal = np.zeros(plan.corpora[0].rows, np.uint32)
    slot_of_ordinal[ordinals] = np.arange(len(ordinals), dtype=np.uint32)
    homes = np.concatenate([np.empty(0, np.int32), *(group.homes for group in ordered)])
    store_arrays(f"{plan.work}/{SLOTS}", {"slot_of_ordinal": slot_of_ordinal, "homes": homes})
    return GroupLayout(starts, tuple(np.array(sorted(each)) for each in partners), n_cells, rounds)


def join_within_group(plan: MiningPlan, layout: GroupLayout, number: int) -> int:
    """Compares the rows of a group; returns the number of cosines."""
    name = within_file(number)
    if _is_reused(plan, name):
        return 0
    group = load_group(plan.work, number)
    topk = TopK(len(group), plan.k, plan.min_score)
    n_cosines = join_within(group, topk, plan.same_group)
    store_found(plan, name, topk.candidates())
    return n_cosines


def join_with_partners(plan: MiningPlan, layout: GroupLayout, number: int) -> int:
    """Compares a group with its partners of higher numbers; returns the number of cosines.

    Stores what is better than what was found within the groups: for the group's own rows at the end, so that a file
    tells that all partners are done, and for the rows of each partner.
    """
    name = across_file(number)
    if _is_reused(plan, name):
        return 0
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


def merge_group(plan: MiningPlan, layout: GroupLayout, number: int) -> int:
    """Merges all that was found for a group by comparing it with itself and its partners."""
    name = found_file(number, 0)
    if not _is_reused(plan, name):
        earlier = [each for each in layout.partners[number].tolist() if each < number]
        names = [within_file(number), across_file(number), *(pair_file(each, number) for each in earlier)]
        found = load_found(plan, names[0], layout.rows(number))
        for each in names[1:]:
            more = load_found(plan, each, len(found))
            has_any = more[:, 0] != EMPTY
            found[has_any] = merge_candidates([found[has_any], more[has_any]], plan.k)
        store_found(plan, name, found)
    return 0


def refine_group(plan: MiningPlan, layout: GroupLayout, number: int, round_number: int) -> int:
    """Compares the rows of a group with the neighbours of their neighbours, if the layout has such a round."""
    name = found_file(number, round_number)
    if round_number > layout.rounds or _is_reused(plan, name):
        return 0
    slots = _load_slots(plan.work)
    around = Neighborhood(
        layout.starts,
        slots["homes"],
        layout.n_cells,
        near=lambda each: _load_near(plan.work, each, round_number - 1, layout.rows(each), plan.k),
        load=lambda each: load_group(plan.work, each),
    )
    found = load_found(plan, found_file(number, round_number - 1), layout.rows(number))
    topk = topk_above(found, plan.min_score)
    better = refine(number, found, layout.partners[number].tolist(), around, topk, plan.same_group)
    store_found(plan, name, better)
    return 0


def found_of_group(plan: MiningPlan, layout: GroupLayout, number: int) -> RowCandidates:
    """What was found for the rows of a group in all steps, by the numbers of the rows in the corpus."""
    candidates = load_found(plan, found_file(number, layout.rounds), layout.rows(number))
    return RowCandidates(load_group(plan.work, number).corpus_rows, candidates)


def _is_reused(plan: MiningPlan, name: str) -> bool:
    """Whether an earlier run, or an earlier attempt of this one, has stored the result of a step."""
    if not is_stored(plan, name):
        return False
    Metrics.counter("mine", "group_tasks_reused").inc()
    return True


def _later_partners(layout: GroupLayout, number: int) -> list[int]:
    return [each for each in layout.partners[number].tolist() if each > number]


def _load_within(plan: MiningPlan, layout: GroupLayout, number: int) -> np.ndarray:
    return load_found(plan, within_file(number), layout.rows(number))


@process_cache(max_entries=1)
def _load_slots(work: str) -> dict[str, np.ndarray]:
    """Where the row with each ordinal is."""
    return need_arrays(f"{work}/{SLOTS}")


@process_cache(max_entries=CACHED_LISTS)
def _load_near(work: str, number: int, round_number: int, n_rows: int, k: int) -> np.ndarray:
    """The slots (n, m) of the nearest neighbours of a group's rows, as they were found until a round."""
    arrays = need_arrays(f"{work}/{found_file(number, round_number)}")
    near = np.full((n_rows, min(NEAR, k)), -1, np.int32)
    near[arrays["rows"]] = near_slots(arrays["candidates"], _load_slots(work)["slot_of_ordinal"], NEAR)
    return near
