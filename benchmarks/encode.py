"""How fast, how exact and how frugal the encoder is, against sentence-transformers in the same run.

    python -m benchmarks.encode --data DATA

DATA holds english_sentences/english_1m.parquet (text), reuters21578/reuters21578.parquet (body) and
stsb/stsb_en.parquet (sentence1, sentence2, score, split). Takes about 20 minutes, on one thread.
"""

import argparse
import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from benchmarks.measure import gemm_peak, machine, measure_sections, memory_mib, race
from sbert_beam import SentenceEncoder
from sbert_core.encoder.heads import Normalize
from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.model_source import find_model
from sbert_core.encoder.static_embedding import StaticEmbedding

SIZES = {200: 9, 6000: 3}  # texts -> rounds
MEMORY_TEXTS = 100_000


def load_texts(data: Path, count: int) -> list[str]:
    """Real English of mixed length: mostly single sentences, one text in twelve a news article."""
    random = np.random.default_rng(0)
    sentences = pq.read_table(data / "english_sentences/english_1m.parquet", columns=["text"])["text"].to_pylist()
    articles = pq.read_table(data / "reuters21578/reuters21578.parquet", columns=["body"])["body"].to_pylist()
    articles = [article for article in articles if article and len(article) > 20]
    texts = [sentences[i] for i in random.choice(len(sentences), count - count // 12, replace=False)]
    texts += [articles[i] for i in random.choice(len(articles), count // 12, replace=False)]
    return [texts[i] for i in random.permutation(count)]


def flops(encoder: SentenceEncoder, n_tokens: np.ndarray) -> float:
    """Multiplications and additions that the texts need, padding not counted."""
    config = encoder.parts.body.model.config
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    projections = 2 * (4 * width**2 + 2 * width * inner) * n_tokens.sum()
    attention = 4 * width * (n_tokens.astype(float) ** 2).sum()
    return float(layers * (projections + attention))


def compare(encoders: dict[str, Any], texts: list[str], rounds: int) -> dict[str, Any]:
    """Races the encoders over the same texts and compares every vector with the reference's."""
    vectors = {}

    def run(name: str) -> None:
        vectors[name] = encoders[name].encode(texts)

    print(f"{len(texts)} texts")
    times = race({name: (lambda name=name: run(name)) for name in encoders}, rounds)
    exact = encoders["sbert-beam"]
    n_tokens = exact.encode(texts, details=True).n_tokens
    peak, work = gemm_peak(), flops(exact, n_tokens)
    reference = vectors["sentence-transformers"]
    rows = {}
    for name, measured in times.items():
        cosines = (vectors[name] * reference).sum(axis=1)
        rows[name] = {
            **measured,
            "cpu_ratio": times["sentence-transformers"]["cpu_s"] / measured["cpu_s"],
            "wall_ratio": times["sentence-transformers"]["wall_s"] / measured["wall_s"],
            "tokens_per_s": n_tokens.sum() / measured["wall_s"],
            "gflop_per_cpu_s": work / measured["cpu_s"] / 1e9,
            "share_of_gemm_peak": work / measured["cpu_s"] / 1e9 / peak,
            "cosine_min": float(cosines.min()),
            "cosine_mean": float(cosines.mean()),
        }
    return {
        "texts": len(texts),
        "tokens_mean": float(n_tokens.mean()),
        "tokens_p95": float(np.percentile(n_tokens, 95)),
        "gemm_peak_gflop_per_cpu_s": peak,
        "rows": rows,
    }


def score_stsb(encoders: dict[str, Any], data: Path) -> dict[str, float]:
    """Spearman x 100 on the STS benchmark's test split."""
    pairs = pq.read_table(data / "stsb/stsb_en.parquet").to_pandas().query("split == 'test'")
    left, right = pairs["sentence1"].tolist(), pairs["sentence2"].tolist()
    cosines = {name: (encoder.encode(left) * encoder.encode(right)).sum(axis=1) for name, encoder in encoders.items()}
    return {name: 100 * float(spearmanr(values, pairs["score"]).statistic) for name, values in cosines.items()}


def compare_static(encoder: SentenceEncoder, texts: list[str]) -> dict[str, float]:
    """A static encoder of the same width (the model's own word vectors) against the transformer."""
    body = encoder.parts.body
    table = body.model.embeddings.word_embeddings.weight.detach()
    static = SentenceEncoder(
        EncoderParts(StaticEmbedding(body.tokenizer.backend_tokenizer, table), None, (Normalize(),))
    )
    times = race({"transformer": lambda: encoder.encode(texts), "static": lambda: static.encode(texts)}, 5)
    return {
        "texts_per_s": len(texts) / times["static"]["wall_s"],
        "cpu_ratio": times["transformer"]["cpu_s"] / times["static"]["cpu_s"],
        "wall_ratio": times["transformer"]["wall_s"] / times["static"]["wall_s"],
    }


def compare_duplicates(encoder: SentenceEncoder, texts: list[str]) -> float:
    """Time for rows of which half are duplicates, as a share of that for rows all distinct."""
    half = texts[: len(texts) // 2]
    times = race({"distinct": lambda: encoder.encode(texts), "half": lambda: encoder.encode([*half, *half])}, 5)
    return times["half"]["cpu_s"] / times["distinct"]["cpu_s"]


def measure_memory() -> dict[str, float]:
    """Memory that encoding 100,000 sentences of 30 tokens adds to the loaded model at its peak, less the output."""
    encoder = SentenceEncoder.load()
    encoder.encode(["warm up"])
    random = np.random.default_rng(0)
    words = [word for word in encoder.parts.body.tokenizer.get_vocab() if word.isalpha() and len(word) > 2]
    texts = [" ".join(words[i] for i in random.integers(0, len(words), 28)) for _ in range(MEMORY_TEXTS)]
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is counted anew
    before = memory_mib("VmRSS")
    vectors = encoder.encode(texts)
    output = vectors.nbytes / 2**20
    return {"output_mib": output, "added_mib_beyond_output": memory_mib("VmHWM") - before - output}


def main() -> None:
    """Measures everything, or one section anew, and stores benchmarks/results/encode.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--only", help="measure only this section of the stored result")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        sys.exit("give the folder of data sets with --data DIR (make bench DATA=DIR); see benchmarks/README.md")
    torch.set_num_threads(1)  # two threads wait for each other in a loop when others use the machine
    texts = load_texts(arguments.data, max(SIZES))
    model = find_model("default")

    @functools.cache
    def encoders() -> dict[str, Any]:
        contestants = {
            "sentence-transformers": SentenceTransformer(str(model), device="cpu"),
            "sbert-beam": SentenceEncoder.load(model, device="cpu"),
            "sbert-beam int8": SentenceEncoder.load(model, device="cpu", precision="int8"),
        }
        for encoder in contestants.values():
            encoder.encode(texts[:50])
        return contestants

    sections = {
        "memory": measure_memory,  # first: what others leave behind would count
        "machine": lambda: machine("torch", "transformers", "sentence-transformers", "tokenizers"),
        "speed": lambda: [compare(encoders(), texts[:size], rounds) for size, rounds in SIZES.items()],
        "stsb_test_spearman": lambda: score_stsb(encoders(), arguments.data),
        "static": lambda: compare_static(encoders()["sbert-beam"], texts[:1000]),
        "half_duplicates_cpu_share": lambda: compare_duplicates(encoders()["sbert-beam"], texts[:1000]),
        "sentence_transformers_onnx": lambda: "not measured: optimum-onnx 0.1.0 requires transformers < 4.58",
    }
    measure_sections("encode", sections, arguments.only)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
