"""Makes docs/experiments.md of benchmarks/results/experiments.json: python -m benchmarks.experiment_tables."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiment_readings import INTRODUCTION, READINGS
from benchmarks.experiments import DESCENDANTS, LANGUAGES, SIGNALS, STUDENT, TEACHER, TRANSFER, TRANSFER_ROWS, YEARS
from benchmarks.measure import RESULTS
from benchmarks.recipes import BASE, CONCATENATIONS, GIVEN, POOLINGS, STATIC, Places, ablation_name, recipes

PAGE = Path(__file__).parents[1] / "docs/experiments.md"
DATA = (*(f"STS{year[2:]}" for year in YEARS), "STS-B", "SICK-R")
# Spearman x 100 that the authors of MTEB published, in the order of DATA; and what the model cards say of STS-B.
PUBLISHED = {
    "all-MiniLM-L6-v2": (72.37, 80.60, 75.59, 85.39, 78.99, 82.03, 77.58),
    "all-mpnet-base-v2": (72.63, 83.48, 78.00, 85.66, 80.03, 83.42, 80.59),
}
LABELS = {"augmentation": "multiple negatives, augmented", "FGSM": "multiple negatives, FGSM (old epsilon)"}

Results = Mapping[str, Any]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is of names."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(value: float | None, factor: float = 100, digits: int = 2) -> str:
    """A figure as it is shown; nothing if it was not measured."""
    return "" if value is None else f"{factor * value:.{digits}f}"


def spearman(results: Results, row: str, column: str) -> float | None:
    """Of cosine and gold score."""
    figures = results["sts"].get(row, {}).get(column)
    return None if figures is None else figures["cosine_spearman"]


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean, if all are there."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known and len(known) == len(values) else None


def sts_table(results: Results, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Spearman x 100 of each encoder on each set, and the mean."""
    body = []
    for row in rows:
        values = [spearman(results, row, column) for column in columns]
        body.append([row, *map(figure, values), figure(mean_of(values))])
    return markdown(["", *columns, "mean"], body)


def raw_table(results: Results) -> str:
    """Experiment 1."""
    base = [f"{BASE}, {mode}" for mode in POOLINGS]
    return sts_table(results, [*STATIC, *base, "NLI", "all-MiniLM-L6-v2"], DATA)


def encoder_table(results: Results) -> str:
    """Experiment 2, with how far the figures are from the published ones, and then other languages."""
    names = [*STATIC, *GIVEN]
    lines = [sts_table(results, names, DATA), ""]
    for name, published in PUBLISHED.items():
        pairs = [(spearman(results, name, column), there) for column, there in zip(DATA, published, strict=True)]
        off = [abs(100 * here - there) for here, there in pairs if here is not None]
        lines.append(f"{name}: at most {max(off):.3f} from the published figures ({len(off)} sets).")
    return "\n".join([*lines, "", "The STS benchmark, translated:", "", sts_table(results, names, LANGUAGES)])


