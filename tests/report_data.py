"""Data of reports."""

import dataclasses
import math

import numpy as np

from sbert_core.report.report_page import ReportData

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!-- <script>",
    "<img src=x onerror=alert(3)>",
    "\"quotes\" & 'apostrophes' {{ 7 * 7 }} {% if %}",
    "line\u2028separator\u2029and\x00nul",
    "أين طردي؟ 📦 👩‍👩‍👧",
    "word " * 2000,
]
EMPTY = ReportData(
    title="Nothing",
    figures=[],
    clusters=[],
    points={},
    pairs=[],
    score_counts=[],
    duplicates=[],
    duplicate_rows=0,
    rejected=[],
    rejected_rows=0,
    truncated_rows=0,
    rows=0,
    manifests={},
)


def make_data(n_clusters: int = 5, n_points: int = 100, **changes) -> ReportData:
    """Clusters on a circle, the first the largest, and a few points of noise in the middle."""
    rng = np.random.default_rng(0)
    numbers = np.arange(n_points) % (n_clusters + 1) - 1
    angles = 2 * np.pi * numbers / n_clusters
    places = np.where(numbers[:, None] < 0, 0, 10) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    places = places + rng.normal(scale=0.3, size=places.shape)
    rows = [
        {
            "cluster": number,
            "size": 1000 - number if number >= 0 else 7,
            "name": f"name {number}" if number >= 0 else None,
            "terms": [f"term{number}", "shared"],
            "exemplars": [f"example {number} a", f"example {number} b"],
            "cohesion": (number * 7 % n_clusters) / n_clusters if number >= 0 else None,
            "separation": math.nan,
            "nearest": (number + 1) % n_clusters if number >= 0 else None,
        }
        for number in range(-1, n_clusters)
    ]
    data = ReportData(
        title="A corpus",
        figures=[("rows", f"{n_points:,}")],
        clusters=rows,
        points={
            "x": places[:, 0],
            "y": places[:, 1],
            "cluster": numbers,
            "id": [f"r{row}" for row in range(n_points)],
            "text": [f"text of row {row}" for row in range(n_points)],
        },
        pairs=[
            {"id_a": f"a{n}", "id_b": f"b{n}", "score": np.float32(0.9), "text_a": f"left {n}", "text_b": f"right {n}"}
            for n in range(120)
        ],
        score_counts=[(0.8, 90), (0.85, 0), (0.9, 30)],
        duplicates=[
            {
                "size": 3,
                "kept": {"id": "k", "text": "port 8080"},
                "rows": [{"id": "d", "text": "port 8081", "score": 0.975, "numbers_differ": True}],
            }
        ],
        duplicate_rows=2,
        rejected=[{"file": "part-0.parquet", "row": 3, "id": None, "reason": "text is null"}],
        rejected_rows=1,
        truncated_rows=2,
        rows=n_points + 1,
        manifests={"embeddings/_manifest.json": {"rows": n_points}},
    )
    return dataclasses.replace(data, **changes)


def make_hostile() -> ReportData:
    """Texts that look like markup, in every place that shows a text."""
    texts = [str(text) for text in HOSTILE]
    evil = texts[1]
    return make_data(
        title=evil,
        figures=[(evil, evil)],
        clusters=[
            {"cluster": number, "size": 1, "name": text[:80], "terms": [text[:80]], "exemplars": [text]}
            for number, text in enumerate(texts)
        ],
        points={
            "x": range(len(texts)),
            "y": [0] * len(texts),
            "cluster": range(len(texts)),
            "id": texts,
            "text": texts,
        },
        pairs=[{"id_a": evil, "id_b": text[:80], "score": 0.9, "text_a": text, "text_b": text} for text in texts],
        duplicates=[
            {"size": 2, "kept": {"id": evil, "text": text}, "rows": [{"id": evil, "text": text, "score": 0.99}]}
            for text in texts
        ],
        rejected=[{"file": evil, "row": 1, "id": evil, "reason": text} for text in texts],
        manifests={evil: {evil: texts}},
    )
