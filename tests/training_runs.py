"""Small training runs for tests: data, plans, and what they leave behind."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch

from sbert_beam import TrainPlan

WORDS = ["fox", "dog", "man", "flute", "parcel", "lazy", "quick", "brown"]
PAIRS = [(f"the {a} is {b}", f"my {a} {b} jumps") for a in WORDS for b in WORDS if a != b]


def write_pairs(path: Path) -> str:
    """Pairs with the columns a, b, score and kind."""
    columns = {"a": [a for a, _ in PAIRS], "b": [b for _, b in PAIRS], "score": np.linspace(0, 1, len(PAIRS))}
    pq.write_table(pa.table({**columns, "kind": [a.split()[1] for a, _ in PAIRS]}), path)
    return str(path)


def make_plan(model: str, pairs: str, output: Path, **changes) -> TrainPlan:
    data = {"file": pairs, "columns": ["a", "b"], **changes.pop("data", {})}
    settings = {"model": model, "output": str(output), "learning_rate": 1e-3, "batch_size": 8, "max_steps": 6}
    return TrainPlan.from_dict({**settings, "data": data, **changes})


def dev_of(pairs: str) -> dict:
    return {"file": pairs, "columns": ["a", "b"], "label": "score"}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for file in sorted(Path(folder).rglob("model.safetensors")):
        prefix = "" if file.parent == Path(folder) else f"{file.parent.name}/"
        found |= {prefix + name: tensor for name, tensor in safetensors.torch.load_file(file).items()}
    return found


def losses(folder: Path) -> list[float]:
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines if "loss" in line]


def assert_equal_weights(first: Path, second: Path, tolerance: float = 0.0) -> None:
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(b[name], a[name], atol=tolerance, rtol=0, msg=name)


def have_equal_weights(first: Path, second: Path) -> bool:
    a, b = weights(first), weights(second)
    return all(torch.equal(weight, b[name]) for name, weight in a.items())
