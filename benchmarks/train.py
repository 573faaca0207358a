"""What each objective makes of an encoder that is none for sentences: Spearman on STS-B before and after.

    python -m benchmarks.train --data DATA --model FOLDER --work FOLDER [--rows NAME ...]

DATA holds stsb/ and snli/; FOLDER is a plain transformer (the stored result: the body of distilbert-base-cased). Rows
that --work holds already are not trained again, and one that was stopped goes on; so rows may also run side by side.
About an hour and a half on two cores, as two processes of one thread each. Sentences of STS-B dev and test are taken
out of SNLI before anything is learned from it.
"""

import argparse
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from benchmarks.measure import RESULTS, machine
from sbert_core import SentenceEncoder, train
from sbert_core.pooling import Pooling
from sbert_core.training.dev import read_dev, score_dev
from sbert_core.training.plan import Dev, TrainPlan

SEED = 1
STEPS = 250
STS = {"columns": ["sentence1", "sentence2"], "label": "score", "label_range": [0, 5]}


def rows_of(data: Path, work: Path, model: str) -> dict[str, dict[str, Any]]:
    """The plan of each row of the table; a row may begin with the model of an earlier one."""
    nli = {
        "file": f"{work}/snli.parquet",
        "objective": "classification",
        "columns": ["sentence1", "sentence2"],
        "label": "label",
        "where": {"label": ["entailment", "neutral", "contradiction"]},  # "-": its judges did not agree
    }
    sts = {"file": f"{data}/stsb/stsb_en.parquet", "objective": "regression", "where": {"split": "train"}, **STS}
    triplets = {"file": f"{work}/snli_triplets.parquet", "columns": ["anchor", "positive", "negative"]}
    sentences = {"file": f"{work}/snli_sentences.parquet", "columns": ["text"], "objective": "simcse"}
    ranking = {**triplets, "objective": "multiple_negatives"}
    return {
        "raw, mean": {},
        "raw, cls": {"pooling": "cls"},
        "classification (NLI)": {"data": [nli]},
        "classification (NLI), cls": {"data": [nli], "pooling": "cls"},
        "regression (STS)": {"data": [sts]},
        "NLI, then STS": {"data": [sts], "model": f"{work}/classification-NLI"},
        "triplet": {"data": [{**triplets, "objective": "triplet"}], "max_steps": 150},
        "SimCSE, unsupervised": {"data": [sentences], "max_steps": 100, "batch_size": 64},
        "multiple negatives": {"data": [ranking], "max_steps": 100, "batch_size": 32},
        "multiple negatives, then STS": {"data": [sts], "model": f"{work}/multiple-negatives"},
    }


def folder_of(row: str) -> str:
    """A row's name as that of a folder."""
    return row.replace("(", "").replace(")", "").replace(",", "").replace(" ", "-")


def prepare(data: Path, work: Path) -> None:
    """SNLI without the sentences of STS-B dev and test: as pairs, as triplets, and as bare sentences."""
    work.mkdir(parents=True, exist_ok=True)
    if (work / "snli_sentences.parquet").exists():
        return
    sts = pq.read_table(data / "stsb/stsb_en.parquet")
    sts = sts.filter(pc.not_equal(sts["split"], "train"))
    tested = {text.strip().casefold() for name in ("sentence1", "sentence2") for text in sts[name].to_pylist()}
    pairs = pq.read_table(data / "snli/snli.parquet")
    pairs = _without(pairs.filter(pc.equal(pairs["split"], "train")), ("sentence1", "sentence2"), tested)
    triplets = pq.read_table(data / "snli/snli_triplets.parquet")
    _write(_without(triplets, ("anchor", "positive", "negative"), tested), work / "snli_triplets.parquet")
    _write(pairs, work / "snli.parquet")
    texts = pc.unique(pa.concat_arrays([*pairs["sentence1"].chunks, *pairs["sentence2"].chunks]))
    _write(pa.table({"text": texts.drop_null()}), work / "snli_sentences.parquet")


def _without(table: pa.Table, columns: tuple[str, ...], texts: set[str]) -> pa.Table:
    good = np.array(
        [
            all(text and text.strip() and text.strip().casefold() not in texts for text in row)
            for row in zip(*(table[name].to_pylist() for name in columns), strict=True)
        ]
    )
    return table.filter(pa.array(good))


def _write(table: pa.Table, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    pq.write_table(table, partial)
    partial.rename(path)


def measure(row: str, settings: dict[str, Any], data: Path, work: Path, model: str) -> dict[str, Any]:
    """Trains a row, or takes it up, and scores it."""
    path = work / f"{folder_of(row)}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    result: dict[str, Any] = {"row": row}
    folder, options = model, {}
    if "data" in settings:
        folder = f"{work}/{folder_of(row)}"
        defaults = {"model": model, "max_steps": STEPS, "learning_rate": 5e-5, "seed": SEED, "checkpoint_every": 50}
        figures = train(TrainPlan.from_dict({**defaults, **settings, "output": folder}), progress=True)
        plan = {name: value for name, value in settings.items() if name not in ("data", "model")}
        options = {"objective": settings["data"][0]["objective"], "learning_rate": 5e-5, "seed": SEED, **plan}
        result |= {"steps": figures["steps"], "train_wall_s": figures["seconds"]}
    encoder = SentenceEncoder.load(folder)
    if "data" not in settings and "pooling" in settings:
        encoder = SentenceEncoder(with_pooling(encoder, settings["pooling"]))
    for split in ("dev", "test"):
        dev = Dev(file=f"{data}/stsb/stsb_en.parquet", where={"split": split}, **STS)
        result[split] = 100 * score_dev(encoder, "sts", read_dev(dev))
    result["options"] = options
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(row, result, flush=True)
    return result


def with_pooling(encoder: SentenceEncoder, mode: str) -> Any:
    """The parts of an encoder with another pooling."""
    return dataclasses.replace(encoder.parts, pooling=Pooling(encoder.parts.body.dim, mode))


def main() -> None:
    """Trains what is missing and stores benchmarks/results/train.json when all rows are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--model", required=True, help="the encoder to begin with")
    parser.add_argument("--work", type=Path, required=True, help="folder for trained models and finished rows")
    parser.add_argument("--rows", nargs="*", help="only these rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    prepare(arguments.data, arguments.work)
    rows = rows_of(arguments.data, arguments.work, arguments.model)
    for row in arguments.rows or rows:
        measure(row, rows[row], arguments.data, arguments.work, arguments.model)
    stored = [arguments.work / f"{folder_of(row)}.json" for row in rows]
    if all(path.exists() for path in stored):
        results = [json.loads(path.read_text(encoding="utf-8")) for path in stored]
        content = {"machine": machine("torch", "transformers"), "sts": results}
        (RESULTS / "train.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