def over_seeds(results: Results, experiment: str, row: str, split: str) -> list[float]:
    """A figure with every seed there is."""
    return [figures[split] for _, figures in sorted(results.get(experiment, {}).get(row, {}).items())]


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation, x 100."""
    if not values:
        return ""
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


def trained_table(results: Results, experiment: str, rows: Sequence[str]) -> str:
    """What each recipe makes of the base on STS-B."""
    raw = [figure(spearman(results, f"{BASE}, mean", "STS-B"), digits=1)]
    body = [["(the base)", "", "", *raw]]
    for row in rows:
        dev, test = (over_seeds(results, experiment, row, split) for split in ("dev", "test"))
        body.append([LABELS.get(row, row), str(len(test)), spread(dev), spread(test)])
    return markdown(["learned", "seeds", "dev", "test"], body)


def ablation_table(results: Results) -> str:
    """Experiment 4: pooling against concatenation."""
    body = [
        [
            f"`{kind}`" if "|" not in kind else f"`{kind.replace('|', chr(92) + '|')}`",
            *(spread(over_seeds(results, "ablation", ablation_name(mode, kind), "dev")) for mode in POOLINGS),
        ]
        for kind in CONCATENATIONS
    ]
    return markdown(["", *POOLINGS], body)


def transfer_table(results: Results) -> str:
    """Experiment 5: accuracy x 100."""
    rows = [*STATIC, *(f"{BASE}, {mode}" for mode in POOLINGS), "NLI", *GIVEN]
    table = results.get("transfer", {})
    body = []
    for row in rows:
        values = [table.get(row, {}).get(task, {}).get("accuracy") for task in TRANSFER]
        if any(value is not None for value in values):
            shown = [figure(value, digits=1) for value in values]
            body.append([row, *shown, figure(mean_of(values), digits=1)])
    return f"At most {TRANSFER_ROWS:,} rows of a split.\n\n" + markdown(["", *TRANSFER, "mean"], body)


def section_table(results: Results) -> str:
    """Experiment 6: the share of triplets whose positive is nearer."""
    table = results.get("sections", {})
    body = [
        [row, *(figure(columns["test"][f"{kind}_accuracy"], digits=1) for kind in ("cosine", "euclidean", "manhattan"))]
        for row, columns in table.items()
    ]
    return markdown(["", "cosine", "Euclidean", "Manhattan"], body)


def efficiency_table(results: Results) -> str:
    """Experiment 7."""
    ((_, figures),) = results["efficiency"]["all-MiniLM-L6-v2"].items()
    parts = {
        "bi-encoder: encode": "encode",
        "bi-encoder: compare all pairs": "search",
        "bi-encoder in all": "bi_encoder",
        "encode, padded batches as they come": "in_order_encode",
        f"cross-encoder, {figures['sampled_pairs']:,} pairs": "cross_encoder_sample",
        f"cross-encoder, scaled to {figures['pairs']:,} pairs": "cross_encoder",
    }
    body = [
        [title, f"{figures[f'{part}_cpu_seconds']:,.1f}", f"{figures[f'{part}_seconds']:,.1f}"]
        for title, part in parts.items()
    ]
    return markdown(["", "CPU seconds", "wall seconds"], body)


def descendant_table(results: Results) -> str:
    """Experiment 8."""
    return trained_table(results, "descendants", [*DESCENDANTS, STUDENT])


def facts(results: Results) -> dict[str, str]:
    """The figures that the text quotes."""
    figures = {**_sts_facts(results), **_trained_facts(results), **_ablation_facts(results)}
    ((_, speed),) = results["efficiency"]["all-MiniLM-L6-v2"].items()
    sections = {row: 100 * columns["test"]["cosine_accuracy"] for row, columns in results["sections"].items()}
    figures |= {
        "section_raw": sections[f"{BASE}, mean"],
        "section_trained": sections["sections"],
        "section_small": sections["all-MiniLM-L6-v2"],
        "smart": speed["smart_batching_cpu"],
        "cross_days": speed["cross_encoder_cpu_seconds"] / 86_400,
        "search": speed["search_cpu_seconds"],
    }
    counts = {
        "nli_steps": recipes(Places(Path("data"), Path("models"), Path("work")))["NLI"]["max_steps"],
        "ablation_seeds": min(map(len, results["ablation"].values())),
        "pairs": speed["pairs"],
        "sampled": speed["sampled_pairs"],
        "ratio": speed["cpu_ratio"],
        "bi": speed["bi_encoder_cpu_seconds"],
    }
    return {name: f"{value:.1f}" for name, value in figures.items()} | {
        name: f"{value:,.0f}" for name, value in counts.items()
    }


def _sts_facts(results: Results) -> dict[str, float]:
    def mean(row: str, columns: Sequence[str] = DATA) -> float:
        return 100 * statistics.mean(results["sts"][row][column]["cosine_spearman"] for column in columns)

    small, large, half = "all-MiniLM-L6-v2", "all-mpnet-base-v2", "paraphrase-MiniLM-L3-v2"
    raw = {mode: mean(f"{BASE}, {mode}") for mode in POOLINGS}
    return {
        **{f"raw_{mode}": value for mode, value in raw.items()},
        "raw_stsb": mean(f"{BASE}, mean", ["STS-B"]),
        "glove": mean(STATIC[0]),
        "wordllama": mean(STATIC[1]),
        "nli": mean("NLI"),
        "nli_gain": mean("NLI") - raw["mean"],
        "large_gain": mean(large) - mean(small),
        "half_loss": mean(small) - mean(half),
        "wordllama_gap": mean(small) - mean(STATIC[1]),
        "small_english": mean(small, ["STS-B"]),
        "small_other": mean(small, LANGUAGES),
        "wordllama_other": mean(STATIC[1], LANGUAGES),
    }


def _trained_facts(results: Results) -> dict[str, float]:
    def mean(experiment: str, row: str) -> float:
        return 100 * statistics.mean(over_seeds(results, experiment, row, "test"))

    ranking, teacher = mean("descendants", "multiple negatives"), mean("descendants", TEACHER)
    seconds = {name: columns["CPU"]["cpu_s"] for name, columns in results["speed"].items()}
    return {
        "nli_test": mean("signals", "NLI"),
        "sts_test": mean("signals", "STS"),
        "triplets_test": mean("signals", "triplets"),
        "nli_first": mean("signals", "NLI, then STS") - mean("signals", "STS"),
        "ranking_test": ranking,
        "teacher_test": teacher,
        "simcse_test": mean("descendants", "SimCSE"),
        "augmentation_test": mean("descendants", "augmentation"),
        "fgsm_loss": ranking - mean("descendants", "FGSM"),
        "student_kept": 100 * mean("descendants", STUDENT) / teacher,
        "student_speed": seconds[TEACHER] / seconds[STUDENT],
    }


def _ablation_facts(results: Results) -> dict[str, float]:
    cells = {
        (mode, kind): [100 * value for value in over_seeds(results, "ablation", ablation_name(mode, kind), "dev")]
        for mode in POOLINGS
        for kind in CONCATENATIONS
    }
    means = {cell: statistics.mean(values) for cell, values in cells.items()}
    return {
        **{f"ablation_{mode}": statistics.mean(means[mode, kind] for kind in CONCATENATIONS) for mode in POOLINGS},
        "ablation_noise": max(max(values) - min(values) for values in cells.values()),
    }


TABLES = {
    "Raw vectors, word vectors, sentence vectors": raw_table,
    "Sentence encoders": encoder_table,
    "Training signals": lambda results: trained_table(results, "signals", SIGNALS),
    "Pooling and concatenation": ablation_table,
    "Transfer": transfer_table,
    "Sections of articles": section_table,
    "Efficiency": efficiency_table,
    "Descendants": descendant_table,
}


def render(results: Results) -> str:
    """The whole page."""
    quoted = facts(results)
    parts = [INTRODUCTION.format(**results["machine"])]
    for number, (title, table) in enumerate(TABLES.items(), 1):
        reading = READINGS[title].filled(quoted)
        parts += [
            f"## {number}. {title}",
            reading.asked.format(**quoted),
            table(results),
            reading.read.format(**quoted),
        ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(json.loads((RESULTS / "experiments.json").read_text(encoding="utf-8"))), encoding="utf-8")
