"""The search job: the rows of a corpus that are nearest to queries."""

import dataclasses
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from pipelines import embed, signals
from pipelines.checks import check_cross_encoder
from pipelines.embed_options import EmbedOptions
from pipelines.job import Figures, Job, PipelineJob
from pipelines.search_options import SearchOptions
from sbert_core.data.dataset_reader import folder_of
from sbert_core.data.manifest import Manifest
from sbert_core.encoder.prompts import QUERY
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.errors import DataError
from transforms.dataset.corpus import Corpus, open_corpus
from transforms.dataset.ordinal_files import ORDINALS_FOLDER, find_intact_ordinals, ordinals_beside
from transforms.dataset.published import PublishDatasets, read_manifest
from transforms.dataset.sort_steps import assign_ordinals
from transforms.encode.encode_sentences import Encoder, EncodeSentences
from transforms.neighbors.score_pairs import load_cross_encoder, score_groups
from transforms.neighbors.search_corpus import SearchCorpus, describe_hits, pairs_of_queries, search_in_process

MAX_TEXT_CHARACTERS = 100  # of a hit that is printed


def make_encode(options: SearchOptions, **seams: Any) -> EncodeSentences:
    """The step that encodes queries; `seams` are more arguments of `EncodeSentences`, for tests."""
    return EncodeSentences(
        model=options.model or _model_of(options.corpus),
        text_column=options.text_column,
        prompt=options.prompt,
        prompt_name=options.prompt_name,
        workers=options.workers,
        load_options=options.load_options,
        **seams,
    )


def _model_of(corpus: str) -> str:
    model = read_manifest(folder_of(corpus)).model
    if model is None:
        raise DataError(f"{corpus} has no record of the model that made it: see --model")
    return model


def _load(encode: EncodeSentences, options: SearchOptions, corpus: Corpus) -> Encoder:
    """Loads the encoder, checks that it made the corpus, and chooses its prompt for queries if none is given."""
    encoder = encode.acquire()
    if corpus.rows and encoder.fingerprint != corpus.fingerprint:
        precision = getattr(encoder, "precision", options.precision)
        raise DataError(
            f"{options.corpus} was made with another model ({str(corpus.fingerprint)[:12]}) than {encode.model} in "
            f"{precision} ({encoder.fingerprint[:12]}): see --model, and --precision (float16 on a GPU)"
        )
    has_query_prompt = isinstance(encoder, SentenceEncoder) and QUERY in encoder.parts.prompts
    if encode.prompt_name is None and encode.prompt is None and has_query_prompt:
        encode.prompt_name = QUERY
    return encoder


def _ordinals_folder(options: SearchOptions) -> str:
    return f"{(options.output or '').rstrip('/')}/{ORDINALS_FOLDER}"


class SearchText(Job[SearchOptions]):
    """Prints the nearest rows of one query; no pipeline is needed."""

    name = "search"

    def __init__(self, options: SearchOptions, encode: EncodeSentences | None = None) -> None:
        super().__init__(options)
        self._encode = encode

    def work(self) -> Figures:
        """Encodes the query and compares it with every row."""
        options = self.options
        corpus = open_corpus(options.corpus, options.block_rows)
        encode = self._encode or make_encode(options)
        encoder = _load(encode, options, corpus)
        prompts = {"prompt": encode.prompt, "prompt_name": encode.prompt_name}
        query = encoder.encode([options.queries], details=True, **prompts)
        scratch = tempfile.mkdtemp()
        try:
            with signals.on_stop(lambda: shutil.rmtree(scratch, ignore_errors=True)):
                stored = find_intact_ordinals(corpus, [ordinals_beside(options.corpus)])
                corpus = dataclasses.replace(corpus, work=stored) if stored else assign_ordinals(corpus, scratch)
                candidates = search_in_process(query.embeddings, corpus, options.top_k)
                texts = pa.chunked_array([[options.queries]])
                scores = None
                if options.cross_encoder:
                    pairs = pairs_of_queries(candidates, texts, corpus)
                    scores = score_groups(load_cross_encoder(options.cross_encoder), pairs)
                hits = describe_hits(candidates, pa.array(["query"]), texts, corpus, scores)
        finally:
            shutil.rmtree(scratch)
        _print_hits(hits)
        return {"rows searched": corpus.rows}


def _print_hits(hits: pa.Table) -> None:
    for hit in hits.to_pylist():
        text = " ".join((hit["text"] or "").split())
        shown = text if len(text) <= MAX_TEXT_CHARACTERS else text[: MAX_TEXT_CHARACTERS - 1] + "…"
        print(f"{hit['rank']:>4}  {hit['score']:.4f}  {hit['id']}  {shown}")


class SearchFiles(PipelineJob[SearchOptions]):
    """Writes the nearest rows of files of queries to search/."""

    name = "search"

    def __init__(
        self, options: SearchOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None
    ) -> None:
        super().__init__(
            options,
            beam_flags,
            output=str(options.output),
            workers=options.workers,
            work_folder=f"{options.folder}/_work",
            ordinals_folder=_ordinals_folder(options),
        )
        self._encode = encode
        self._queries = f"{options.folder}/queries"

    def prepare(self) -> None:
        """Checks corpus and models, then encodes the queries."""
        options = self.options
        self._corpus = open_corpus(options.corpus, options.block_rows)
        encode = self._encode or make_encode(options)
        self._encoder = _load(encode, options, self._corpus)  # as long as it is referenced, it is not loaded again
        check_cross_encoder(options.cross_encoder)
        embed_options = EmbedOptions(
            input=[options.queries],
            output=self._queries,
            model=encode.model,
            text_column=options.text_column,
            id_column=options.id_column,
            prompt=encode.prompt,
            prompt_name=encode.prompt_name,
            **options.load_options,
            workers=options.workers,
            overwrite=True,
        )
        self._embedded = embed.run(embed_options, self.beam_flags, encode)

    def corpora(self) -> Sequence[Corpus]:
        """The corpus; the queries are others next time."""
        return (self._corpus,)

    def build(self, root: beam.Pipeline) -> None:
        """See the function `build`."""
        build(root, self.options, self._queries)

    def advice(self) -> str:
        """Where the encoded queries are."""
        return f". The queries are encoded in {self._queries}: the same command continues from there"

    def figures(self, counters: dict[str, Any]) -> Figures:
        """Queries, rows and hits."""
        return {
            "queries": self._embedded["embedded"],
            "rejected": self._embedded["rejected"],
            "rows searched": self._corpus.rows,
            "found": read_manifest(self.options.folder).rows,
        }

    def results(self) -> dict[str, str]:
        """The dataset."""
        return {"search/": self.options.folder}


def build(root: beam.Pipeline, options: SearchOptions, queries: str) -> None:
    """Adds the search with encoded queries to a pipeline, for any runner."""
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
        ordinals=[_ordinals_folder(options), ordinals_beside(options.corpus)],
        manifest=Manifest(settings=settings),
    )
    _ = (draft,) | "Publish" >> PublishDatasets(expected=1)


def run(options: SearchOptions, beam_flags: Sequence[str] = (), encode: EncodeSentences | None = None) -> Figures:
    """Answers one query with a table, or files of queries with a dataset; returns the summary."""
    if options.is_files:
        return SearchFiles(options, beam_flags, encode).run()
    return SearchText(options, encode).run()
