"""Collects what the jobs have written below a folder into the data of a report."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.clusters.noise import NOISE
from sbert_core.data.columns import comparable_ids
from sbert_core.data.manifest import Manifest
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows
from sbert_core.report.map_layout import place_vectors
from sbert_core.report.report_page import MAX_REJECTED, POINT_COLUMNS, ReportData
from transforms.dataset.corpus import BlockRef, Corpus, open_corpus, read_columns
from transforms.dataset.files import read_bytes
from transforms.dataset.published import find_manifest, read_dataset, read_manifest, read_part

MAX_POINTS = 20_000
MAX_READ_ROWS = 200_000  # rows that points are chosen from: more are not read
MAX_PAIRS = 500
MAX_DUPLICATE_ROWS = 100_000  # rows that are read
MAX_GROUPS = 50
MAX_GROUP_ROWS = 5
MAX_PARTS = 20  # of a manifest that is shown
SCORE_BINS = 25
DATASETS = ("embeddings", "rejected", "neighbors", "pairs", "duplicates", "clusters/summary")
MINED = ("neighbors", "pairs", "duplicates")

Record = dict[str, Any]  # as ReportData documents it


def collect_report(folder: str, title: str) -> ReportData:
    """Reads the datasets below `folder`; those that do not exist are left out."""
    manifests = _find_manifests(folder)
    if "embeddings" not in manifests:
        raise DataError(f"{folder} has no embeddings/ with a manifest: run embed first")
    has_clusters = "clusters/summary" in manifests
    rejected_rows = manifests["rejected"].rows if "rejected" in manifests else 0
    return ReportData(
        title=title,
        figures=_figures(folder, manifests),
        clusters=_read_clusters(folder) if has_clusters else [],
        points=_read_points(folder, has_clusters),
        pairs=_read_pairs(folder) if "pairs" in manifests else [],
        score_counts=_count_scores(folder) if "pairs" in manifests else [],
        duplicates=_read_duplicates(folder) if "duplicates" in manifests else [],
        duplicate_rows=_duplicate_rows(manifests["duplicates"]) if "duplicates" in manifests else 0,
        rejected=_read_rejected(folder) if "rejected" in manifests else [],
        rejected_rows=rejected_rows,
        truncated_rows=manifests["embeddings"].truncated or 0,
        rows=manifests["embeddings"].rows + rejected_rows,
        manifests={name: _shorten(manifest) for name, manifest in manifests.items()},
    )


def _find_manifests(folder: str) -> dict[str, Manifest]:
    """The manifests of the datasets that exist.

    Mined datasets of format 1 have other columns: they are left out until they are mined again.
    """
    found = {name: find_manifest(f"{folder}/{name}") for name in DATASETS}
    return {
        name: manifest
        for name, manifest in found.items()
        if manifest is not None and (manifest.kind is not None or name not in MINED)
    }


def _read_clusters(folder: str) -> list[Record]:
    columns = ["cluster", "size", "name", "terms", "exemplar_texts", "cohesion", "separation", "nearest_cluster"]
    table = read_dataset(f"{folder}/clusters/summary", columns)
    renamed = {"exemplar_texts": "exemplars", "nearest_cluster": "nearest"}
    return table.rename_columns([renamed.get(name, name) for name in columns]).to_pylist()


def _read_points(folder: str, has_clusters: bool) -> dict[str, Sequence]:
    """A place on the map, a cluster, an id and a text for each row of a sample."""
    corpus = open_corpus(f"{folder}/embeddings")
    if not corpus.rows:
        return {name: [] for name in POINT_COLUMNS}
    table = sample_rows(corpus)
    places = place_vectors(_unit_vectors(table[corpus.embedding_column], corpus))
    ids = table[corpus.id_column].to_pylist()
    return {
        "x": places[:, 0].round(3).tolist(),
        "y": places[:, 1].round(3).tolist(),
        "cluster": _read_labels(f"{folder}/clusters/assignments", ids) if has_clusters else [NOISE] * len(ids),
        "id": [str(each) for each in ids],
        "text": [text or "" for text in table[corpus.text_column].to_pylist()],
    }


def sample_rows(corpus: Corpus, max_rows: int = MAX_POINTS, max_read_rows: int = MAX_READ_ROWS) -> pa.Table:
    """Ids, texts and vectors of at most about `max_rows` rows of a corpus that is not empty, in its order.

    Every n-th row is taken. Of a corpus of more than `max_read_rows` rows only blocks of about that many rows are read,
    evenly spread over the corpus.
    """
    blocks: Sequence[BlockRef] = corpus.blocks
    if corpus.rows > max_read_rows:
        count = max(1, len(blocks) * max_read_rows // corpus.rows)
        blocks = [blocks[number] for number in np.linspace(0, len(blocks) - 1, count).round().astype(int)]
    step = max(1, -(-sum(block.rows for block in blocks) // max_rows))
    columns = [corpus.id_column, corpus.text_column, corpus.embedding_column]
    tables = []
    for block in blocks:
        rows = np.arange(-block.first_row % step, block.rows, step)
        tables.append(read_columns(block, columns).take(pa.array(rows)))
    return pa.concat_tables(tables)


def _unit_vectors(column: pa.ChunkedArray, corpus: Corpus) -> np.ndarray:
    """The vectors (n, dim) of a column, scaled to unit length."""
    if column.null_count:
        raise DataError(f"{corpus.name} has rows without a vector in {corpus.embedding_column!r}: embed it again")
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    try:
        return unit_rows(values.reshape(-1, corpus.dim))[0]
    except DataError as error:
        raise DataError(f"{corpus.name} has a vector that is not finite: embed it again") from error


def _read_labels(folder: str, ids: list[Any]) -> list[int]:
    """The clusters of the rows with these ids; one part of the assignments is in memory at a time."""
    labels: dict[Any, int] = {}
    try:
        for part in read_manifest(folder).parts:
            table = read_part(folder, part, ["id", "cluster"])
            wanted = comparable_ids(pa.array(ids, table["id"].type))
            table = table.filter(pc.is_in(comparable_ids(table["id"]), value_set=wanted))
            labels |= dict(zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True))
        return [labels[each] for each in ids]
    except (KeyError, pa.ArrowException) as error:
        raise DataError(f"{folder} has other ids than the embeddings: run cluster again") from error


def _read_pairs(folder: str) -> list[Record]:
    columns = ["id_a", "id_b", "score", "numbers_differ", "negation_differs", "text_a", "text_b"]
    rows = read_dataset(f"{folder}/pairs", columns, MAX_PAIRS).to_pylist()
    return [{**row, "id_a": str(row["id_a"]), "id_b": str(row["id_b"])} for row in rows]


def _read_duplicates(folder: str) -> list[Record]:
    """The largest groups: the kept row and the rows nearest to it."""
    columns = ["group", "size", "id", "keep", "score", "numbers_differ", "negation_differs", "text"]
    table = read_dataset(f"{folder}/duplicates", columns, MAX_DUPLICATE_ROWS)
    groups: dict[int, list[Record]] = {}
    for row in table.to_pylist():
        groups.setdefault(row.pop("group"), []).append({**row, "id": str(row["id"])})
    if len(table) == MAX_DUPLICATE_ROWS and len(groups) > 1:
        del groups[max(groups)]  # it may be incomplete
    shown = []
    for rows in list(groups.values())[:MAX_GROUPS]:
        kept = next((row for row in rows if row["keep"]), rows[0])
        others = sorted((row for row in rows if not row["keep"]), key=lambda row: -row["score"])
        shown.append({"size": kept["size"], "kept": kept, "rows": others[:MAX_GROUP_ROWS]})
    return shown


def _duplicate_rows(manifest: Manifest) -> int:
    """Rows that are not the kept one of their group."""
    return manifest.rows - (manifest.groups or 0)


def _read_rejected(folder: str) -> list[Record]:
    return read_dataset(f"{folder}/rejected", ["file", "row", "id", "reason"], MAX_REJECTED).to_pylist()


def _count_scores(folder: str) -> list[tuple[float, int]]:
    """The histogram of the scores of all pairs: lower edges and counts."""
    scores = read_dataset(f"{folder}/pairs", ["score"])["score"].to_numpy()
    if not len(scores):
        return []
    counts, edges = np.histogram(scores, SCORE_BINS, range=(float(scores.min()), max(float(scores.max()), 1.0)))
    return [(float(edge), int(count)) for edge, count in zip(edges, counts, strict=False)]


def _figures(folder: str, manifests: dict[str, Manifest]) -> list[tuple[str, str]]:
    """The figures at the top of the page."""
    embeddings = manifests["embeddings"]
    figures = [
        ("rows", f"{embeddings.rows:,}"),
        ("tokens", f"{embeddings.n_tokens or 0:,}"),
        ("model", str(embeddings.model)),
    ]
    if "pairs" in manifests:
        pairs = manifests["pairs"]
        figures.append((f"pairs over {pairs.settings.get('min_score', '?')}", f"{pairs.rows:,}"))
    if "duplicates" in manifests:
        figures.append(("duplicates", f"{_duplicate_rows(manifests['duplicates']):,}"))
    if "clusters/summary" in manifests:
        summary = manifests["clusters/summary"]
        figures.append(("clusters", f"{summary.clusters or 0:,}"))
        figures += [
            (name.replace("_", " "), f"{value:.3f}")
            for name, value in (summary.quality or {}).items()
            if value is not None
        ]
    with contextlib.suppress(ValueError, KeyError, TypeError):  # a record of the run, not part of the result
        content = read_bytes(f"{folder}/embeddings/_run.json")
        if content:
            figures.append(("seconds to embed", str(json.loads(content)["seconds"])))
    return figures


def _shorten(manifest: Manifest) -> dict[str, Any]:
    """A manifest that is short enough to read: the first parts, and no hierarchy of clusters."""
    content = manifest.to_dict()
    parts = content["parts"]
    more = [f"... and {len(parts) - MAX_PARTS} more"] if len(parts) > MAX_PARTS else []
    return {name: value for name, value in content.items() if name != "hierarchy"} | {
        "parts": [*parts[:MAX_PARTS], *more]
    }
