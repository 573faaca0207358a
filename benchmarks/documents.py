"""Writes the generated sections of README.md and docs/ from the stored results and the schemas."""

import json
import re
from pathlib import Path

import pyarrow as pa

from benchmarks.experiment_tables import LABELS, facts, over_seeds, spread
from benchmarks.experiments import DESCENDANTS, SIGNALS, STUDENT
from benchmarks.measure import RESULTS
from benchmarks.recipes import BASE, Places, recipes
from benchmarks.scale_figures import million_figures, routed_figures
from sbert_core.data import schema
from sbert_core.data.schema import AddedColumns

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "docs/outputs.md", "docs/benchmarks.md")]


def encode_figures() -> str:
    result = json.loads((RESULTS / "encode.json").read_text(encoding="utf-8"))
    machine, large = result["machine"], result["speed"][-1]
    spearman = result["stsb_test_spearman"]
    lines = [
        f"all-MiniLM-L6-v2 against sentence-transformers {machine['sentence-transformers']} with its defaults, in the "
        f"same run, CPU time on one thread ({machine['cpu']}), real English texts "
        f"(mean {large['tokens_mean']:.0f} tokens, 95th percentile {large['tokens_p95']:.0f}):",
        "",
        "| | texts | times faster | tokens/s | share of GEMM peak | cosine to reference: minimum, mean | STS-B test |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in result["speed"]:
        for name, row in size["rows"].items():
            lines.append(
                f"| {name} | {size['texts']:,} | {row['cpu_ratio']:.2f} | {row['tokens_per_s']:,.0f} "
                f"| {row['share_of_gemm_peak']:.0%} | {row['cosine_min']:.6f}, {row['cosine_mean']:.6f} "
                f"| {spearman[name]:.2f} |"
            )
    memory, static = result["memory"], result["static"]
    lines += [
        "",
        f"A static encoder of the same width is {static['cpu_ratio']:.0f} times faster than the transformer "
        f"({static['texts_per_s']:,.0f} texts/s). A corpus of which half the rows are duplicates takes "
        f"{result['half_duplicates_cpu_share']:.0%} of the time. Encoding 100,000 sentences of 30 tokens adds "
        f"{memory['added_mib_beyond_output']:.0f} MiB to the loaded model and the vectors themselves.",
    ]
    return "\n".join(lines)


def embed_figures() -> str:
    result = json.loads((RESULTS / "embed.json").read_text(encoding="utf-8"))
    job, peers, growth = result["job"], result["peers"], result["growth"]
    sizes = growth["sizes"]
    peaks = ", ".join(f"{size['peak_mib']:.0f} MiB at {size['rows']:,}" for size in sizes)
    lines = [
        f"The embed job on {job['rows']:,} sentences takes {job['wall_ratio']:.2f} times the wall time of a bare loop",
        f"of `encode` over the same rows. From Parquet to Parquet, {peers['rows']:,} sentences, start-up included,",
        f"it is {peers['wall_ratio']['MLTransform']:.1f} times as fast as Beam's `MLTransform` and",
        f"{peers['wall_ratio']['RunInference']:.1f} times as fast as `RunInference`, both with sentence-transformers.",
        f"With an encoder that costs nothing it processes {growth['rows_per_cpu_s']:,.0f} rows per CPU second in one",
        f"process. Its peak memory is {peaks} rows.",
    ]
    return "\n".join(lines)


def mine_figures() -> str:
    result = json.loads((RESULTS / "mine.json").read_text(encoding="utf-8"))
    threshold, workers = result["threshold"], result["workers"]
    versions = result["machine"]
    unlike = {
        peer: sum(size.get(f"pairs_unlike_{peer}", 0) for size in threshold["sizes"])
        for peer in ("sentence_transformers", "faiss_flat")
    }
    lines = [
        f"Mining all pairs with a cosine of at least {threshold['threshold']} among real sentences, 384 dimensions,",
        f"CPU time on one thread, against sentence-transformers {versions['sentence-transformers']} and faiss",
        f"{versions['faiss-cpu']}; pairs that differ: {unlike['sentence_transformers']} from sentence-transformers,",
        f"{unlike['faiss_flat']} from faiss flat, {threshold['sizes'][0]['pairs_unlike_float64']} from float64:",
        "",
        "| rows | pairs | CPU s | of the bare product | sentence-transformers | faiss flat | faiss IVF (recall) |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in threshold["sizes"]:
        ratios = size["cpu_ratio"]
        peers = [f"{ratios[name]:.1f} x" if name in ratios else "" for name in ("sentence-transformers", "faiss flat")]
        ivf = f"{ratios['faiss IVF']:.1f} x ({size['faiss_ivf_recall']:.3f})" if "faiss IVF" in ratios else ""
        lines.append(
            f"| {size['rows']:,} | {size['pairs']:,} | {size['sbert-beam']['cpu_s']:.1f} "
            f"| {size['of_bare_product']:.2f} x | {peers[0]} | {peers[1]} | {ivf} |"
        )
    neighbors = " and ".join(
        f"{size['of_bare_product']:.2f} times at {size['rows']:,}" for size in result["neighbors"]["sizes"]
    )
    peaks = ", ".join(f"{size['peak_mib']:.0f} MiB at {size['rows']:,}" for size in result["memory"]["sizes"])
    lines += [
        "",
        f"Cost grows with the power {threshold['exponent']:.2f} of the rows. The nearest {result['neighbors']['k']} of",
        f"every row, without a threshold, take the bare product {neighbors} rows. The exact job's peak",
        f"memory is {peaks} rows.",
        f"Two worker processes are {workers['speed_up_start_up_aside']:.2f} times as fast as one at",
        f"{workers['rows']:,} rows, start-up aside ({workers['speed_up']:.2f} with it).",
    ]
    return "\n".join(lines)


def tables() -> str:
    """The columns of every dataset, from the schemas they are written with."""
    any_id = pa.string()
    datasets = {
        "embeddings/": pa.schema([pa.field("(every input column)", pa.null()), *AddedColumns().fields(384)]),
        "rejected/": schema.REJECTED,
        "neighbors/": schema.neighbors_schema(any_id, any_id),
        "pairs/": schema.pairs_schema(any_id, any_id),
        "duplicates/": schema.duplicates_schema(any_id),
        "search/": schema.search_schema(any_id, any_id),
        "clusters/assignments/": schema.assignments_schema(any_id),
        "clusters/summary/": schema.clusters_schema(any_id, 384),
        "clusters/over_time/": schema.over_time_schema(),
    }
    lines = [
        "Ids have the type they have in the corpus; 384 stands for the model's dimensions.",
        "",
        "| | |",
        "|---|---|",
    ]
    for name, columns in datasets.items():
        shown = [f"`{field.name}` {_type_name(field)}".strip() for field in columns]
        lines.append(f"| `{name}` | {', '.join(shown)} |")
    return "\n".join(lines)


def _type_name(field: pa.Field) -> str:
    kind = re.sub(r"<(item|element): (\w+)( not null)?>", r"<\2>", str(field.type))
    return "" if pa.types.is_null(field.type) else kind.replace("fixed_size_list<float>", "float")


def cluster_figures() -> str:
    result = json.loads((RESULTS / "cluster.json").read_text(encoding="utf-8"))
    contestants = ("sbert-beam", "BERTopic", "k-means, true k", "sentence-transformers communities")
    lines = [
        "Agreement with gold topics (ARI / NMI, clusters found), vectors of the default model; only k-means gets",
        f"the number of clusters. BERTopic {result['machine']['bertopic']} with its defaults, communities over 0.75.",
        "The default algorithm was developed with these sets, so it may do less well on others:",
        "",
        "| set | rows | topics | " + " | ".join(contestants) + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in result["quality"]:
        cells = [
            f"{entry[name]['ari']:.3f} / {entry[name]['nmi']:.3f} ({entry[name]['clusters']})" for name in contestants
        ]
        lines.append(f"| {entry['set']} | {entry['rows']:,} | {entry['gold']} | {' | '.join(cells)} |")
    speed = result["speed"]
    lines += [
        "",
        f"The default took {speed['sbert-beam']['cpu_s']:.0f} CPU seconds for {speed['rows']:,} rows whose neighbours",
        f"are known ({speed['sbert-beam']['peak_mib']:.0f} MiB at the peak, mining included); `hdbscan.HDBSCAN` on the",
        f"vectors would take {speed['hdbscan_expected_cpu_s']:,.0f}, extrapolated from up to",
        f"{speed['hdbscan'][-1]['rows']:,} rows with the exponent measured, {speed['hdbscan_exponent']:.2f}.",
    ]
    return "\n".join(lines)


def check_figures() -> str:
    result = json.loads((RESULTS / "checks.json").read_text(encoding="utf-8"))
    inside, again, search = result["inside"], result.get("rerun", {}), result.get("search", {})
    mines = {f"mine, exact, {rows:,}": f"mine {rows}" for rows in (20_000, 50_000)}
    names = {"embed, default model": "embed default", "embed, static encoder": "embed static", **mines}
    names |= {"cluster, leiden": "cluster", "report": "report"}
    jobs = {label: (result.get(name), inside[name]) for label, name in names.items()} | {
        "search, one query, start-up included": (search.get("command"), inside["search"]),
        "search, one query, all loaded": (search.get("loaded"), inside["search"]),
        "embed, nothing to do, start-up included": (again.get("embed command"), inside["rerun"]),
        "embed, nothing to do, all loaded": (again.get("embed"), inside["rerun"]),
    }
    lines = [
        "What the checks cost, CPU time on one thread: the time inside them as a share of the job without them, and",
        "the ratio of the job with checks to the job without (median of interleaved rounds, quartiles). For the longer",
        "jobs the noise of the ratio is larger than the effect:",
        "",
        "| job | rows | CPU s | inside the checks | ratio (quartiles) |",
        "|---|---|---|---|---|",
    ]
    for label, (job, clocks) in jobs.items():
        spent = clocks["checks_cpu_s"] + clocks["pages_cpu_s"]
        total = job["with_checks"]["cpu_s"] if job else clocks["cpu_s"]
        ratio = "not measured"
        if job:
            low, high = job["cpu_ratio_quartiles"]
            ratio = f"{job['cpu_ratio']:.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"| {label} | {clocks['rows']:,} | {total:.2f} | {spent / (total - spent):.2%} | {ratio} |")
    verified = " and ".join(
        f"{found['cpu_s']:.1f} CPU seconds for {len(found['datasets'])} datasets of {found['rows']:,} rows"
        f" ({found['mb']:.0f} MB)"
        for found in result["verify"]
    )
    return "\n".join([*lines, "", f"`verify` takes {verified}."])


def train_figures() -> str:
    results = json.loads((RESULTS / "experiments.json").read_text(encoding="utf-8"))
    tuned = json.loads((RESULTS / "tune.json").read_text(encoding="utf-8"))
    plans = recipes(Places(Path("data"), Path("models"), Path("work")))
    lines = [
        "Training an encoder that was not tuned for sentences (the body of distilbert-base-cased): Spearman",
        "x 100 of cosine and score on STS-B test, some minutes of CPU each. Sentences of STS-B dev and test were",
        "removed from SNLI:",
        "",
        "| trained on | steps x batch | seeds | STS-B test |",
        "|---|---|---|---|",
        f"| nothing | | | {100 * results['sts'][f'{BASE}, mean']['STS-B']['cosine_spearman']:.1f} |",
    ]
    for experiment, rows in (("signals", SIGNALS), ("descendants", (*DESCENDANTS, STUDENT))):
        for row in rows:
            size = f"{plans[row]['max_steps']} x {plans[row].get('batch_size', 16)}"
            scores = over_seeds(results, experiment, row, "test")
            lines.append(f"| {LABELS.get(row, row)} | {size} | {len(scores)} | {spread(scores)} |")
    intents, student, steps, processes = (tuned[name] for name in ("intents", "student", "steps", "processes"))
    before, after = intents["before"], intents["after"]
    lines += [
        "",
        f"The default model, tuned on pairs of {intents['rows_learned']:,} BANKING77 train questions",
        f"({intents['steps']} steps), groups the {intents['rows_tested']:,} test questions with an NMI of",
        f"{after['k-means nmi']:.1f} instead of {before['k-means nmi']:.1f} (k-means, true k), and",
        f"{after['run']['nmi']:.1f} instead of {before['run']['nmi']:.1f} in `sbert-beam run`, which chooses k.",
        f"A student with three of its six layers keeps {student['kept']:.1%} of its Spearman on STS-B test",
        f"({student['stsb_test']['student']:.1f} of {student['stsb_test']['teacher']:.1f}) and encodes",
        f"{student['speed_up_cpu']:.2f} times as fast.",
        f"A training step (triplets of SNLI, batches of {steps['batch']}, multiple negatives) is",
        f"{steps['speed_up_cpu']:.2f} times as fast as that of the trainer of sentence-transformers",
        f"{tuned['machine']['sentence-transformers']}, in CPU time on one thread. The loss curves of one process and",
        f"of two differ by {processes['largest_relative_difference']:.0e} at most.",
    ]
    return "\n".join(lines)


def experiment_findings() -> str:
    quoted = facts(json.loads((RESULTS / "experiments.json").read_text(encoding="utf-8")))
    findings = [
        "- **Raw transformer vectors are no sentence vectors.** Mean pooling of a transformer that was not trained on"
        " sentences reaches {raw_mean} (Spearman x 100, mean of seven STS sets), averaged static WordLlama vectors"
        " {wordllama}; 100 steps of multiple negatives take the same transformer from {raw_stsb} to {ranking_test} on"
        " STS-B test.",
        "- **Encode once, compare vectors.** The most similar pair of 10,000 sentences takes {bi} CPU seconds with the"
        " default model and {cross_days} CPU days with a cross-encoder of its size: {ratio} times.",
        "- **English models are for English.** all-mpnet-base-v2 is {large_gain} points above the six-layer default on"
        " seven English sets; on the STS benchmark in eleven other languages the default falls from {small_english} to"
        " {small_other}, below static WordLlama vectors ({wordllama_other}).",
    ]
    return "\n".join(finding.format(**quoted) for finding in findings)


def glance() -> str:
    """The few figures that a reader wants first."""
    encode, mine, cluster, tuned = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("encode", "mine", "cluster", "tune")
    )
    large = encode["speed"][-1]
    compared = [size for size in mine["threshold"]["sizes"] if "faiss flat" in size["cpu_ratio"]][-1]
    quality = cluster["quality"]
    ahead = sum(
        all(entry["sbert-beam"][score] > entry["BERTopic"][score] for score in ("ari", "nmi")) for entry in quality
    )
    steps = tuned["steps"]
    return "\n".join(
        [
            "| work | compared with | result |",
            "|---|---|---|",
            f"| encode {large['texts']:,} texts on CPU | sentence-transformers | "
            f"{large['rows']['sbert-beam']['cpu_ratio']:.1f}x as fast, same vectors |",
            f"| pairs over {mine['threshold']['threshold']} among {compared['rows']:,} rows | sentence-transformers | "
            f"{compared['cpu_ratio']['sentence-transformers']:.1f}x as fast, same pairs |",
            f"| topics of {len(quality)} labelled sets | BERTopic | higher ARI and NMI on {ahead} of {len(quality)} |",
            f"| training step, batch of {steps['batch']} | sentence-transformers | "
            f"{steps['speed_up_cpu']:.1f}x as fast |",
        ]
    )


SECTIONS = {
    "glance": glance,
    "findings": experiment_findings,
    "tables": tables,
    "figures": lambda: "\n\n".join(
        [encode_figures(), embed_figures(), mine_figures(), routed_figures(), cluster_figures(), train_figures()]
    ),
    "checks": check_figures,
    "million": million_figures,
}


def render(text: str) -> str:
    """A document with its generated sections as the stored results and the schemas have them now."""
    for name, make in SECTIONS.items():
        section = re.compile(rf"(<!-- {name}: [^\n]* -->\n).*(<!-- end of {name} -->)", re.DOTALL)
        text = section.sub(lambda match, make=make: f"{match[1]}\n{make()}\n\n{match[2]}", text)
    return text


if __name__ == "__main__":
    for path in DOCUMENTS:
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
