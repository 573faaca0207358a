"""The encoders of the experiments: those that are given, static word vectors, and what training makes of one base."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import safetensors.torch
import torch
from filelock import FileLock
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from sbert_beam import SentenceEncoder, TrainPlan, train
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.static_embedding import StaticEmbedding

BASE = "distilbert-base-cased-body"  # a transformer that was never trained on sentences
GIVEN = {"all-MiniLM-L6-v2": "default"} | {name: name for name in ("all-mpnet-base-v2", "paraphrase-MiniLM-L3-v2")}
STATIC = ("GloVe 6B 50d", "WordLlama 256d")
POOLINGS = ("cls", "mean", "max")
CONCATENATIONS = ("u,v", "|u-v|", "u,v,|u-v|", "u,v,|u-v|,u*v")
STS = {"columns": ["sentence1", "sentence2"], "label": "score", "label_range": [0, 5]}


@dataclasses.dataclass(frozen=True)
class Places:
    """Where things are."""

    data: Path  # the data sets
    models: Path  # the encoders that are given
    work: Path  # what is made on the way


def recipes(places: Places) -> dict[str, dict[str, Any]]:
    """How each encoder is trained, by name; `after` names the one it goes on from instead of the base."""
    work = places.work
    sts = {"file": f"{places.data}/stsb/stsb_en.parquet", "objective": "regression", "where": {"split": "train"}, **STS}
    triplets = {"file": f"{work}/snli_triplets.parquet", "columns": ["anchor", "positive", "negative"]}
    sentences = {"file": f"{work}/snli_sentences.parquet", "columns": ["text"]}
    sections = {
        "file": f"{places.data}/wiki_sections/wiki_section_triplets.parquet",
        "columns": ["anchor", "positive", "negative"],
        "where": {"split": "train"},
        "objective": "triplet",
    }
    ranking = {"max_steps": 100, "batch_size": 32}
    augment = {"delete": 0.1, "swap": 1, "probability": 0.5}
    return {
        "NLI": {"data": [_nli(work)], "max_steps": 250},
        "STS": {"data": [sts], "max_steps": 250},
        "NLI, then STS": {"data": [sts], "max_steps": 250, "after": "NLI"},
        "triplets": {"data": [{**triplets, "objective": "triplet"}], "max_steps": 150},
        "multiple negatives": {"data": [triplets], **ranking},
        "multiple negatives, then STS": {"data": [sts], "max_steps": 250, "after": "multiple negatives"},
        "augmentation": {"data": [{**triplets, "augment": augment}], **ranking},
        "FGSM": {"data": [triplets], **ranking, "adversarial": "fgsm"},
        "SimCSE": {"data": [{**sentences, "objective": "simcse"}], "max_steps": 100, "batch_size": 64},
        "student, distilled": {
            "data": [
                {**sentences, "limit": 6_400, "objective": "distillation", "teacher_is": "multiple negatives, then STS"}
            ],
            "keep_layers": 3,
            "after": "multiple negatives, then STS",
            "max_steps": 100,
            "batch_size": 64,
            "learning_rate": 1e-4,
        },
        "sections": {"data": [sections], "max_steps": 100},
        **{
            ablation_name(pooling, concatenation): {
                "data": [{**_nli(work), "options": {"concatenation": concatenation}}],
                "pooling": pooling,
                "keep_layers": 3,
                "max_steps": 80,
            }
            for pooling in POOLINGS
            for concatenation in CONCATENATIONS
        },
    }


def _nli(work: Path) -> dict[str, Any]:
    return {
        "file": f"{work}/snli.parquet",
        "objective": "classification",
        "columns": ["sentence1", "sentence2"],
        "label": "label",
        "where": {"label": ["entailment", "neutral", "contradiction"]},  # "-": its judges did not agree
    }


def ablation_name(pooling: str, concatenation: str) -> str:
    """The recipe of the classification objective with this pooling and this concatenation."""
    return f"NLI {pooling} ({concatenation})"


def trained(recipe: str, seed: int, places: Places) -> str:
    """The folder of an encoder that is trained now, or goes on being trained, or was trained before."""
    settings = dict(recipes(places)[recipe])
    before = settings.pop("after", None)
    begin = trained(before, seed, places) if before else f"{places.models}/{BASE}"
    sources = [dict(source) for source in settings.pop("data")]
    for source in sources:
        teacher = source.pop("teacher_is", None)
        if teacher is not None:
            source["teacher"] = trained(teacher, seed, places)
    folder = places.work / "trained" / f"{file_name(recipe)}-{seed}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # another process may want the same
        prepare(places)
        plan = {
            "model": begin,
            "output": str(folder),
            "data": sources,
            "learning_rate": 5e-5,
            "seed": seed,
            "checkpoint_every": 50,
        }
        train(TrainPlan.from_dict({**plan, **settings}), progress=True)
    return str(folder)


def file_name(name: str) -> str:
    """A name as that of a file."""
    kept = (letter if letter.isalnum() else {"*": "x", "|": "I"}.get(letter, "-") for letter in name)
    return "".join(kept).strip("-")


def prepare(places: Places) -> None:
    """SNLI without the sentences of STS-B dev and test: as pairs, as triplets, and as bare sentences."""
    data, work = places.data, places.work
    work.mkdir(parents=True, exist_ok=True)
    with FileLock(work / "prepare.lock"):
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
    good = [
        all(text and text.strip() and text.strip().casefold() not in texts for text in row)
        for row in zip(*(table[name].to_pylist() for name in columns), strict=True)
    ]
    return table.filter(pa.array(good))


def _write(table: pa.Table, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    pq.write_table(table, partial)
    partial.rename(path)


def with_pooling(encoder: SentenceEncoder, *modes: str) -> SentenceEncoder:
    """An encoder with another pooling, otherwise the same."""
    parts = dataclasses.replace(encoder.parts, pooling=Pooling(encoder.parts.body.dim, modes))
    return SentenceEncoder(parts)


def static(name: str, places: Places) -> SentenceEncoder:
    """Word vectors as an encoder: `glove/` and `wordllama/` below the models hold what their packages carry."""
    if name == "GloVe 6B 50d":
        folder = places.models / "glove"
        words = pq.read_table(next(folder.glob("*index*.parquet")))
        table = np.load(next(folder.glob("*.npy")))
        return _static_encoder(_word_tokenizer(words), np.vstack([table, np.zeros_like(table[:1])]))
    folder = places.models / "wordllama"
    tokenizer = Tokenizer.from_file(str(next(folder.glob("*tokenizer*.json"))))
    (table,) = safetensors.torch.load_file(next(folder.glob("*.safetensors"))).values()
    return _static_encoder(tokenizer, table.float().numpy())


def _static_encoder(tokenizer: Tokenizer, table: np.ndarray) -> SentenceEncoder:
    body = StaticEmbedding(tokenizer, torch.from_numpy(np.ascontiguousarray(table, np.float32)))
    return SentenceEncoder(EncoderParts(body=body, pooling=None, heads=()))


def _word_tokenizer(words: pa.Table) -> Tokenizer:
    """Lower-cased words and signs; those that have no vector share the last row, which is zero."""
    numbers = {word: number for number, word in enumerate(words.column(0).to_pylist())}
    tokenizer = Tokenizer(models.WordLevel({**numbers, "[UNK]": len(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
