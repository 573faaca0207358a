"""Retrieval task: whether the relevant documents of a query are ranked first."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from sbert_core.errors import DataError
from sbert_core.evaluation.metrics import ranking_scores
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.evaluation.vectors import encode_columns
from sbert_core.neighbors.in_memory import find_neighbors

KS = (1, 3, 5, 10, 100)


def evaluate_retrieval(
    encoder: Encode,
    queries: Mapping[str, str],
    corpus: Mapping[str, str],
    relevant: Mapping[str, Collection[str]],
    *,
    ks: Sequence[int] | None = None,
    name: str = "data",
    model: str = "model",
) -> Evaluation:
    """Accuracy, precision, recall, MRR, nDCG and MAP at each k of the documents ranked by cosine, as means.

    Documents of equal cosine are ordered by id. The main figure is nDCG at 10, or at the largest k if 10 is not among
    them.

    Args:
        encoder: of queries and documents, each with the model's own prompt for them, if it has one.
        queries: texts by id. Those without relevant documents are left out, and counted.
        corpus: texts of the documents by id.
        relevant: the ids of the relevant documents by the id of the query.
        ks: by default those of 1, 3, 5, 10 and 100 that are at most the number of documents.
        name: of the data.
        model: its name.
    """
    ids = sorted(corpus)
    numbers = {document: number for number, document in enumerate(ids)}
    _check(queries, numbers, relevant, name)
    if ks is None:
        ks = [k for k in KS if k <= len(ids)]
    if not ks or min(ks) < 1 or max(ks) > len(ids):
        raise DataError(f"each k must be from 1 to the {len(ids)} documents of {name}, got {list(ks)}")
    scored_queries = [query for query in queries if relevant.get(query)]
    query_vectors, document_vectors = encode_columns(
        encoder,
        [[queries[query] for query in scored_queries], [corpus[document] for document in ids]],
        ["query", "document"],
    )
    found = find_neighbors(query_vectors, max(ks), corpus=document_vectors).indices  # (n, k); -1 is no document
    gold = [{numbers[document] for document in relevant[query]} for query in scored_queries]
    keys = [row * len(ids) + number for row, wanted in enumerate(gold) for number in wanted]
    relevance = np.isin(np.arange(len(scored_queries))[:, None] * len(ids) + found, keys) & (found >= 0)
    scores = ranking_scores(relevance, np.array([len(wanted) for wanted in gold]), ks)
    counts = {
        "queries": len(scored_queries),
        "documents": len(ids),
        "relevant": len(keys),
        "queries_without_relevant": len(queries) - len(scored_queries),
    }
    return Evaluation("retrieval", name, model, f"ndcg@{10 if 10 in ks else max(ks)}", scores, counts)


def _check(
    queries: Mapping[str, str], documents: Mapping[str, int], relevant: Mapping[str, Collection[str]], name: str
) -> None:
    if not queries or not documents:
        raise DataError(f"{name} has {len(queries)} queries and {len(documents)} documents: retrieval needs both")
    for query, wanted in relevant.items():
        if isinstance(wanted, str):
            raise DataError(f"{name}: the relevant documents of {query!r} are a text: give a set or list of ids")
        if query not in queries:
            raise DataError(
                f"{name} has relevant documents of {query!r}, which is not the id of a query: use ids of the queries"
            )
        missing = next((document for document in wanted if document not in documents), None)
        if missing is not None:
            raise DataError(
                f"{name}: {missing!r}, relevant for query {query!r}, is not the id of a document: use ids of the corpus"
            )
    if not any(relevant.get(query) for query in queries):
        raise DataError(f"no query of {name} has relevant documents: give some")
