"""Writes the metadata of the flex templates from the options of the jobs: `python -m deploy.make_metadata`."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from sbert_core.clusters.algorithms import ALGORITHMS
from transforms.encode.encode_resources import ACCELERATOR_PATTERN, RAM_PATTERN
from transforms.neighbors.duplicates import KEEP_RULES
from transforms.neighbors.exact import PAIRINGS

FOLDER = Path(__file__).parent / "dataflow"

# A template is one Dataflow job; `run` starts several and waits for each: see deploy/README.md.
TEMPLATES: dict[str, tuple[type, str]] = {
    "embed": (EmbedOptions, "Sentences in Parquet, JSON lines, CSV or text files to embedding columns."),
    "mine": (MineOptions, "Embeddings to neighbours, paraphrase pairs and duplicates."),
    "cluster": (ClusterOptions, "Embeddings and neighbours to named clusters."),
}

TEXT, COLUMN, SWITCH = ".+", r"\S(.*\S)?", "true|false"
COUNT, COUNT_OR_NONE = "[1-9][0-9]*", "[0-9]+"
DECIMAL, SHARE = r"[0-9]+(\.[0-9]+)?", r"0(\.[0-9]+)?|1(\.0+)?"
COSINE = f"-?({SHARE})"
BUCKET = r"gs://\S+"
MODEL = r"(/|gs://|s3://)\S+"  # workers do not use the hub

# Patterns of values, where the type of the option is not enough.
PATTERNS = {
    "input": BUCKET,
    "output": BUCKET,
    "other": BUCKET,
    "clusters": BUCKET,
    "model": MODEL,
    "cross_encoder": MODEL,
    "stored": "float32|float16|int8",
    "csv_delimiter": 'tab|[^\\n\\r"]',
    "encoding": r"[A-Za-z0-9_-]+",
    "device": "auto|cpu|cuda",
    "precision": "auto|float32|float16|bfloat16|int8",
    "accelerator": ACCELERATOR_PATTERN,
    "encode_ram": RAM_PATTERN,
    "encode_cpus": COUNT_OR_NONE,
    "min_score": COSINE,
    "min_neighbor_score": COSINE,
    "duplicate_score": COSINE,
    "max_lexical_overlap": SHARE,
    "pairing": "|".join(PAIRINGS),
    "keep": "|".join(KEEP_RULES),
    "index": "exact|routed",
    "cells": COUNT_OR_NONE,
    "algorithm": "|".join(ALGORITHMS),
    "k": f"auto|{COUNT}",
    "reduction": "pca|umap",
    "period": "D|W|M|Q|Y",
}
# Help texts where a template accepts less than the command line.
HELP = {
    ("embed", "input"): "a glob, folder or manifest of .parquet, .jsonl, .json, .csv, .tsv or .txt files (also .gz)",
    ("embed", "model"): "a folder of the worker image, or a URI (default: /opt/model of the image)",
    ("mine", "input"): "the result of an embed job, or a glob of Parquet files with ids, texts and vectors",
    ("mine", "cross_encoder"): "a folder or URI of a sequence-classification model that scores the pairs",
}
TYPES = {"output": "GCS_WRITE_FOLDER"}


def make_metadata(job: str) -> dict[str, Any]:
    """The metadata of a template for Dataflow: its name and a parameter for each option of the job."""
    options, description = TEMPLATES[job]
    return {
        "name": f"sbert-beam {job}",
        "description": description,
        "parameters": [_parameter(job, field) for field in dataclasses.fields(options)],
    }


def _parameter(job: str, field: dataclasses.Field[Any]) -> dict[str, Any]:
    optional = field.default is not dataclasses.MISSING
    default = f" (default: {field.default})" if optional and field.default not in (None, False, 0) else ""
    return {
        "name": field.name,
        "label": field.name.replace("_", " ").capitalize(),
        "helpText": HELP.get((job, field.name), str(field.metadata["help"]) + default),
        "isOptional": optional,
        "regexes": [f"^({_pattern(field)})$"],
        "paramType": _param_type(field),
    }


def _pattern(field: dataclasses.Field[Any]) -> str:
    if field.name in PATTERNS:
        return PATTERNS[field.name]
    if isinstance(field.default, bool):
        return SWITCH
    if isinstance(field.default, int):
        return COUNT
    if isinstance(field.default, float):
        return DECIMAL
    return COLUMN if field.name.endswith("_column") else TEXT


def _param_type(field: dataclasses.Field[Any]) -> str:
    if isinstance(field.default, bool):
        return "BOOLEAN"
    if isinstance(field.default, int | float):
        return "NUMBER"
    return TYPES.get(field.name, "TEXT")


def render(job: str) -> str:
    """The file of a template's metadata."""
    return json.dumps(make_metadata(job), indent=2) + "\n"


if __name__ == "__main__":
    for name in TEMPLATES:
        (FOLDER / f"{name}.json").write_text(render(name), encoding="utf-8")
