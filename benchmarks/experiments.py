"""The questions of the Sentence-BERT paper, asked again: eight experiments, one table each.

    python -m benchmarks.experiments --data DATA --models MODELS --work FOLDER [--only EXPERIMENT ...]

Hours on a few cores. Each step's result is kept in FOLDER as soon as it is there, so a run that was stopped goes on;
the same command started several times shares the steps out. At the end benchmarks/results/experiments.json holds all
steps done so far; `python -m benchmarks.experiment_tables` makes docs/experiments.md of it. benchmarks/README.md says
what DATA and MODELS hold.
"""

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from filelock import FileLock, Timeout

from benchmarks.measure import RESULTS, machine, race
from benchmarks.recipes import (
    BASE,
    CONCATENATIONS,
    GIVEN,
    POOLINGS,
    STATIC,
    STS,
    Places,
    ablation_name,
    file_name,
    static,
    trained,
    with_pooling,
)
from sbert_beam import SentenceEncoder, evaluate

TEACHER = "multiple negatives, then STS"
STUDENT = "student, distilled"
SIGNALS = ("NLI", "STS", "NLI, then STS", "triplets")
DESCENDANTS = ("multiple negatives", "augmentation", "FGSM", "SimCSE", TEACHER)
SEEDS = (1, 2, 3)
YEARS = ("2012", "2013", "2014", "2015", "2016")
LANGUAGES = ("de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "zh")
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
TRANSFER_ROWS = 4_000  # of a split, at most
SENTENCES = 10_000

Figures = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Step:
    """The smallest piece of an experiment: some rows of its table, one column."""

    experiment: str
    name: str
    column: str
    measure: Callable[[], dict[str, Figures]]  # figures by row

    @property
    def names(self) -> set[str]:
        """What it can be asked for by."""
        row = f"{self.experiment}:{self.name}"
        return {self.experiment, row, f"{row}:{self.column}"}

    def run(self, folder: Path) -> None:
        """Measures and keeps it, unless that was done before, or another process is at it."""
        path = folder / f"{file_name(f'{self.experiment} {self.name} {self.column}')}.json"
        try:
            with FileLock(f"{path}.lock", timeout=0):
                if path.exists():
                    return
                print(f"{self.experiment}: {self.name}, {self.column}", flush=True)
                start = time.process_time()
                rows = self.measure()
                done = {
                    "experiment": self.experiment,
                    "column": self.column,
                    "rows": rows,
                    "cpu_s": round(time.process_time() - start, 1),
                }
                partial = path.with_suffix(".partial")
                partial.write_text(json.dumps(done, indent=2) + "\n", encoding="utf-8")
                partial.rename(path)
                print(f"{self.experiment}: {json.dumps(rows)}", flush=True)
        except Timeout:
            return


class Remembering:
    """An encoder that encodes no text twice, for several looks at the same vectors."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self._encoder = encoder
        self._vectors: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (n, dim)."""
        new = sorted(set(texts) - self._vectors.keys())
        self._vectors.update(zip(new, self._encoder.encode(new), strict=True))
        return np.stack([self._vectors[text] for text in texts])


@dataclasses.dataclass(frozen=True)
class Columns:
    """Some columns of an encoder's vectors."""

    encoder: Remembering
    start: int
    stop: int

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (n, stop - start)."""
        return self.encoder.encode(texts)[:, self.start : self.stop]


def encoders(name: str, places: Places) -> dict[str, Any]:
    """The encoders of a name: one, or of the base one per pooling, which share their passes."""
    if name == BASE:
        base = SentenceEncoder.load(f"{places.models}/{BASE}")
        dim, shared = base.dim, Remembering(with_pooling(base, *POOLINGS))
        return {
            f"{BASE}, {mode}": Columns(shared, number * dim, (number + 1) * dim) for number, mode in enumerate(POOLINGS)
        }
    if name in STATIC:
        return {name: static(name, places)}
    if name in GIVEN:
        return {name: SentenceEncoder.load(given_folder(name, places))}
    return {name: SentenceEncoder.load(trained(name, SEEDS[0], places))}


def given_folder(name: str, places: Places) -> str:
    """What `SentenceEncoder.load` takes for an encoder that is given."""
    return "default" if GIVEN[name] == "default" else f"{places.models}/{name}"


def score(name: str, places: Places, task: Any, data: str, **options: Any) -> dict[str, Figures]:
    """What `sbert-beam evaluate` says of the encoders of a name."""
    told = evaluate(task, encoders(name, places), f"{places.data}/{data}", **options)
    return {each.model: each.scores for each in told}


def sts_steps(places: Places) -> Iterator[Step]:
    """Similarity of sentences, for raw, static and trained encoders; the figures of experiments 1 and 2."""
    columns: dict[str, dict[str, Any]] = {
        "STS-B": {"data": "stsb/stsb_en.parquet", "where": {"split": "test"}},
        "SICK-R": {"data": "sick/sick.parquet", "label_range": [1, 5]},
        **{f"STS{year[2:]}": {"data": "sts12_16/sts12_16.parquet", "where": {"year": year}} for year in YEARS},
    }
    languages = {
        language: {"data": "stsb/stsb_multilingual.parquet", "where": {"split": "test", "lang": language}}
        for language in LANGUAGES
    }
    names = [*STATIC, "all-MiniLM-L6-v2", "paraphrase-MiniLM-L3-v2", BASE, "NLI", "all-mpnet-base-v2"]
    for name in names:
        for column, options in (columns | (languages if name in (*STATIC, *GIVEN) else {})).items():
            yield Step("sts", name, column, functools.partial(score, name, places, "sts", **{**STS, **options}))


def score_trained(recipe: str, seed: int, splits: Sequence[str], places: Places) -> dict[str, Figures]:
    """Spearman on STS-B of an encoder that is trained first."""
    encoder = SentenceEncoder.load(trained(recipe, seed, places))
    data = f"{places.data}/stsb/stsb_en.parquet"
    return {recipe: {split: _spearman(encoder, data, split) for split in splits}}


def _spearman(encoder: SentenceEncoder, data: str, split: str) -> float:
    (told,) = evaluate("sts", {"": encoder}, data, where={"split": split}, **STS)
    return told.score


def trained_steps(
    experiment: str, names: Sequence[str], seeds: Sequence[int], places: Places, splits: Sequence[str] = ("dev", "test")
) -> Iterator[Step]:
    """What each recipe makes of the base, with each seed."""
    for seed in seeds:
        for recipe in names:
            measure = functools.partial(score_trained, recipe, seed, splits, places)
            yield Step(experiment, recipe, f"seed {seed}", measure)


def transfer_steps(places: Places) -> Iterator[Step]:
    """What a logistic regression reads off the vectors."""
    files: dict[str, dict[str, Any]] = {
        task: {"data": "senteval/senteval.parquet", "columns": ["text"], "where": {"task": task}} for task in TRANSFER
    }
    files["TREC"] = {"data": "topic_sets/trec.parquet", "columns": ["text"]}
    files["MRPC"] = {
        "data": "paraphrase_pairs/paraphrase_pairs.parquet",
        "columns": ["sentence1", "sentence2"],
        "where": {"source": "mrpc"},
    }
    for name in (*STATIC, *GIVEN, "NLI", BASE):
        for task, options in files.items():
            measure = functools.partial(score, name, places, "transfer", label="label", limit=TRANSFER_ROWS, **options)
            yield Step("transfer", name, task, measure)


def section_steps(places: Places) -> Iterator[Step]:
    """Whether sentences of one section of an article are nearer than those of another; articles not learned from."""
    options = {"columns": ["anchor", "positive", "negative"], "where": {"split": "test"}}
    for name in (*STATIC, "all-MiniLM-L6-v2", "sections", BASE):
        measure = functools.partial(
            score, name, places, "triplets", "wiki_sections/wiki_section_triplets.parquet", **options
        )
        yield Step("sections", name, "test", measure)


def measure_efficiency(places: Places) -> dict[str, Figures]:
    """The most similar pair of many sentences, by the default model and by a cross-encoder of its size."""
    (told,) = evaluate(
        "efficiency",
        "default",
        f"{places.data}/english_sentences/english_1m.parquet",
        columns=["text"],
        limit=2 * SENTENCES,
        sentences=SENTENCES,
        seed=SEEDS[0],
    )
    return {"all-MiniLM-L6-v2": told.scores | told.counts}


def measure_student_speed(places: Places) -> dict[str, Figures]:
    """CPU seconds of a distilled student and of its teacher for the same sentences, in turn."""
    sentences = pq.read_table(places.work / "snli_sentences.parquet")["text"].slice(0, 1_000).to_pylist()
    folders = {name: trained(name, SEEDS[0], places) for name in (TEACHER, STUDENT)}
    loaded = {name: SentenceEncoder.load(folder) for name, folder in folders.items()}
    return race({name: lambda e=encoder: e.encode(sentences) for name, encoder in loaded.items()}, rounds=3)


def all_steps(places: Places) -> list[Step]:
    """Every step of every experiment, what others need first."""
    ablations = [ablation_name(mode, kind) for mode in POOLINGS for kind in CONCATENATIONS]
    return [
        Step("efficiency", "cross-encoder", f"{SENTENCES:,} sentences", lambda: measure_efficiency(places)),
        *section_steps(places),
        *sts_steps(places),
        *trained_steps("signals", SIGNALS, SEEDS, places),
        *trained_steps("descendants", (*DESCENDANTS, STUDENT), SEEDS[:2], places),
        Step("speed", STUDENT, "CPU", lambda: measure_student_speed(places)),
        *trained_steps("ablation", ablations, SEEDS, places, splits=["dev"]),
        *transfer_steps(places),
    ]


def collect(folder: Path) -> dict[str, Any]:
    """All steps done so far as experiment, row, column."""
    tables: dict[str, dict[str, dict[str, Figures]]] = {}
    for path in sorted(folder.glob("*.json")):
        done = json.loads(path.read_text(encoding="utf-8"))
        for row, figures in done["rows"].items():
            tables.setdefault(done["experiment"], {}).setdefault(row, {})[done["column"]] = figures
    return tables


def main() -> None:
    """Runs what is missing and stores benchmarks/results/experiments.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of data sets")
    parser.add_argument("--models", type=Path, required=True, help="folder of encoders")
    parser.add_argument("--work", type=Path, required=True, help="folder for trained models and finished steps")
    parser.add_argument("--only", nargs="*", default=[], help="EXPERIMENT, EXPERIMENT:ROW or EXPERIMENT:ROW:COLUMN")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    places = Places(arguments.data, arguments.models, arguments.work)
    folder = places.work / "steps"
    folder.mkdir(parents=True, exist_ok=True)
    for step in all_steps(places):
        if not arguments.only or step.names & set(arguments.only):
            step.run(folder)
    content = {"machine": machine("torch", "transformers"), **collect(folder)}
    (RESULTS / "experiments.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
