"""Retrieval beside sentence-transformers."""

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from sbert_core.errors import DataError
from sbert_core.evaluation.retrieval_task import evaluate_retrieval
from tests.evaluation_peers import GivenVectors, draw

KS = [1, 3, 5, 10, 100]


def make(documents: int = 120, queries: int = 15, seed: int = 0):
    """An encoder, queries, corpus and relevant documents, some of which are near."""
    encoder, rng = draw(documents, seed=seed, prefix="document"), np.random.default_rng(seed + 100)
    corpus = {f"d{row}": f"document {row}" for row in range(documents)}
    texts, relevant = {}, {}
    for row in range(queries):
        texts[f"q{row}"] = f"query {row}"
        wanted = rng.choice(documents, rng.integers(1, 5), replace=False)
        relevant[f"q{row}"] = {f"d{number}" for number in wanted}
        near = encoder.vectors[f"document {wanted[0]}"]
        encoder.vectors[f"query {row}"] = near + rng.normal(size=8)
    return encoder, texts, corpus, relevant


def peer_scores(encoder, queries, corpus, relevant, ks):
    options = dict.fromkeys(["mrr_at_k", "ndcg_at_k", "accuracy_at_k", "precision_recall_at_k", "map_at_k"], ks)
    evaluator = InformationRetrievalEvaluator(
        queries, corpus, relevant, write_csv=False, main_score_function="cosine", **options
    )
    return {name.removeprefix("cosine_"): value for name, value in evaluator(encoder).items() if "cosine" in name}


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_sentence_transformers(seed):
    data = make(seed=seed)
    found = evaluate_retrieval(*data, name="here", model="fake")
    assert found.scores == pytest.approx(peer_scores(*data, KS))
    assert len(found.scores) == 30
    assert (found.task, found.data, found.model, found.main) == ("retrieval", "here", "fake", "ndcg@10")
    relevant = sum(map(len, data[3].values()))
    assert found.counts == {"queries": 15, "documents": 120, "relevant": relevant, "queries_without_relevant": 0}


def test_documents_of_equal_cosine_stand_by_id():
    encoder, queries, corpus, relevant = make(documents=30)
    for row in range(30):  # all documents three times; the ids sort as text, and not in the order of the corpus
        encoder.vectors[f"document {row}"] = encoder.vectors[f"document {row % 10}"]
    ks = [1, 2, 5]
    found = evaluate_retrieval(encoder, queries, corpus, relevant, ks=ks)
    assert found.scores == pytest.approx(peer_scores(encoder, queries, corpus, relevant, ks))


def test_ks():
    encoder, queries, corpus, relevant = make(documents=8)
    found = evaluate_retrieval(encoder, queries, corpus, relevant)
    assert found.main == "ndcg@5"  # of 8 documents there is no place 10
    assert {name.partition("@")[2] for name in found.scores} == {"1", "3", "5"}
    assert evaluate_retrieval(encoder, queries, corpus, relevant, ks=[8]).scores["recall@8"] == 1
    for ks in ([9], [0], []):
        with pytest.raises(DataError, match=r"each k must be from 1 to the 8 documents of here, got"):
            evaluate_retrieval(encoder, queries, corpus, relevant, ks=ks, name="here")


def test_queries_without_relevant_documents_are_left_out():
    encoder, queries, corpus, relevant = make()
    some = {query: wanted for query, wanted in relevant.items() if query != "q3"} | {"q4": []}
    found = evaluate_retrieval(encoder, queries, corpus, some)
    assert (found.counts["queries"], found.counts["queries_without_relevant"]) == (13, 2)
    left = {query: text for query, text in queries.items() if query not in ("q3", "q4")}
    assert found.scores == pytest.approx(peer_scores(encoder, left, corpus, some, KS))


def test_a_vector_without_direction_is_found_by_nobody():
    encoder = GivenVectors({"q": np.array([1, 0]), "a": np.array([-1, 0]), "b": np.array([0, 0])})
    corpus = {"a": "a", "b": "b"}
    assert evaluate_retrieval(encoder, {"q": "q"}, corpus, {"q": ["a"]}, ks=[1]).scores["mrr@1"] == 1
    assert evaluate_retrieval(encoder, {"q": "q"}, corpus, {"q": ["b"]}, ks=[2]).scores["mrr@2"] == 0


def test_ids_that_are_not_there():
    encoder, queries, corpus, relevant = make()
    with pytest.raises(DataError, match="here: 'd999', relevant for query 'q1', is not the id of a document"):
        evaluate_retrieval(encoder, queries, corpus, relevant | {"q1": ["d1", "d999"]}, name="here")
    with pytest.raises(DataError, match="here has relevant documents of 'q99', which is not the id of a query"):
        evaluate_retrieval(encoder, queries, corpus, relevant | {"q99": ["d1"]}, name="here")
    with pytest.raises(DataError, match="the relevant documents of 'q1' are a text"):
        evaluate_retrieval(encoder, queries, corpus, relevant | {"q1": "d1"})


def test_nothing_to_score():
    encoder, queries, corpus, relevant = make()
    with pytest.raises(DataError, match="here has 0 queries and 120 documents: retrieval needs both"):
        evaluate_retrieval(encoder, {}, corpus, {}, name="here")
    with pytest.raises(DataError, match="15 queries and 0 documents"):
        evaluate_retrieval(encoder, queries, {}, relevant)
    with pytest.raises(DataError, match="no query of data has relevant documents"):
        evaluate_retrieval(encoder, queries, corpus, {})
