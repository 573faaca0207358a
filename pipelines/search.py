"""The search job: the rows of a corpus that answer queries."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from pipelines import embed, signals
from pipelines.checks import check_cross_encoder
from pipelines.embed_options import EmbedOptions
from pipelines.execute import execute, new_pipeline
from pipelines.search_options import SearchOptions
from sbert_core.data.manifest import Manifest
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus, open_corpus, rank_rows
from transforms.dataset.files import check_target, delete_work
from transforms.dataset.lock import lock_output
from transforms.dataset.published import PublishDatasets, folder_of, read_manifest
from transforms.encode.encode_sentences import EncodeSentences
from transforms.neighbors.search_corpus import SearchCorpus, describe_hits, search_here

TEXT_WIDTH = 100


def run(
    options: SearchOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None
) -> dict[str, Any]:
    """Answers one query with a table, or files of queries with a dataset; returns the figures."""
    start = time.perf_counter()
    corpus = open_corpus(options.corpus, options.block_rows)
    encode = encode or _make_encode(options, corpus)
    answer = _search_files if options.is_files else _search_text
    figures = answer(options, corpus, encode, beam_flags)
    return {**figures, "seconds": round(time.perf_counter() - start, 1)}


def _make_encode(options: SearchOptions, corpus: Corpus) -> EncodeSentences:
    """Encodes queries with the model of the corpus, and with its prompt for queries if it has one."""
    model = options.model or _model_of(options.corpus)
    encoder = SentenceEncoder.load(model, **options.load_options)
    if corpus.rows and encoder.fingerprint != corpus.fingerprint:
        raise DataError(
            f"{options.corpus} was made with another model ({str(corpus.fingerprint)[:12]}) than {model} in "
            f"{encoder.precision} ({encoder.fingerprint[:12]}): see --model, and --precision (float16 on a GPU)"
        )
    prompt_name = options.prompt_name
    if prompt_name is None and options.prompt is None and "query" in encoder.parts.prompts:
        prompt_name = "query"
    return EncodeSentences(
        model=model,
        text_column=options.text_column,
        prompt=options.prompt,
        prompt_name=prompt_name,
        workers=options.workers,
        load_options=options.load_options,
    )


def _model_of(corpus: str) -> str:
    model = read_manifest(folder_of(corpus)).model
    if model is None:
        raise DataError(f"{corpus} does not say which model made it: see --model")
    return model


def _search_text(
    options: SearchOptions, corpus: Corpus, encode: EncodeSentences, beam_flags: Sequence[str]
) -> dict[str, Any]:
    encoder = encode.acquire()
    encoded = encoder.encode([options.queries], details=True, prompt=encode.prompt, prompt_name=encode.prompt_name)
    scratch = tempfile.mkdtemp()
    try:
        with signals.on_stop(lambda: shutil.rmtree(scratch, ignore_errors=True)):
            corpus = rank_rows(corpus, scratch)
            best = search_here(encoded.embeddings, corpus, options.top_k)
            hits = describe_hits(
                best, pa.array(["query"]), pa.chunked_array([[options.queries]]), corpus, options.cross_encoder
            )
    finally:
        shutil.rmtree(scratch)
    for hit in hits.to_pylist():
        text = " ".join((hit["text"] or "").split())
        shown = text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"
        print(f"{hit['rank']:>4}  {hit['score']:.4f}  {hit['id']}  {shown}")
    return {"rows searched": corpus.rows}


def _search_files(
    options: SearchOptions, corpus: Corpus, encode: EncodeSentences, beam_flags: Sequence[str]
) -> dict[str, Any]:
    check_cross_encoder(options.cross_encoder)
    check_target(options.folder)
    queries = f"{options.folder}/queries"
    embed_options = EmbedOptions(
        input=[options.queries],
        output=queries,
        model=encode.model,
        text_column=options.text_column,
        id_column=options.id_column,
        prompt=encode.prompt,
        prompt_name=encode.prompt_name,
        **options.load_options,
        workers=options.workers,
        overwrite=True,
    )
    with lock_output(str(options.output), "search"):
        asked = embed.run(embed_options, beam_flags, encode)
        root = new_pipeline(beam_flags, options.workers)
        build(root, options, queries)
        execute(root, lambda: f". The queries are encoded in {queries}: the same command goes on from there")
        delete_work(f"{options.folder}/_work")
    manifest = read_manifest(options.folder)
    return {
        "queries": asked["embedded"],
        "rejected": asked["rejected"],
        "rows searched": corpus.rows,
        "found": manifest.rows,
        "search/": options.folder,
    }


def build(root: beam.Pipeline, options: SearchOptions, queries: str) -> None:
    """Wires the search with queries that are encoded into a pipeline, for any runner."""
    settings = {"top_k": options.top_k, "cross_encoder": options.cross_encoder}
    draft = root | "SearchCorpus" >> SearchCorpus(
        queries=f"{queries}/embeddings",
        corpus=options.corpus,
        folder=options.folder,
        work=f"{options.folder}/_work",
        top_k=options.top_k,
        cross_encoder=options.cross_encoder,
        block_rows=options.block_rows,
        workers=options.workers,
        manifest=Manifest(settings=settings),
    )
    _ = (draft,) | "Publish" >> PublishDatasets(expected=1)
