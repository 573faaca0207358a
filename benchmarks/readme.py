"""Writes the README's figures from the stored results."""

import json
import re
from pathlib import Path

from benchmarks.measure import RESULTS

README = Path(__file__).parents[1] / "README.md"
SECTION = re.compile(r"(<!-- figures: [^\n]* -->\n).*(<!-- end of figures -->)", re.DOTALL)


def encode_figures() -> str:
    result = json.loads((RESULTS / "encode.json").read_text(encoding="utf-8"))
    machine, large = result["machine"], result["speed"][-1]
    spearman = result["stsb_test_spearman"]
    lines = [
        f"all-MiniLM-L6-v2 against sentence-transformers {machine['sentence-transformers']} with its defaults, in the "
        f"same run, CPU time on one thread ({machine['cpu']}), real English texts "
        f"(mean {large['tokens_mean']:.0f} tokens, 95th percentile {large['tokens_p95']:.0f}):",
        "",
        "| | texts | times faster | tokens/s | share of GEMM peak | cosine to reference: least, mean | STS-B test |",
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
        f"With an encoder that costs nothing it moves {growth['rows_per_cpu_s']:,.0f} rows per CPU second in one",
        f"process, and its peak memory is {peaks} rows.",
    ]
    return "\n".join(lines)


def render(text: str) -> str:
    """The README with its figures as the stored results have them."""
    return SECTION.sub(lambda match: f"{match[1]}\n{encode_figures()}\n\n{embed_figures()}\n\n{match[2]}", text)


if __name__ == "__main__":
    README.write_text(render(README.read_text(encoding="utf-8")), encoding="utf-8")
