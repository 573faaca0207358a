"""Gathers what the jobs have written below a folder into what a report shows."""

import contextlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.data.columns import comparable_ids
from sbert_core.data.manifest import Manifest
from sbert_core.errors import DataError
from sbert_core.report.map_layout import place_vectors
from sbert_core.report.report_page import ReportData
from transforms.dataset.corpus import open_corpus, read_columns, read_vectors
from transforms.dataset.files import read_bytes
from transforms.dataset.published import find_manifest, read_dataset, read_manifest, read_part

MAX_POINTS = 20_000
MAX_PAIRS = 500
MAX_DUPLICATES = 100_000  # rows that are read
MAX_GROUPS = 50
MAX_GROUP_ROWS = 5
MAX_REJECTED = 100
SHOWN_PARTS = 20


def collect_report(folder: str, title: str) -> ReportData:
    """Reads embeddings/, pairs/, clusters/ and rejected/ below `folder`; what was not made is left out."""
    names = ("embeddings", "rejected", "neighbors", "pairs", "duplicates", "clusters/summary")
    found = {name: find_manifest(f"{folder}/{name}") for name in names}
    # What an older release mined has other columns: it is left out until it is mined again.
    mined = ("neighbors", "pairs", "duplicates")
    manifests = {
        name: manifest
        for name, manifest in found.items()
        if manifest is not None and (manifest.kind is not None or name not in mined)
    }
    if "embeddings" not in manifests:
        raise DataError(f"{folder} has no embeddings/ with a manifest: run embed first")
    embeddings = manifests["embeddings"]
    clusters = _clusters(folder) if "clusters/summary" in manifests else []
    pairs = read_dataset(f"{folder}/pairs", ["score"])["score"].to_numpy() if "pairs" in manifests else np.empty(0)
    rejected_rows = manifests["rejected"].rows if "rejected" in manifests else 0
    return ReportData(
        title=title,
        figures=_figures(folder, manifests),
        clusters=clusters,
        points=_points(folder, bool(clusters)),
        pairs=_pairs(folder) if "pairs" in manifests else [],
        score_counts=_histogram(pairs),
        duplicates=_duplicates(folder) if "duplicates" in manifests else [],
        duplicate_rows=_superfluous(manifests["duplicates"]) if "duplicates" in manifests else 0,
        rejected=_rejected(folder) if "rejected" in manifests else [],
        rejected_rows=rejected_rows,
        truncated_rows=embeddings.truncated or 0,
        rows=embeddings.rows + rejected_rows,
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
    try:
        for part in read_manifest(folder).parts:
            table = read_part(folder, part, ["id", "cluster"])
            wanted = comparable_ids(pa.array(ids, table["id"].type))
            table = table.filter(pc.is_in(comparable_ids(table["id"]), value_set=wanted))
            known |= dict(zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True))
        return [known[each] for each in ids]
    except (KeyError, pa.ArrowException) as error:
        raise DataError(f"{folder} has other ids than the embeddings: run cluster again") from error


def _pairs(folder: str) -> list[dict[str, Any]]:
    columns = ["id_a", "id_b", "score", "numbers_differ", "negation_differs", "text_a", "text_b"]
    table = read_dataset(f"{folder}/pairs", columns, MAX_PAIRS)
    rows = table.to_pylist()
    return [{**row, "id_a": str(row["id_a"]), "id_b": str(row["id_b"])} for row in rows]


def _duplicates(folder: str) -> list[dict[str, Any]]:
    """The largest groups: the kept row and the rows nearest to it."""
    columns = ["group", "size", "id", "keep", "score", "numbers_differ", "negation_differs", "text"]
    table = read_dataset(f"{folder}/duplicates", columns, MAX_DUPLICATES)
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        groups.setdefault(row.pop("group"), []).append({**row, "id": str(row["id"])})
    if len(table) == MAX_DUPLICATES and len(groups) > 1:
        del groups[max(groups)]  # its rows may be cut off
    shown = []
    for rows in list(groups.values())[:MAX_GROUPS]:
        kept = next((row for row in rows if row["keep"]), rows[0])
        others = sorted((row for row in rows if not row["keep"]), key=lambda row: -row["score"])
        shown.append({"size": kept["size"], "kept": kept, "rows": others[:MAX_GROUP_ROWS]})
    return shown


def _superfluous(manifest: Manifest) -> int:
    """Rows that are not the kept one of their group."""
    return manifest.rows - (manifest.groups or 0)


def _rejected(folder: str) -> list[dict[str, Any]]:
    return read_dataset(f"{folder}/rejected", ["file", "row", "id", "reason"], MAX_REJECTED).to_pylist()


def _histogram(scores: np.ndarray, bins: int = 25) -> list[tuple[float, int]]:
    """How many pairs have which score: lower edges and counts."""
    if not len(scores):
        return []
    counts, edges = np.histogram(scores, bins=bins, range=(float(scores.min()), max(float(scores.max()), 1.0)))
    return [(float(edge), int(count)) for edge, count in zip(edges, counts, strict=False)]


def _figures(folder: str, manifests: dict[str, Manifest]) -> list[tuple[str, str]]:
    """The few figures a person asks for first."""
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
        figures.append(("duplicates", f"{_superfluous(manifests['duplicates']):,}"))
    if "clusters/summary" in manifests:
        summary = manifests["clusters/summary"]
        figures.append(("clusters", f"{summary.clusters or 0:,}"))
        figures += [
            (name.replace("_", " "), f"{value:.3f}")
            for name, value in (summary.quality or {}).items()
            if value is not None
        ]
    with contextlib.suppress(ValueError, KeyError, TypeError):  # no part of the result: a page can do without it
        content = read_bytes(f"{folder}/embeddings/_run.json")
        if content:
            figures.append(("seconds to embed", str(json.loads(content)["seconds"])))
    return figures


def _shortened(manifest: Manifest) -> dict[str, Any]:
    """A manifest fit to be read: thousands of parts say no more than the first of them."""
    content = manifest.to_dict()
    parts = content["parts"]
    more = [f"... and {len(parts) - SHOWN_PARTS} more"] if len(parts) > SHOWN_PARTS else []
    return {name: value for name, value in content.items() if name != "hierarchy"} | {
        "parts": [*parts[:SHOWN_PARTS], *more]
    }
