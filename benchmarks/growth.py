"""How what the jobs need grows with a corpus, from the constants in the code: comparisons, tasks, bytes, memory."""

import math

from sbert_core.clusters.micro_clusters import ROWS_PER_CENTER, SAMPLE_ROWS
from sbert_core.clusters.two_levels import choose_levels, flat_bytes
from sbert_core.data.sorted_ids import RANGE_BYTES
from sbert_core.neighbors.cells import GROUP_ROWS, MAX_SAMPLE_ROWS, SAMPLE_ROWS_PER_CELL, TYPICAL_PROBES, count_cells
from transforms.dataset.corpus import BLOCK_ROWS
from transforms.dataset.ordinal_files import CACHED_ID_BYTES, CACHED_NUMBER_BYTES
from transforms.neighbors.block_cache import CACHE_BYTES, RECENT_BYTES
from transforms.neighbors.exact import MAX_HELD_BYTES
from transforms.neighbors.group_steps import CACHED_LIST_BYTES, NEAR
from transforms.neighbors.route_rows import PILOT_ROWS
from transforms.neighbors.routed_files import CACHED_GROUP_BYTES, MAX_GATHERED_GROUPS
from transforms.neighbors.tile_tasks import MAX_RUN_ROWS, MAX_RUN_SLOTS, MIN_RUNS

TOP_K, CLUSTERS = 32, 100
PASSES = 12  # k-means reads the vectors so often
AUDIT_ROWS = 1000
ROUNDS = 1  # over neighbours' neighbours, in routed mining
ID_BYTES = 15  # of an id of eleven letters in memory
MICRO_CLUSTERS = SAMPLE_ROWS // ROWS_PER_CENTER


def block_rows(job: str, rows: float) -> int:
    """Rows of a block: exact mining of a large corpus takes larger ones."""
    return 65_536 if job == "mine exact" and rows > 10_000_000 else BLOCK_ROWS


def cosines(job: str, rows: float) -> float:
    """How many pairs of vectors a job compares."""
    cells = count_cells(int(rows))
    in_cells = rows * min(TYPICAL_PROBES, cells) * rows / cells
    return {
        "mine exact": rows * (rows + BLOCK_ROWS) / 2,
        "mine routed": in_cells + rows * (cells + ROUNDS * NEAR**2 + AUDIT_ROWS + PILOT_ROWS),
        "cluster kmeans": PASSES * CLUSTERS * rows,
        "cluster leiden": rows * MICRO_CLUSTERS,
    }.get(job, 0.0)


def count_runs(rows: float, size: int) -> int:
    """The runs of blocks in exact mining; see `transforms.neighbors.tile_tasks`."""
    blocks = math.ceil(rows / size)
    return max(min(blocks, MIN_RUNS), math.ceil(blocks / max(min(MAX_RUN_ROWS, MAX_RUN_SLOTS // TOP_K) // size, 1)))


def count_tasks(job: str, rows: float) -> int:
    """The pieces of work that engines can give to workers, over all steps that read vectors."""
    size = block_rows(job, rows)
    blocks, runs = math.ceil(rows / size), count_runs(rows, size)
    groups = math.ceil(rows / GROUP_ROWS)
    tasks = {
        "mine exact": runs * (runs + 1) // 2,
        "mine routed": 2 * blocks + groups * (3 + ROUNDS),
        "cluster kmeans": blocks * PASSES,
        "cluster leiden": blocks * 7,
    }
    return tasks.get(job, blocks)


def candidate_bytes(rows: float) -> float:
    """What exact mining shuffles at most: each block once per run, if no worker gets two tasks in a bundle."""
    return rows * TOP_K * 8.0 * count_runs(rows, block_rows("mine exact", rows))


def ordinal_bytes(rows: float) -> float:
    """What a worker holds to know rows by ordinal: files of ids and numbers up to a limit, or a range that it sorts."""
    cached = min(rows * ID_BYTES, CACHED_ID_BYTES) + min(rows * 8, CACHED_NUMBER_BYTES)
    return max(cached, min(4.0 * rows * ID_BYTES, 4.0 * RANGE_BYTES))


def worker_bytes(job: str, rows: float, dim: int) -> float:
    """What the worker that needs most holds, besides libraries and the encoder."""
    vector = 4.0 * dim
    block = block_rows(job, rows) * vector
    if job == "embed":
        return 4 * block
    vectors = min(rows * vector, CACHE_BYTES)
    candidates = min(rows * TOP_K * 8.0, MAX_HELD_BYTES)
    if job == "mine exact":
        needed = candidates + 2 * min(rows, MAX_RUN_ROWS) * TOP_K * 8 + rows * 4 + vectors + block
    elif job == "mine routed":
        cells = count_cells(int(rows))
        sample = min(SAMPLE_ROWS_PER_CELL * cells, MAX_SAMPLE_ROWS, rows) * vector
        gathered = 2 * min(MAX_GATHERED_GROUPS * GROUP_ROWS, rows) * (vector + 4 * TYPICAL_PROBES + 16)
        cached = min(CACHED_GROUP_BYTES + CACHED_LIST_BYTES, rows * (vector + 4 * (TYPICAL_PROBES + NEAR)))
        needed = max(2 * sample + cells * vector, gathered, cached + 8 * rows) + min(RECENT_BYTES, rows * vector)
    elif job == "cluster leiden" and choose_levels(int(rows), dim, TOP_K) == 1:
        needed = flat_bytes(int(rows), dim, TOP_K)
    elif job == "cluster leiden":
        needed = 10 * rows + 4 * SAMPLE_ROWS * vector + 3 * MICRO_CLUSTERS * vector + 4 * block
    else:
        needed = 4 * min(rows, SAMPLE_ROWS) * vector + 4 * block + 2 * CLUSTERS * 30 * vector
    return ordinal_bytes(rows) + needed
