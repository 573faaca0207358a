"""Which groups of cells there are, which of them must be compared, and where in them each row is."""

import dataclasses

import numpy as np

from sbert_core.neighbors.cells import CellLayout
from sbert_core.neighbors.probed_cells import CellGroup
from sbert_core.process_cache import process_cache
from transforms.dataset.work_files import need_arrays, store_arrays
from transforms.neighbors.mining_plan import MiningPlan

GROUPS, SLOTS = "groups.npz", "slots.npz"


@dataclasses.dataclass(frozen=True)
class GroupLayout:
    """The groups of a corpus, which are stored below `work`; it is small, and the rest is read from files."""

    work: str
    n_groups: int
    n_cells: int
    rounds: int  # over neighbours' neighbours

    @property
    def starts(self) -> np.ndarray:
        """The first slot of each group, and the end: (groups + 1,). A slot is the position of a row in all groups."""
        return _load(self.work, GROUPS)["starts"]

    def rows(self, number: int) -> int:
        """Rows of a group."""
        return int(self.starts[number + 1] - self.starts[number])

    def partners(self, number: int) -> np.ndarray:
        """The groups, itself included, that share probes with a group; ascending."""
        groups = _load(self.work, GROUPS)
        first, end = groups["partner_starts"][number : number + 2].tolist()
        return groups["partners"][first:end]

    @property
    def homes(self) -> np.ndarray:
        """The home cell (rows,) of each slot."""
        return _load(self.work, SLOTS)["homes"]

    @property
    def slot_of_ordinal(self) -> np.ndarray:
        """The slot (rows,) of the row with each ordinal."""
        return _load(self.work, SLOTS)["slot_of_ordinal"]


@process_cache(max_entries=2)
def _load(work: str, name: str) -> dict[str, np.ndarray]:
    return need_arrays(f"{work}/{name}")


def _members_path(work: str, number: int) -> str:
    return f"{work}/members-{number:06d}.npz"


def store_members(plan: MiningPlan, number: int, group: CellGroup, layout: CellLayout) -> None:
    """Stores what the layout of all groups needs of one: ordinals and home cells of its rows, and probed groups."""
    probed = np.unique(layout.groups_of(np.unique(group.probes)))
    arrays = {"ordinals": group.block.ordinals, "homes": group.homes, "probed": probed}
    store_arrays(_members_path(plan.work, number), arrays)


def store_layout(plan: MiningPlan, n_groups: int, n_cells: int, rounds: int) -> GroupLayout:
    """The layout of all groups, from what `store_members` stored of each; it holds 8 bytes a row."""
    partners: list[set[int]] = [{number} for number in range(n_groups)]
    slot_of_ordinal = np.zeros(plan.corpora[0].rows, np.uint32)
    starts, homes = [0], [np.empty(0, np.int32)]
    for number in range(n_groups):
        members = need_arrays(_members_path(plan.work, number))
        for other in members["probed"].tolist():
            partners[number].add(other)
            partners[other].add(number)
        starts.append(starts[-1] + len(members["ordinals"]))
        slot_of_ordinal[members["ordinals"]] = np.arange(*starts[-2:], dtype=np.uint32)
        homes.append(members["homes"])
    groups = {
        "starts": np.array(starts),
        "partner_starts": np.cumsum([0, *map(len, partners)]),
        "partners": np.array([other for each in partners for other in sorted(each)], np.int64),
    }
    store_arrays(f"{plan.work}/{GROUPS}", groups)
    store_arrays(f"{plan.work}/{SLOTS}", {"slot_of_ordinal": slot_of_ordinal, "homes": np.concatenate(homes)})
    return GroupLayout(plan.work, n_groups, n_cells, rounds)
