"""Efficiency task: the time to find the most similar pair of sentences, with a bi-encoder and with a cross-encoder.

The bi-encoder does the full search. A cross-encoder would take hours, so it scores a sample of the pairs, and its time
is extrapolated to all of them.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch

from sbert_core.encoder.forward import PaddedForward
from sbert_core.encoder.sentence_encoder import SentenceEncoder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.errors import DataError, ModelError
from sbert_core.evaluation.result import Encode, Evaluation
from sbert_core.neighbors.in_memory import mine_paraphrases

SENTENCES = 10_000
"""As many as in the paper."""
SAMPLED_PAIRS = 1_000

_BATCH_SIZE = 32
_WARM_UP = 64  # sentences or pairs that are computed before the measurement

Result = TypeVar("Result")


class Compare(Protocol):
    """What the task needs of a cross-encoder; `CrossEncoder` has it."""

    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns a score per pair."""
        ...


def evaluate_efficiency(
    encoder: Encode,
    cross_encoder: Compare,
    texts: Sequence[str],
    *,
    sentences: int | None = None,
    sampled_pairs: int = SAMPLED_PAIRS,
    name: str = "data",
    model: str = "model",
    seed: int = 0,
) -> Evaluation:
    """Finds the most similar pair of `sentences` distinct texts (default: 10,000, or all if there are fewer).

    Times are in seconds: `bi_encoder_seconds` is `encode_seconds` and `search_seconds`; `cross_encoder_seconds` is the
    time for `sampled_pairs` random pairs, scaled to all n (n - 1) / 2; `ratio` is the second by the first. Each has
    its processor time (`..._cpu_seconds`, of all threads). For a SentenceEncoder also `in_order_encode_seconds`: padded
    batches of 32 in the order of the texts, without smart batching; `smart_batching` is the speed-up by it.
    """
    chosen = _choose(texts, sentences, name, seed)
    all_pairs = len(chosen) * (len(chosen) - 1) // 2
    sample = _sample_pairs(len(chosen), min(sampled_pairs, all_pairs), seed)
    encoder.encode(chosen[:_WARM_UP])
    vectors, *encode = _measure(lambda: encoder.encode(chosen))
    best, *search = _measure(lambda: mine_paraphrases(vectors, top_k=1, max_pairs=1))
    pairs = [(chosen[a], chosen[b]) for a, b in sample.tolist()]
    cross_encoder.predict(pairs[:_WARM_UP])
    _, *cross = _measure(lambda: cross_encoder.predict(pairs))
    bi_encoder = [encode[clock] + search[clock] for clock in (0, 1)]
    scaled = [seconds * all_pairs / len(pairs) for seconds in cross]
    scores = {"ratio": scaled[0] / bi_encoder[0], "cpu_ratio": scaled[1] / max(bi_encoder[1], 1e-9)}
    named = {
        "bi_encoder": bi_encoder,
        "encode": encode,
        "search": search,
        "cross_encoder": scaled,
        "cross_encoder_sample": cross,
    }
    if isinstance(encoder, SentenceEncoder) and not isinstance(encoder.parts.body, StaticEmbedding):
        encode_in_order(encoder, chosen[:_WARM_UP])
        _, *in_order = _measure(lambda: encode_in_order(encoder, chosen))
        named["in_order_encode"] = in_order
        scores |= {"smart_batching": in_order[0] / encode[0], "smart_batching_cpu": in_order[1] / max(encode[1], 1e-9)}
    for part, (wall, cpu) in named.items():
        scores |= {f"{part}_seconds": wall, f"{part}_cpu_seconds": cpu}
    scores["best_cosine"] = float(best.scores[0]) if len(best) else np.nan
    counts = {"sentences": len(chosen), "pairs": all_pairs, "sampled_pairs": len(pairs)}
    return Evaluation("efficiency", name, model, "ratio", scores, counts)


@torch.inference_mode()
def encode_in_order(encoder: SentenceEncoder, texts: Sequence[str], batch_size: int = _BATCH_SIZE) -> np.ndarray:
    """Vectors (n, dim) without smart batching: batches in the order of the texts, each padded to its longest text.

    No prompt is used, and vectors are not truncated.
    """
    body, pooling = encoder.parts.body, encoder.parts.pooling
    if isinstance(body, StaticEmbedding) or pooling is None:
        raise ModelError("a static model has no padding, so that smart batching has no effect: use a transformer")
    if encoder.precision == "int8":
        raise ModelError("padded batches are not supported in int8: load the encoder in float32")
    forward = PaddedForward(body, pooling, encoder.device)
    done = []
    for start in range(0, len(texts), batch_size):
        batch = body.text_tokenizer.tokenize(texts[start : start + batch_size])
        order = np.argsort(-batch.n_tokens, kind="stable")  # the longest first, as the forward pass requires
        ids = [batch.ids[at : at + size] for at, size in zip(batch.starts[order], batch.n_tokens[order], strict=True)]
        vectors = forward(ids, 0)
        for head in encoder.parts.heads:
            vectors = head(vectors)
        rows = np.empty((len(ids), vectors.shape[1]), np.float32)
        rows[order] = vectors.float().cpu().numpy()
        done.append(rows)
    return np.concatenate(done)


def _choose(texts: Sequence[str], sentences: int | None, name: str, seed: int) -> list[str]:
    """A sample of the distinct texts, in their order."""
    distinct = list(dict.fromkeys(texts))
    wanted = min(SENTENCES, len(distinct)) if sentences is None else sentences
    if wanted < 2 or wanted > len(distinct):
        raise DataError(
            f"sentences is {wanted}, but {name} has {len(distinct)} distinct texts: use 2 to {len(distinct)}"
        )
    rows = np.sort(np.random.default_rng(seed).choice(len(distinct), wanted, replace=False))
    return [distinct[row] for row in rows.tolist()]


def _sample_pairs(n: int, size: int, seed: int) -> np.ndarray:
    """Different pairs (size, 2) of different numbers below n."""
    if size < 1:
        raise DataError(f"sampled_pairs must be at least 1, got {size}")
    drawn = np.random.default_rng(seed).choice(n * (n - 1) // 2, size, replace=False, shuffle=False)
    # The k-th pair (a, b), a > b, if they are numbered by a, then by b.
    first = ((1 + np.sqrt(1 + 8 * drawn.astype(np.float64))) / 2).astype(np.int64)
    first -= first * (first - 1) // 2 > drawn  # where rounding went too far
    return np.stack([first, drawn - first * (first - 1) // 2], axis=1)


def _measure(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """The result of `work`, its wall time and its processor time, in seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu
