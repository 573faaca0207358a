"""The mined neighbours of one block of a corpus."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from sbert_core.clusters.micro_clusters import BlockGraph
from sbert_core.data.manifest import Part, part_key
from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus
from transforms.dataset.ordinals import ordinals_of_block
from transforms.dataset.published import read_manifest, read_part

GRAPH_COLUMNS = ("ordinal", "neighbor_ordinal", "rank", "score")


@dataclasses.dataclass(frozen=True)
class MinedParts:
    """The parts of `neighbors/`, in the order of the rows of their corpus, and the neighbours per row that were asked.

    The number in the name of a part is the corpus row of its first neighbour list.
    """

    folder: str
    top_k: int
    parts: tuple[Part, ...]

    def by_block(self, corpus: Corpus) -> "Iterator[MinedBlock]":
        """The blocks of a corpus, each with the parts that hold the neighbours of its rows."""
        starts = np.array([_first_row(part) for part in self.parts])
        for block in corpus.blocks:
            first = max(int(np.searchsorted(starts, block.first_row, side="right")) - 1, 0)
            end = int(np.searchsorted(starts, block.first_row + block.rows))
            yield MinedBlock(block.number, self.folder, self.top_k, self.parts[first:end])


@dataclasses.dataclass(frozen=True)
class MinedBlock:
    """A block of a corpus, and the parts of `neighbors/` that hold the neighbours of its rows.

    Steps that read them by block get it as an element: the manifest, which lists all parts, is read once.
    """

    number: int
    folder: str
    top_k: int
    parts: tuple[Part, ...]


def _first_row(part: Part) -> int:
    key = part_key(part.name)
    if key is None:
        raise DataError(f"{part.name} is not the name of a part of neighbors/: run mine again")
    return key[1]


def find_mined_parts(folder: str, corpus: Corpus) -> MinedParts:
    """The parts that were mined from a corpus; neighbours of another corpus are an error."""
    manifest = read_manifest(folder)
    if [each.digest for each in manifest.corpora or ()] != [corpus.digest]:
        raise DataError(f"{folder} was not mined from {corpus.name} as it is now: run mine again")
    top_k = manifest.settings.get("top_k", 0)
    if top_k < 1:
        raise DataError(f"{folder} does not state the maximum number of neighbours of a row: run mine again")
    return MinedParts(folder, top_k, tuple(sorted(manifest.parts, key=_first_row)))


def read_block_graph(mined: MinedBlock, corpus: Corpus) -> BlockGraph:
    """The neighbours of the rows of a block, in their order."""
    block = corpus.blocks[mined.number]
    ordinals = ordinals_of_block(corpus, block)
    k = min(mined.top_k, max(corpus.rows - 1, 1))
    neighbors, scores = np.zeros((len(ordinals), k), np.uint32), np.full((len(ordinals), k), np.nan, np.float32)
    order = np.argsort(ordinals)
    for part in mined.parts:
        table = read_part(mined.folder, part, GRAPH_COLUMNS)
        owners, others, ranks, values = (table[name].to_numpy() for name in GRAPH_COLUMNS)
        places = np.minimum(np.searchsorted(ordinals, owners, sorter=order), len(order) - 1)
        rows = order[places]
        is_own = ordinals[rows] == owners
        neighbors[rows[is_own], ranks[is_own] - 1] = others[is_own]
        scores[rows[is_own], ranks[is_own] - 1] = values[is_own]
    return BlockGraph(ordinals, neighbors, scores)
