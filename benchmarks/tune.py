"""What training is good for: clusters of one's own intents, a smaller student, and how fast a step is.

    python -m benchmarks.tune --data DATA --work FOLDER [--only SECTION]

DATA holds topic_sets/, stsb/, snli/ and english_sentences/. About half an hour on one core.
"""

import argparse
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.measure import machine, measure_sections, race
from pipelines.cli import main as sbert_beam
from sbert_beam import SentenceEncoder, TrainPlan, train
from sbert_core.encoder.model_source import find_model
from sbert_core.training.dev import read_dev, score_dev
from sbert_core.training.plan import DevSpec

SEED = 1
STS = {"columns": ["sentence1", "sentence2"], "label": "score", "label_range": [0, 5]}


def measure_intents(data: Path, work: Path) -> dict[str, Any]:
    """Clusters of BANKING77's test questions before and after learning from pairs of its train questions."""
    table = pq.read_table(data / "topic_sets/banking77.parquet")
    learned, tested = (table.filter(pc.equal(table["split"], split)) for split in ("train", "test"))
    labels = np.array(learned["label"].to_pylist())
    texts = np.array(learned["text"].to_pylist(), dtype=object)
    rng = np.random.default_rng(SEED)
    partners = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        partners[rows] = np.roll(rows, 1)
    pq.write_table(pa.table({"anchor": texts, "positive": texts[partners]}), work / "intents.parquet")
    plan = {
        "model": "default",
        "output": f"{work}/intents",
        "data": {"file": f"{work}/intents.parquet"},
        "batch_size": 32,
        "learning_rate": 5e-5,
        "seed": SEED,
    }
    figures = train(TrainPlan.from_dict(plan), progress=True)
    questions, truth = tested["text"].to_pylist(), np.array(tested["label"].to_pylist())
    result: dict[str, Any] = {"rows_learned": len(labels), "rows_tested": len(truth), "steps": figures["steps"]}
    for name, model in (("before", "default"), ("after", f"{work}/intents")):
        vectors = SentenceEncoder.load(model).encode(questions)
        found = KMeans(len(np.unique(truth)), n_init=4, random_state=SEED).fit_predict(vectors)
        result[name] = {
            "k-means nmi": 100 * normalized_mutual_info_score(truth, found),
            "k-means ari": 100 * adjusted_rand_score(truth, found),
            "run": run_job(work, tested, model, name),
        }
    return result


def run_job(work: Path, table: pa.Table, model: str, name: str) -> dict[str, Any]:
    """`sbert-beam run` with this model: agreement of its clusters, whose number it does not know."""
    pq.write_table(table.select(["text", "label"]), work / "questions.parquet")
    output = work / f"run-{name}"
    flags = ["--input", f"{work}/questions.parquet", "--output", str(output), "--model", model]
    with contextlib.redirect_stdout(io.StringIO()):
        code = sbert_beam(["run", *flags, "--labels_column", "label"])
    assert code == 0
    manifest = json.loads((output / "clusters/summary/_manifest.json").read_text(encoding="utf-8"))
    return {"clusters": manifest["clusters"], **{key: 100 * manifest["quality"][key] for key in ("nmi", "ari")}}


def measure_student(data: Path, work: Path) -> dict[str, Any]:
    """Three of the default model's six layers learn to embed like all six."""
    english = pq.read_table(data / "english_sentences/english_1m.parquet", columns=["text"])["text"]
    chosen = np.random.default_rng(SEED).choice(len(english), 4_000, replace=False)
    captions = pq.read_table(data / "snli/snli_triplets.parquet")["anchor"].slice(0, 4_000)
    texts = sorted({text for text in (*english.take(pa.array(chosen)).to_pylist(), *captions.to_pylist()) if text})
    pq.write_table(pa.table({"text": texts}), work / "plain.parquet")
    plan = {
        "model": "default",
        "output": f"{work}/student",
        "keep_layers": 3,
        "data": {
            "file": f"{work}/plain.parquet",
            "columns": ["text"],
            "objective": "distillation",
            "teacher": "default",
        },
        "batch_size": 64,
        "learning_rate": 1e-4,
        "seed": SEED,
    }
    figures = train(TrainPlan.from_dict(plan), progress=True)
    encoders = {
        name: SentenceEncoder.load(model) for name, model in (("teacher", "default"), ("student", f"{work}/student"))
    }
    dev = DevSpec(file=f"{data}/stsb/stsb_en.parquet", where={"split": "test"}, **STS)
    pairs = read_dev(dev)
    scores = {name: 100 * score_dev(encoder, dev, pairs) for name, encoder in encoders.items()}
    sample = english.slice(0, 2000).to_pylist()
    times = race({name: lambda e=encoder: e.encode(sample) for name, encoder in encoders.items()}, rounds=5)
    return {
        "texts": len(texts),
        "steps": figures["steps"],
        "stsb_test": scores,
        "kept": scores["student"] / scores["teacher"],
        "encode": times,
        "speed_up_cpu": times["teacher"]["cpu_s"] / times["student"]["cpu_s"],
    }


