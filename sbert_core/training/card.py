"""The model card: the README.md of a trained model."""

from importlib.metadata import version
from typing import Any

import tokenizers
import torch
import transformers

from sbert_core.training.plan import TrainPlan


def write_card(plan: TrainPlan, n_rows: list[int], result: dict[str, Any]) -> str:
    """The card in Markdown, with the metadata for model hubs; `n_rows` are the rows of each data set."""
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, sentence-similarity, feature-extraction, sbert-beam]",
        "---",
        "",
        f"# {plan.output.rstrip('/').rpartition('/')[2]}",
        "",
        f"A sentence encoder with {result['dim']} dimensions, trained from `{plan.model}` by sbert-beam.",
        "",
        "```python",
        "from sbert_beam import SentenceEncoder",
        "",
        f'vectors = SentenceEncoder.load("{plan.output}").encode(["A sentence.", "Another one."])',
        "```",
        "",
        "## Training data",
        "",
        "| data | rows | objective | options |",
        "|---|---|---|---|",
    ]
    for spec, rows in zip(plan.data, n_rows, strict=True):
        options = ", ".join(f"{name} {value}" for name, value in spec.options.items()) or "defaults"
        cells = (spec.file, f"{rows:,}", spec.objective, options)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    for reason, count in result["left_out"].items():
        lines += ["", f"{count:,} rows were left out of {reason}."]
    lines += ["", "## Training", "", f"{result['steps']:,} steps; the last loss was {result['loss']:.4f}."]
    if plan.dev is not None:
        scores = result["dev"]
        lines.append(
            f"{scores['metric']} on {plan.dev.file} (not in the training data): {scores['before']:.4f} before, "
            f"{scores['best']:.4f} at best, after step {scores['best_step']}, whose weights these are."
        )
    settings = {
        name: value
        for name, value in plan.to_dict().items()
        if name not in ("data", "dev", "model", "output") and value not in (None, 0, "none", False)
    }
    lines += ["", "| setting | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in settings.items())]
    lines += ["", "Versions: " + ", ".join(f"{package} {number}" for package, number in _versions().items()) + "."]
    return "\n".join(lines) + "\n"


def _versions() -> dict[str, str]:
    """Versions as the modules report them: package metadata leaves out the build of torch (+cpu, +cu130)."""
    return {
        "sbert-beam": version("sbert-beam"),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }
