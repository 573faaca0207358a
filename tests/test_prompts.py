"""Prompts: from a plan to the saved folder, in every score, and in sentence-transformers."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    TripletEvaluator,
)

from pipelines.cli import main
from sbert_beam import SentenceEncoder, TrainPlan, train
from sbert_core.encoder.prompts import document_prompt, prompts_of_columns, query_prompt
from sbert_core.errors import DataError
from sbert_core.evaluation.render import read_json
from tests.tiny_models import make_transformer

WORDS = ["fox", "dog", "man", "flute", "parcel", "lazy", "quick", "brown"]
PAIRS = [(f"the {a} is {b}", f"my {a} {b} jumps") for a in WORDS for b in WORDS if a != b]
E5 = ["query: ", "the passage: "]


@pytest.fixture
def model(tmp_path) -> str:
    return str(make_transformer(tmp_path / "model"))


@pytest.fixture
def pairs(tmp_path) -> str:
    path = tmp_path / "pairs.parquet"
    first, second = (list(column) for column in zip(*PAIRS, strict=True))
    scores = np.random.default_rng(0).random(len(PAIRS))
    pq.write_table(pa.table({"a": first, "b": second, "c": second[1:] + second[:1], "score": scores}), path)
    return str(path)


def settings(model, pairs, output, prompts=(), **changes) -> dict:
    data = {"file": pairs, "columns": ["a", "b"], "objective": "e5", "prompts": list(prompts)}
    plan = {"model": model, "output": str(output), "learning_rate": 1e-3, "batch_size": 8, "max_steps": 3, "data": data}
    return {**plan, **changes}


def set_prompts(folder, prompts, default=None) -> None:
    content = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(content))


SAVED = {
    "query and passage": (E5, {"query": "query: ", "document": "the passage: "}, "document"),
    "one for all": (["query: ", "query: "], {"query": "query: ", "document": "query: "}, "document"),
    "queries only": (["query: ", ""], {"query": "query: ", "document": ""}, None),
    "none": ([], {}, None),
}


@pytest.mark.slow
@pytest.mark.parametrize(("prompts", "saved", "default"), SAVED.values(), ids=SAVED)
def test_the_prompts_of_a_plan_are_saved_with_the_model(model, pairs, tmp_path, prompts, saved, default):
    (tmp_path / "plan.json").write_text(json.dumps(settings(model, pairs, tmp_path / "out", prompts)))
    assert main(["train", "--config", str(tmp_path / "plan.json"), "--output", str(tmp_path / "out")]) == 0
    parts = SentenceEncoder.load(tmp_path / "out").parts
    assert (parts.prompts, parts.default_prompt_name) == (saved, default)
    ours, theirs = SentenceEncoder.load(tmp_path / "out"), SentenceTransformer(str(tmp_path / "out"))
    texts = [text for pair in PAIRS[:4] for text in pair]
    for way in ("encode", "encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(ours, way)(texts), getattr(theirs, way)(texts), atol=1e-5)
    if prompts:
        by_hand = ours.encode([prompts[1] + text for text in texts], prompt="")
        np.testing.assert_allclose(ours.encode(texts), by_hand, atol=1e-5)  # what `embed` does
        assert not np.allclose(ours.encode_query(texts), ours.encode(texts, prompt=""))


def test_every_column_is_trained_with_its_prompt(model, pairs, tmp_path):
    """Training with prompts is training on texts that begin with them."""
    table = pq.read_table(pairs).to_pydict()
    prefixed = {"a": [E5[0] + text for text in table["a"]], "b": [E5[1] + text for text in table["b"]]}
    pq.write_table(pa.table(prefixed), tmp_path / "prefixed.parquet")
    train(TrainPlan.from_dict(settings(model, pairs, tmp_path / "prompts", E5)))
    train(TrainPlan.from_dict(settings(model, str(tmp_path / "prefixed.parquet"), tmp_path / "texts")))
    texts = [PAIRS[0][0], PAIRS[3][1]]
    ours = [SentenceEncoder.load(tmp_path / name).encode(texts, prompt="") for name in ("prompts", "texts")]
    np.testing.assert_allclose(*ours, atol=1e-6)


def test_a_model_is_trained_with_its_own_default_prompt(pairs, tmp_path):
    folder = make_transformer(tmp_path / "model")
    SentenceEncoder.load(folder).save(tmp_path / "own")
    set_prompts(tmp_path / "own", {"clustering": "fox: "}, "clustering")
    train(TrainPlan.from_dict(settings(str(tmp_path / "own"), pairs, tmp_path / "out")))
    train(TrainPlan.from_dict(settings(str(folder), pairs, tmp_path / "given", ["fox: ", "fox: "])))
    parts = SentenceEncoder.load(tmp_path / "out").parts
    assert (parts.prompts, parts.default_prompt_name) == ({"clustering": "fox: "}, "clustering")
    vectors = [SentenceEncoder.load(tmp_path / name).encode(PAIRS[0]) for name in ("out", "given")]
    np.testing.assert_allclose(*vectors, atol=1e-6)


DEV = {
    "sts": lambda table: EmbeddingSimilarityEvaluator(
        table["a"], table["b"], table["score"], main_similarity="cosine", write_csv=False
    ),
    "triplets": lambda table: TripletEvaluator(
        table["a"], table["b"], table["c"], main_similarity_function="cosine", write_csv=False
    ),
}


@pytest.mark.parametrize("task", DEV)
def test_dev_rows_are_scored_with_the_prompts(model, pairs, tmp_path, task):
    columns = ["a", "b", "c"] if task == "triplets" else ["a", "b"]
    label = {} if task == "triplets" else {"label": "score"}
    dev = {"file": pairs, "columns": columns, "task": task, **label}
    best = train(TrainPlan.from_dict(settings(model, pairs, tmp_path / "out", E5, dev=dev)))["dev"]["best"]
    table = pq.read_table(pairs).to_pydict()
    evaluator = DEV[task](table)
    scores = evaluator(SentenceTransformer(str(tmp_path / "out")))
    assert best == pytest.approx(scores[evaluator.primary_metric], abs=1e-4)
    set_prompts(tmp_path / "out", {})
    without = evaluator(SentenceTransformer(str(tmp_path / "out")))[evaluator.primary_metric]
    assert without != pytest.approx(best, abs=1e-4), "the prompts make no difference to these rows"


def test_dev_columns_may_have_prompts_of_their_own(model, pairs, tmp_path, monkeypatch):
    seen = []
    encode = SentenceEncoder.encode

    def recording(self, texts, **options):
        seen.append((len(texts), options.get("prompt")))
        return encode(self, texts, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", recording)
    dev = {"file": pairs, "columns": ["a", "b"], "label": "score", "prompts": E5}
    train(TrainPlan.from_dict(settings(model, pairs, tmp_path / "out", E5, dev=dev)))
    assert seen == [(len(PAIRS), E5[0]), (len(PAIRS), E5[1])] * 2
    with pytest.raises(DataError, match="dev: 1 prompts for 2 text columns"):
        train(TrainPlan.from_dict(settings(model, pairs, tmp_path / "no", E5, dev={**dev, "prompts": ["x"]})))


def test_prompts_that_differ_between_data_sets_are_refused_unless_the_plan_chooses(model, pairs, tmp_path):
    one = settings(model, pairs, "out")["data"]
    data = [{**one, "prompts": E5}, {**one, "prompts": ["query: ", ""]}]
    plan = settings(model, pairs, tmp_path / "out", data=data)
    with pytest.raises(DataError, match=r"the prompts of the data sets differ .*prompts: \{query"):
        TrainPlan.from_dict(plan)
    train(TrainPlan.from_dict({**plan, "prompts": {"query": "query: ", "document": "fox: "}}))
    parts = SentenceEncoder.load(tmp_path / "out").parts
    assert (parts.prompts, parts.default_prompt_name) == ({"query": "query: ", "document": "fox: "}, "document")


def test_prompts_of_several_data_sets():
    assert prompts_of_columns([E5, (), ("", "")]) == {"query": E5[0], "document": E5[1]}
    assert prompts_of_columns([(), ()]) == {}
    assert prompts_of_columns([("", "")]) == {"query": "", "document": ""}
    assert prompts_of_columns([("fox: ",)]) == {"query": "fox: ", "document": "fox: "}
    with pytest.raises(DataError, match="2 for documents, but a model has one"):
        prompts_of_columns([("a", "b", "c")])


@pytest.mark.parametrize("objective", ["simcse", "contriever", "contriever_momentum"])
def test_a_single_column_has_one_prompt(model, pairs, tmp_path, objective):
    data = {"file": pairs, "columns": ["a"], "objective": objective, "prompts": ["fox: "]}
    train(TrainPlan.from_dict(settings(model, pairs, tmp_path / "out", data=data)))
    parts = SentenceEncoder.load(tmp_path / "out").parts
    assert parts.prompts[parts.default_prompt_name] == "fox: "


def test_hard_negatives_have_the_prompt_of_documents(model, pairs, tmp_path):
    """Training with prompts is training on texts that begin with them, also for the texts that are mined."""
    table = pq.read_table(pairs).to_pydict()
    data = {"objective": "e5", "hard_negatives": {"margin": -2.0}}
    vectors = []
    for name, query, passage, prompts in (("prompts", "", "", E5), ("texts", *E5, [])):
        columns = {"query": [query + text for text in table["a"]], "passage": [passage + text for text in table["b"]]}
        file = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(columns), file)
        plan = settings(model, pairs, tmp_path / name, data={"file": str(file), "prompts": prompts, **data})
        train(TrainPlan.from_dict(plan))
        vectors.append(SentenceEncoder.load(tmp_path / name).encode(PAIRS[0], prompt=""))
    np.testing.assert_allclose(*vectors, atol=1e-6)


@pytest.fixture
def retrieval(tmp_path):
    """Queries, corpus and relevant documents, as a folder and as sentence-transformers wants them."""
    queries = {str(row): first for row, (first, _) in enumerate(PAIRS[:20])}
    corpus = {str(row): second for row, (_, second) in enumerate(PAIRS)}
    relevant = {row: {row, str(int(row) + 7)} for row in queries}
    folder = tmp_path / "retrieval"
    folder.mkdir()
    for name, texts in (("queries", queries), ("corpus", corpus)):
        pq.write_table(pa.table({"id": list(texts), "text": list(texts.values())}), folder / f"{name}.parquet")
    rows = [(query, document) for query, documents in relevant.items() for document in sorted(documents)]
    table = pa.table({"query_id": [row[0] for row in rows], "document_id": [row[1] for row in rows]})
    pq.write_table(table, folder / "relevant.parquet")
    return str(folder), (queries, corpus, relevant)


FOLDERS = {
    "query and document": ({"query": "where is my flute: ", "document": "the lazy dog: "}, None, {}),
    "query and passage": (
        {"query": "where is my flute: ", "passage": "the lazy dog: "},
        None,
        # sentence-transformers prefers an empty `document` prompt that it adds itself.
        {"corpus_prompt_name": "passage"},
    ),
    "query only": ({"query": "where is my flute: "}, None, {}),
    "default only": ({"task": "where is my flute: "}, "task", {}),
    "none": ({}, None, {}),
}


@pytest.mark.parametrize(("prompts", "default", "peer_options"), FOLDERS.values(), ids=FOLDERS)
def test_retrieval_uses_a_models_own_prompts(retrieval, tmp_path, prompts, default, peer_options):
    folder, data = retrieval
    SentenceEncoder.load(make_transformer(tmp_path / "plain")).save(tmp_path / "model")
    set_prompts(tmp_path / "model", prompts, default)
    flags = ["--model", str(tmp_path / "model"), "--data", folder, "--output", str(tmp_path / "scores")]
    assert main(["evaluate", "--task", "retrieval", *flags]) == 0
    (found,) = read_json((tmp_path / "scores" / "evaluation.json").read_text())
    options = {"ndcg_at_k": [10], "main_score_function": "cosine", "write_csv": False}
    peer = InformationRetrievalEvaluator(*data, **options, **peer_options)
    expected = peer(SentenceTransformer(str(tmp_path / "model")))["cosine_ndcg@10"]
    assert found.scores["ndcg@10"] == pytest.approx(expected, abs=1e-6)
    if prompts and default is None:
        plain = InformationRetrievalEvaluator(*data, **options)
        without = plain(SentenceTransformer(str(tmp_path / "plain")))["cosine_ndcg@10"]
        assert without != pytest.approx(expected, abs=1e-3), "the prompts make no difference to these rows"


def test_prompts_of_queries_and_documents():
    prompts = {"query": "q", "corpus": "c", "passage": "p"}
    assert (query_prompt(prompts), document_prompt(prompts)) == ("q", "p")
    assert document_prompt({**prompts, "document": ""}) == ""
    assert (query_prompt({}), document_prompt({})) == ("", "")