def measure_steps(data: Path, work: Path) -> dict[str, Any]:
    """CPU time of a training step here and in sentence-transformers' trainer: same rows, batch, loss and precision."""
    table = pq.read_table(data / "snli/snli_triplets.parquet").slice(0, 2000)
    pq.write_table(table, work / "triplets.parquet")
    folder = str(find_model("default"))
    few, many = 2, 10

    def ours(steps: int) -> None:
        output = work / f"steps-{time.time_ns()}"
        plan = {"model": "default", "output": str(output), "data": {"file": f"{work}/triplets.parquet"}}
        train(TrainPlan.from_dict({**plan, "batch_size": 32, "max_steps": steps, "checkpoint_every": 0}))

    def theirs(steps: int) -> None:
        model = SentenceTransformer(folder, device="cpu")
        settings = SentenceTransformerTrainingArguments(
            output_dir=str(work / "peer"),
            max_steps=steps,
            per_device_train_batch_size=32,
            learning_rate=2e-5,
            warmup_steps=0.1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            batch_sampler="no_duplicates",
        )
        loss = MultipleNegativesRankingLoss(model)
        SentenceTransformerTrainer(model, settings, train_dataset=Dataset(table), loss=loss).train()

    contestants = {
        f"{name} {steps}": lambda run=run, steps=steps: run(steps)
        for name, run in (("sbert-beam", ours), ("sentence-transformers", theirs))
        for steps in (few, many)
    }
    times = race(contestants, rounds=3)
    per_step = {
        name: {
            kind: (times[f"{name} {many}"][kind] - times[f"{name} {few}"][kind]) / (many - few)
            for kind in ("cpu_s", "wall_s")
        }
        for name in ("sbert-beam", "sentence-transformers")
    }
    ratio = per_step["sentence-transformers"]["cpu_s"] / per_step["sbert-beam"]["cpu_s"]
    return {"batch": 32, "columns": 3, "per_step": per_step, "speed_up_cpu": ratio}


def measure_processes(data: Path, work: Path) -> dict[str, Any]:
    """The loss curves of one process and of two (gloo) with the same global batch, dropout off."""
    parts = SentenceEncoder.load("default").parts
    parts.body.model.config.hidden_dropout_prob = parts.body.model.config.attention_probs_dropout_prob = 0.0
    SentenceEncoder(parts).save(work / "no-dropout")
    pq.write_table(pq.read_table(data / "snli/snli_triplets.parquet").slice(0, 2000), work / "triplets.parquet")
    plan = {
        "model": f"{work}/no-dropout",
        "data": {"file": f"{work}/triplets.parquet"},
        "batch_size": 32,
        "max_steps": 30,
        "learning_rate": 5e-5,
    }
    (work / "plan.yaml").write_text(json.dumps(plan), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = ["-m", "pipelines", "train", "--config", f"{work}/plan.yaml", "--output"]
    two = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={port}"]
    curves = []
    for name, launch in (("one", []), ("two", two)):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *launch, *job, f"{work}/{name}"], check=True, env=environment)
        lines = (work / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        curves.append([json.loads(line)["loss"] for line in lines])
    difference = max(abs(a - b) / abs(a) for a, b in zip(*curves, strict=True))
    return {"one": curves[0], "two": curves[1], "largest_relative_difference": difference}


def main() -> None:
    """Measures everything and stores benchmarks/results/tune.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--work", type=Path, required=True, help="folder for trained models")
    parser.add_argument("--only", help="measure only this section of the stored result")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.work.mkdir(parents=True, exist_ok=True)
    places = (arguments.data, arguments.work)
    sections = {
        "machine": lambda: machine("torch", "transformers", "sentence-transformers"),
        "intents": lambda: measure_intents(*places),
        "student": lambda: measure_student(*places),
        "steps": lambda: measure_steps(*places),
        "processes": lambda: measure_processes(*places),
    }
    measure_sections("tune", sections, arguments.only)


if __name__ == "__main__":
    main()
