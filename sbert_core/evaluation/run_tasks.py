"""The entry point of all tasks: reads the data, loads the models and scores each of them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from sbert_core.data.examples import Examples
from sbert_core.data.tables import column_names
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from sbert_core.evaluation.clustering_task import evaluate_clustering
from sbert_core.evaluation.efficiency_task import evaluate_efficiency
from sbert_core.evaluation.health_task import evaluate_health
from sbert_core.evaluation.mining_task import evaluate_mining
from sbert_core.evaluation.nli_task import evaluate_nli
from sbert_core.evaluation.pairs_task import evaluate_pairs
from sbert_core.evaluation.probes_task import evaluate_probes
from sbert_core.evaluation.request import Request, Task
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.retrieval_task import evaluate_retrieval
from sbert_core.evaluation.sts_task import evaluate_sts
from sbert_core.evaluation.texts_by_id import read_gold_pairs, read_relevant, read_text_ids
from sbert_core.evaluation.transfer_task import evaluate_transfer
from sbert_core.evaluation.triplets_task import evaluate_triplets

Score = Callable[[Encode, str], Evaluation]
"""Maps a model and its name to its scores."""

_NO_GOLD_LABEL = "-"  # of pairs whose annotators did not agree, in SNLI and MNLI


def evaluate(
    task: Task,
    models: str | Sequence[str] | Mapping[str, Encode],
    data: str,
    *,
    columns: Sequence[str] = (),
    label: str | None = None,
    label_range: tuple[float, float] | None = None,
    where: Mapping[str, Any] | None = None,
    limit: int | None = None,
    group_column: str | None = None,
    split_column: str | None = None,
    pairs: str | None = None,
    cross_encoder: str | None = None,
    sentences: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> list[Evaluation]:
    """Scores each model on a task; data is read and checked before any model is loaded.

    Args:
        task: sts (pairs with gold scores), pairs (0 or 1), triplets, nli (pairs with classes), retrieval, clustering
            (texts with classes), transfer (texts or pairs with classes), mining, efficiency, health or probes (on plain
            texts).
        models: what `SentenceEncoder.load` takes, one or several; or encoders by name.
        data: rows, as `read_examples` reads them. For retrieval a folder with `queries` and `corpus` (columns id, text)
            and `relevant` (query_id, document_id, perhaps score, of which 0 is not relevant), each a Parquet, JSONL,
            TSV or CSV file. For mining texts with their ids (columns id, text).
        columns: the text columns; for mining the column of ids and that of texts.
        label: the column of gold scores or classes.
        label_range: minimum and maximum gold score.
        where: only rows with these values.
        limit: a random sample of this many rows; for nli and transfer from each split.
        group_column: scores each of its values separately, and their mean.
        split_column: which rows are train, dev (or validation) and test; by default `split`. nli needs train and test
            (and leaves out rows with the class `-`, which SNLI uses for pairs without a gold label);
            transfer uses cross-validation without them.
        pairs: the gold pairs of mining: a file with the columns id_a and id_b.
        cross_encoder: for efficiency; by default an untrained one on the same transformer, which takes as long.
        sentences: number of sentences to compare in efficiency; by default 10,000, or all if there are fewer.
        device: as in `SentenceEncoder.load`.
        seed: of random samples.
    """
    request = Request(
        task=task,
        data=data,
        columns=columns,
        label=label,
        label_range=label_range,
        where=where,
        limit=limit,
        group_column=group_column,
        split_column=split_column,
        pairs=pairs,
        cross_encoder=cross_encoder,
        sentences=sentences,
        device=device,
        seed=seed,
    )
    names = [models] if isinstance(models, str) else list(models)
    if not names:
        raise DataError("there is no model to evaluate: give one")
    if task == "efficiency" and isinstance(models, Mapping) and cross_encoder is None:
        raise DataError(
            "efficiency needs a cross-encoder, and derives one only from models that it loads: give cross_encoder, "
            "or models by name"
        )
    score = _PREPARE[task](request)
    if isinstance(models, Mapping):
        return [score(encoder, name) for name, encoder in models.items()]
    return [score(SentenceEncoder.load(name, device=device), name) for name in names]  # one in memory at a time


def _prepare_sts(request: Request) -> Score:
    examples = request.read("score" if request.label_range else "margin")
    groups = None
    if request.group_column:
        grouped = request.read_labels(request.group_column, "class")
        assert grouped.labels is not None
        groups = [grouped.classes[number] for number in grouped.labels.tolist()]
    return lambda encoder, model: evaluate_sts(encoder, examples, groups, model=model)


def _prepare_pairs(request: Request) -> Score:
    examples = request.read("binary")
    return lambda encoder, model: evaluate_pairs(encoder, examples, model=model)


def _prepare_triplets(request: Request) -> Score:
    examples = request.read()
    return lambda encoder, model: evaluate_triplets(encoder, examples, model=model)


def _prepare_clustering(request: Request) -> Score:
    examples = request.read("class")
    return lambda encoder, model: evaluate_clustering(encoder, examples, model=model)


def _prepare_nli(request: Request) -> Score:
    request, undecided = _leave_out_undecided(request)
    splits = _splits(request)
    if splits is None or "test" not in splits:
        raise DataError(
            f"{request.data} has no train and test rows, which nli needs: name their column with split_column"
        )

    def score(encoder: Encode, model: str) -> Evaluation:
        evaluation = evaluate_nli(encoder, splits["train"], splits["test"], model=model)
        return dataclasses.replace(evaluation, counts=evaluation.counts | {"undecided_rows_left_out": undecided})

    return score


def _leave_out_undecided(request: Request) -> tuple[Request, int]:
    """The request restricted to rows with a gold label, and the number of other rows, in all splits."""
    rows = dataclasses.replace(request, limit=None).read("class")
    if _NO_GOLD_LABEL not in rows.classes or request.label in (request.where or {}):
        return request, 0
    assert rows.labels is not None
    assert request.label is not None
    undecided = int((rows.labels == rows.classes.index(_NO_GOLD_LABEL)).sum())
    decided = [name for name in rows.classes if name != _NO_GOLD_LABEL]
    return dataclasses.replace(request, where={**(request.where or {}), request.label: decided}), undecided


def _prepare_transfer(request: Request) -> Score:
    splits = _splits(request)
    if splits is None or "test" not in splits:
        rows = request.read("class")
        return lambda encoder, model: evaluate_transfer(encoder, rows, model=model)
    train, dev, test = splits["train"], splits.get("dev"), splits["test"]
    return lambda encoder, model: evaluate_transfer(encoder, train, dev, test, model=model)


def _splits(request: Request) -> dict[str, Examples] | None:
    """The rows of the splits train, dev and test that exist; None if there is no column of splits."""
    column = request.split_column or "split"
    if (request.split_column is None and column not in column_names(request.data)) or column in (request.where or {}):
        return None
    found = dataclasses.replace(request, limit=None).read_labels(column, "class").classes
    if "train" not in found:
        return None
    train = request.read("class", {column: "train"})
    splits = {"train": train}
    for name, value in (("dev", "dev"), ("dev", "validation"), ("test", "test")):
        if value in found and name not in splits:
            splits[name] = request.read("class", {column: value}, train.classes)
    return splits


def _prepare_retrieval(request: Request) -> Score:
    folder = request.data.rstrip("/")
    queries, corpus = (read_text_ids(f"{folder}/{name}.*", "id", "text") for name in ("queries", "corpus"))
    relevant = read_relevant(f"{folder}/relevant.*")
    return lambda encoder, model: evaluate_retrieval(encoder, queries, corpus, relevant, name=request.data, model=model)


def _prepare_mining(request: Request) -> Score:
    if request.pairs is None:
        raise DataError("mining needs gold pairs: give pairs, a file with the columns id_a and id_b")
    columns = list(request.columns) or ["id", "text"]
    if len(columns) != 2:
        raise DataError(f"mining needs a column of ids and one of texts, got {', '.join(columns)}")
    texts = read_text_ids(request.data, *columns)
    gold = read_gold_pairs(request.pairs)
    return lambda encoder, model: evaluate_mining(encoder, texts, gold, name=request.data, model=model)


def _prepare_health(request: Request) -> Score:
    examples = request.read("score" if request.label else "none")
    return lambda encoder, model: evaluate_health(encoder, examples, model=model, seed=request.seed)


def _prepare_probes(request: Request) -> Score:
    texts = _all_texts(request)
    return lambda encoder, model: evaluate_probes(encoder, texts, name=request.name(), model=model)


def _prepare_efficiency(request: Request) -> Score:
    texts = _all_texts(request)
    loaded = request.cross_encoder and CrossEncoder.load(request.cross_encoder, device=request.device)

    def score(encoder: Encode, model: str) -> Evaluation:
        with torch.random.fork_rng():  # the weights of a new head are random
            cross_encoder = loaded or CrossEncoder.begin(model, device=request.device)
        return evaluate_efficiency(
            encoder,
            cross_encoder,
            texts,
            sentences=request.sentences,
            name=request.name(),
            model=model,
            seed=request.seed,
        )

    return score


def _all_texts(request: Request) -> list[str]:
    return [text for column in request.read().texts for text in column]


_PREPARE: dict[str, Callable[[Request], Score]] = {
    "sts": _prepare_sts,
    "pairs": _prepare_pairs,
    "triplets": _prepare_triplets,
    "nli": _prepare_nli,
    "retrieval": _prepare_retrieval,
    "clustering": _prepare_clustering,
    "transfer": _prepare_transfer,
    "mining": _prepare_mining,
    "efficiency": _prepare_efficiency,
    "health": _prepare_health,
    "probes": _prepare_probes,
}
