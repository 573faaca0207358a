"""The search job: one query to a table, files of queries to a dataset."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sentence_transformers.util import semantic_search

from pipelines import embed, search
from pipelines.cli import main
from pipelines.embed_options import EmbedOptions
from pipelines.search_options import SearchOptions
from sbert_beam import SentenceEncoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.errors import DataError
from sbert_core.neighbors.cosine import unit_rows
from tests.tiny_models import make_classifier, make_transformer

slow = pytest.mark.slow
TEXTS = [f"{who} {verb} the {what}" for who in ("a man", "a dog") for verb in ("jumps over", "is playing") for what in
         ("lazy fox", "quick flute", "brown parcel", "dog")]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A tiny model with a prompt for queries."""
    folder = tmp_path_factory.mktemp("model")
    SentenceEncoder.load(str(make_transformer(folder / "plain"))).save(folder / "with-prompt")
    config = folder / "with-prompt/config_sentence_transformers.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "prompts": {"query": "query: "}}))
    return folder / "with-prompt"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, model) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    table = pa.table({"id": [f"c{row:02}" for row in range(len(TEXTS))], "text": TEXTS})
    pq.write_table(table.slice(0, 9), folder / "a.parquet")
    pq.write_table(table.slice(9), folder / "b.parquet")
    embed.run(EmbedOptions(input=[str(folder)], output=str(folder / "out"), model=str(model)))
    return folder / "out/embeddings"


def write_queries(folder: Path, texts: list[str | None]) -> str:
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), folder / "queries.parquet")
    return str(folder / "queries.parquet")


def read(folder: Path) -> pa.Table:
    parts = json.loads((folder / "search/_manifest.json").read_text())["parts"]
    order = [("query_id", "ascending"), ("rank", "ascending")]
    return pa.concat_tables([pq.read_table(folder / "search" / part["name"]) for part in parts]).sort_by(order)


@slow
def test_files_equal_semantic_search(tmp_path, model, corpus):
    queries = ["the dog is lazy", "where is the parcel", "flute"]
    options = SearchOptions(
        queries=write_queries(tmp_path, queries),
        corpus=str(corpus),
        output=str(tmp_path),
        top_k=4,
        block_rows=4,
    )
    figures = search.run(options)
    assert (figures["queries"], figures["found"], figures["rows searched"]) == (3, 12, 16)
    encoder = SentenceEncoder.load(str(model))
    query_vectors, text_vectors = encoder.encode(queries, prompt_name="query"), encoder.encode(TEXTS)
    theirs = semantic_search(torch.from_numpy(query_vectors), torch.from_numpy(text_vectors), top_k=4)
    table = read(tmp_path)
    assert table["id"].to_pylist() == [f"c{hit['corpus_id']:02}" for hits in theirs for hit in hits]
    assert np.allclose(table["score"], [hit["score"] for hits in theirs for hit in hits], atol=1e-5)
    assert table["rank"].to_pylist() == [1, 2, 3, 4] * 3
    assert table["query"].to_pylist() == [query for query in queries for _ in range(4)]
    assert table["text"].to_pylist() == [TEXTS[int(name[1:])] for name in table["id"].to_pylist()]
    assert search.run(options)["found"] == 12
    assert read(tmp_path).equals(table)


def test_prompts_have_an_effect(capsys, corpus):
    scores = []
    for flags in ({}, {"prompt": ""}, {"prompt": "where "}):
        search.run(SearchOptions(queries="the dog is lazy", corpus=str(corpus), top_k=4, **flags))
        scores.append([line.split()[1] for line in capsys.readouterr().out.splitlines()[:4]])
    assert scores[0] != scores[1] != scores[2]


@slow
def test_a_cross_encoder_orders_what_was_found(tmp_path, model, corpus):
    cross_encoder = make_classifier(tmp_path / "cross-encoder")
    queries = write_queries(tmp_path, ["the dog is lazy"])
    options = {"queries": queries, "corpus": str(corpus), "output": str(tmp_path), "top_k": 5}
    search.run(SearchOptions(**options, cross_encoder=str(cross_encoder)))
    table = read(tmp_path)
    pairs = list(zip(table["query"].to_pylist(), table["text"].to_pylist(), strict=True))
    assert np.allclose(table["score"], CrossEncoder.load(str(cross_encoder)).score(pairs), atol=1e-6)
    assert (np.diff(table["score"].to_numpy()) <= 0).all()
    encoder = SentenceEncoder.load(str(model))
    text_vectors, _ = unit_rows(encoder.encode(TEXTS))
    query_vectors, _ = unit_rows(encoder.encode(["the dog is lazy"], prompt_name="query"))
    cosines = text_vectors @ query_vectors[0]
    nearest = np.argsort(-cosines)[:5]
    assert sorted(table["id"].to_pylist()) == sorted(f"c{row:02}" for row in nearest)
    assert np.allclose(sorted(table["cosine"].to_pylist()), sorted(cosines[nearest]), atol=1e-5)


def test_one_query_is_a_table(capsys, corpus):
    assert main(["search", "--queries", "the dog is lazy", "--corpus", str(corpus), "--top_k", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["1", "2", "3"]
    assert lines[0].split()[2][0] == "c"
    assert "16" in lines[3]


@slow
def test_rejected_and_no_queries(tmp_path, corpus):
    options = {"corpus": str(corpus), "output": str(tmp_path), "top_k": 99}
    figures = search.run(SearchOptions(queries=write_queries(tmp_path, ["a man", None]), **options))
    assert (figures["queries"], figures["rejected"], figures["found"]) == (1, 1, 16)
    (tmp_path / "none.txt").write_text("")
    assert search.run(SearchOptions(queries=str(tmp_path / "none.txt"), **options))["found"] == 0


def test_refused(tmp_path, corpus, capsys):
    other = SentenceEncoder.load(str(make_transformer(tmp_path / "other", lower_case=False)))
    other.save(tmp_path / "saved")
    with pytest.raises(DataError, match="made with another model"):
        search.run(SearchOptions(queries="x", corpus=str(corpus), model=str(tmp_path / "saved")))
    with pytest.raises(DataError, match="--output"):
        SearchOptions(queries="queries.parquet", corpus=str(corpus))
    with pytest.raises(DataError, match="--queries is empty"):
        SearchOptions(queries=" ", corpus=str(corpus))
    assert main(["search", "--queries", "x", "--corpus", str(tmp_path / "nothing")]) == 2
    assert "has not finished" in capsys.readouterr().err


@slow
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_corpus_in_another_precision(tmp_path, model, capsys, precision):
    pq.write_table(pa.table({"id": [f"c{row:02}" for row in range(len(TEXTS))], "text": TEXTS}), tmp_path / "a.parquet")
    embed.run(EmbedOptions(input=[str(tmp_path)], output=str(tmp_path / "out"), model=str(model), precision=precision))
    corpus = str(tmp_path / "out/embeddings")
    with pytest.raises(DataError, match=r"another model .* in float32 .*--precision \(float16 on a GPU\)"):
        search.run(SearchOptions(queries=TEXTS[3], corpus=corpus))
    search.run(SearchOptions(queries=TEXTS[3], corpus=corpus, prompt="", precision=precision))
    assert capsys.readouterr().out.split()[2] == "c03"
    if precision == "bfloat16":
        return  # files of queries are encoded by the same step
    queries = write_queries(tmp_path, [TEXTS[5]])
    output = str(tmp_path / "found")
    search.run(SearchOptions(queries=queries, corpus=corpus, output=output, prompt="", precision=precision))
    assert read(tmp_path / "found")["id"].to_pylist()[0] == "c05"
