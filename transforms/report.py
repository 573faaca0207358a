"""Gathers what the jobs have written below a folder into what a report shows."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from sbert_core.errors import DataError
from sbert_core.layout import place_vectors
from sbert_core.report import ReportData
from transforms.corpus import open_corpus, read_columns, read_vectors
from transforms.files import MANIFEST, open_file, read_bytes, read_manifest

MAX_POINTS = 20_000
MAX_PAIRS = 500
MAX_REJECTED = 100
SHOWN_PARTS = 20


def read_dataset(folder: str, columns: list[str] | None = None, rows: int | None = None) -> pa.Table:
    """A dataset by its manifest, or its first rows."""
    tables: list[pa.Table] = []
    for part in read_manifest(folder)["parts"]:
        with open_file(f"{folder}/{part['name']}") as file:
            tables.append(pq.read_table(file, columns=columns))
        if rows is not None and sum(map(len, tables)) >= rows:
            break
    table = pa.concat_tables(tables) if tables else pa.table({name: pa.array([]) for name in columns or ()})
    return table if rows is None else table.slice(0, rows)


def collect_report(folder: str, title: str) -> ReportData:
    """Reads embeddings/, pairs/, clusters/ and rejected/ below `folder`; what was not made is left out."""
    if not FileSystems.exists(f"{folder}/embeddings/{MANIFEST}"):
        raise DataError(f"{folder} has no embeddings/ with a manifest: run embed first")
    manifests = {
        name: read_manifest(f"{folder}/{name}")
        for name in ("embeddings", "rejected", "neighbors", "pairs", "duplicates", "clusters/summary")
        if FileSystems.exists(f"{folder}/{name}/{MANIFEST}")
    }
    embeddings = manifests["embeddings"]
    clusters = _clusters(folder) if "clusters/summary" in manifests else []
    pairs = read_dataset(f"{folder}/pairs", ["score"])["score"].to_numpy() if "pairs" in manifests else np.empty(0)
    return ReportData(
        title=title,
        figures=_figures(folder, manifests),
        clusters=clusters,
        points=_points(folder, bool(clusters)),
        pairs=_pairs(folder) if "pairs" in manifests else [],
        score_counts=_histogram(pairs),
        rejected=_rejected(folder) if "rejected" in manifests else [],
        rejected_rows=manifests.get("rejected", {}).get("rows", 0),
        truncated_rows=embeddings["truncated"],
        rows=embeddings["rows"],
        manifests={name: _shortened(manifest) for name, manifest in manifests.items()},
    )


def _clusters(folder: str) -> list[dict[str, Any]]:
    columns = ["cluster", "size", "name", "terms", "exemplar_texts", "cohesion", "separation", "nearest_cluster"]
    rows = read_dataset(f"{folder}/clusters/summary", columns).to_pylist()
    return [
        {**{name: row[name] for name in columns[:4]}, "exemplars": row["exemplar_texts"], "cohesion": row["cohesion"],
         "separation": row["separation"], "nearest": row["nearest_cluster"]}
        for row in rows
    ]  # fmt: skip


def _points(folder: str, clustered: bool) -> dict[str, list[Any]]:
    """A place, a cluster and a text for each row of a sample."""
    corpus = open_corpus(f"{folder}/embeddings")
    step = max(1, -(-corpus.rows // MAX_POINTS))
    vectors, ids, texts = [], [], []
    for block in corpus.blocks:
        chosen = np.arange(-block.first_row % step, block.rows, step)
        unit, _ = read_vectors(corpus, block)
        table = read_columns(block, [corpus.id_column, corpus.text_column]).take(pa.array(chosen))
        vectors.append(unit[chosen])
        ids += table[corpus.id_column].to_pylist()
        texts += table[corpus.text_column].to_pylist()
    labels = [-1] * len(ids)
    if clustered:
        labels = _labels(f"{folder}/clusters/assignments", ids)
    places = place_vectors(np.concatenate(vectors)) if ids else np.empty((0, 2))
    return {
        "x": places[:, 0].round(3).tolist(),
        "y": places[:, 1].round(3).tolist(),
        "cluster": labels,
        "id": [str(each) for each in ids],
        "text": [text or "" for text in texts],
    }


def _labels(folder: str, ids: list[Any]) -> list[int]:
    """The clusters of some rows; of the others no more than a part is in memory."""
    known: dict[Any, int] = {}
    for part in read_manifest(folder)["parts"]:
        with open_file(f"{folder}/{part['name']}") as file:
            table = pq.read_table(file, columns=["id", "cluster"])
        table = table.filter(pc.is_in(table["id"], value_set=pa.array(ids, table["id"].type)))
        known |= dict(zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True))
    return [known[each] for each in ids]


def _pairs(folder: str) -> list[dict[str, Any]]:
    columns = ["id_a", "id_b", "score", "text_a", "text_b"]
    table = read_dataset(f"{folder}/pairs", columns, MAX_PAIRS)
    rows = table.to_pylist()
    return [{**row, "id_a": str(row["id_a"]), "id_b": str(row["id_b"])} for row in rows]


def _rejected(folder: str) -> list[dict[str, Any]]:
    return read_dataset(f"{folder}/rejected", ["file", "row", "id", "reason"], MAX_REJECTED).to_pylist()


def _histogram(scores: np.ndarray, bins: int = 25) -> list[tuple[float, int]]:
    """How many pairs have which score: lower edges and counts."""
    if not len(scores):
        return []
    counts, edges = np.histogram(scores, bins=bins, range=(float(scores.min()), max(float(scores.max()), 1.0)))
    return [(float(edge), int(count)) for edge, count in zip(edges, counts, strict=False)]


def _figures(folder: str, manifests: dict[str, Any]) -> list[tuple[str, str]]:
    """The few figures a person asks for first."""
    embeddings = manifests["embeddings"]
    figures = [
        ("rows", f"{embeddings['rows']:,}"),
        ("tokens", f"{embeddings['n_tokens']:,}"),
        ("model", str(embeddings["model"])),
    ]
    if "pairs" in manifests:
        figures.append((f"pairs over {manifests['pairs']['settings']['min_score']}", f"{manifests['pairs']['rows']:,}"))
    if "duplicates" in manifests:
        figures.append(("groups of duplicates", f"{manifests['duplicates']['groups']:,}"))
    if "clusters/summary" in manifests:
        summary = manifests["clusters/summary"]
        figures.append(("clusters", f"{summary['clusters']:,}"))
        figures += [
            (name.replace("_", " "), f"{value:.3f}") for name, value in summary["quality"].items() if value is not None
        ]
    content = read_bytes(f"{folder}/embeddings/_run.json")
    if content:
        figures.append(("seconds to embed", str(json.loads(content)["seconds"])))
    return figures


def _shortened(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest fit to be read: thousands of parts say no more than the first of them."""
    parts = manifest["parts"]
    more = [f"... and {len(parts) - SHOWN_PARTS} more"] if len(parts) > SHOWN_PARTS else []
    return {name: value for name, value in manifest.items() if name != "hierarchy"} | {
        "parts": [*parts[:SHOWN_PARTS], *more]
    }
