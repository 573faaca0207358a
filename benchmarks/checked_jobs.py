"""The jobs that benchmarks.checks measures, and the corpora of real sentences that they work on."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pipelines import cluster, embed, mine, search
from pipelines.cluster_options import ClusterOptions
from pipelines.embed_options import EmbedOptions
from pipelines.mine_options import MineOptions
from pipelines.search_options import SearchOptions
from sbert_beam import SentenceEncoder
from sbert_core.encoder.heads import Normalize
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.static_embedding import StaticEmbedding

DIM = 384
SIZES = (20_000, 50_000, 100_000)
LARGE = SIZES[-1]
QUERY = "where can I buy a ticket for the train"


class Bench:
    """The corpora that the jobs work on; each is made when it is first asked for."""

    def __init__(self, data: Path, work: Path) -> None:
        self.data, self.work = data, work
        self._texts: list[str] = []

    @property
    def texts(self) -> list[str]:
        """Real sentences."""
        if not self._texts:
            column = pq.read_table(self.data / "english_sentences/english_1m.parquet", columns=["text"])["text"]
            self._texts = column.take(pa.array(range(0, 1_000_000, 1_000_000 // LARGE))).to_pylist()
        return self._texts

    @property
    def static(self) -> str:
        """A static encoder: random vectors of the default model's tokens, rare tokens with larger weights."""
        folder = self.work / "static"
        if not folder.exists():
            tokenizer = SentenceEncoder.load("default").parts.body.tokenizer.backend_tokenizer
            tokenizer.no_padding()
            tokenizer.no_truncation()
            seen = [token for each in tokenizer.encode_batch(self.texts) for token in set(each.ids)]
            counts = np.bincount(seen, minlength=tokenizer.get_vocab_size())
            table = np.random.default_rng(0).standard_normal((len(counts), DIM), np.float32)
            table *= np.log(LARGE / (1 + counts)).clip(0)[:, None].astype(np.float32)
            parts = EncoderParts(StaticEmbedding(tokenizer, torch.from_numpy(table)), None, (Normalize(),))
            SentenceEncoder(parts).save(str(folder))
        return str(folder)

    def sentences(self, rows: int) -> str:
        """A folder of Parquet files with this many sentences."""
        folder = self.work / f"sentences-{rows}"
        if not folder.exists():
            folder.mkdir(parents=True)
            for start in range(0, rows, 25_000):
                texts = self.texts[start : min(start + 25_000, rows)]
                table = pa.table({"id": [f"r{start + row}" for row in range(len(texts))], "text": texts})
                pq.write_table(table, folder / f"part-{start:07}.parquet")
        return str(folder)

    def embed(self, rows: int, output: Path, model: str) -> None:
        """The embed job; its encoder stays loaded."""
        options = EmbedOptions(input=[self.sentences(rows)], output=str(output), model=model)
        embed.run(options, encode=_encode_step(options))

    def mine(self, rows: int, output: Path) -> None:
        """The mine job, exact."""
        mine.run(MineOptions(input=str(self.embedded(rows) / "embeddings"), output=str(output)))

    def cluster(self, rows: int, output: Path) -> None:
        """The cluster job."""
        cluster.run(ClusterOptions(input=str(self.mined(rows)), output=str(output), algorithm="leiden"))

    def search(self) -> Callable[[], None]:
        """The search job with one query; its encoder stays loaded."""
        options = SearchOptions(queries=QUERY, corpus=str(self.embedded(LARGE) / "embeddings"))
        step = search.make_encode(options)
        encoder = step.acquire()

        def ask(held: Any = encoder) -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                search.run(options, encode=step)

        return ask

    def embedded(self, rows: int) -> Path:
        """An output folder with embeddings."""
        output = self.work / f"out-{rows}"
        if not (output / "embeddings/_manifest.json").exists():
            self.embed(rows, output, self.static)
        return output

    def mined(self, rows: int) -> Path:
        """An output folder with embeddings and neighbours."""
        output = self.embedded(rows)
        if not (output / "neighbors/_manifest.json").exists():
            self.mine(rows, output)
        return output

    def clustered(self, rows: int) -> Path:
        """An output folder with all of it."""
        output = self.mined(rows)
        if not (output / "clusters/summary/_manifest.json").exists():
            self.cluster(rows, output)
        return output


_steps: dict[str, Any] = {}


def _encode_step(options: EmbedOptions) -> Any:
    """One encoding step per model: it holds the encoder, so that loading is no part of what is measured."""
    if options.model not in _steps:
        step = embed.make_encode(options)
        _steps[options.model] = (step, step.acquire())
    return _steps[options.model][0]
