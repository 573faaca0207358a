"""The train job: labelled or plain text to an encoder; no pipeline is needed."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pipelines.train_options import TrainOptions
from sbert_core.data.examples import Examples, read_examples
from sbert_core.errors import DataError
from sbert_core.training.cross_encoder_training import Kind, train_cross_encoder
from sbert_core.training.loop import train
from sbert_core.training.plan import TrainPlan
from transforms.dataset.files import check_target


def run(options: TrainOptions, beam_flags: Sequence[str] = ()) -> dict[str, Any]:
    """Trains as told and returns the figures; Beam's flags mean nothing here and are refused."""
    if beam_flags:
        raise DataError(f"train runs no pipeline: {beam_flags[0]} has no effect here")
    check_target(options.output, 2 * _model_bytes(options.model))  # the model, and its last or best state
    if options.cross_encoder:
        return _run_cross_encoder(options)
    changes = options.changes()
    plan = TrainPlan.read(options.config, **changes) if options.config else TrainPlan.from_dict(changes, "the flags")
    result = train(plan, progress=True)
    if os.environ.get("RANK", "0") != "0":  # of several processes, the first tells
        return {}
    figures = {name: result[name] for name in ("rows", "steps", "seconds")} | {"loss": round(result["loss"], 4)}
    for reason, count in result.get("left_out", {}).items():
        figures["rows left out"] = figures.get("rows left out", 0) + count
        print(f"{count:,} rows left out of {reason}", file=sys.stderr)
    if "dev" in result:
        dev = result["dev"]
        figures |= {
            f"dev {dev['metric']} before": round(dev["before"], 4),
            f"dev {dev['metric']} at best": f"{dev['best']:.4f} (step {dev['best_step']})",
        }
    return {**figures, "kept from before": "yes" if result["kept"] else "no", "model": plan.output}


def _model_bytes(model: str | None) -> int:
    """What a model folder takes; nothing is known yet of a model that has to be fetched."""
    folder = Path(model or "")
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) if model and folder.is_dir() else 0


def _run_cross_encoder(options: TrainOptions) -> dict[str, Any]:
    changes = options.changes()
    settings = ("epochs", "batch_size", "learning_rate", "seed", "device")
    unused = changes.keys() - {"output", "model", "data", "dev", *settings}
    if unused:
        raise DataError(f"--{min(unused)} is not for cross-encoders")
    examples = _read(options, changes["data"])
    dev = _read(options, changes["dev"], examples.classes) if "dev" in changes else None
    chosen = {name: changes[name] for name in settings if name in changes}
    kind = cast(Kind, options.cross_encoder)  # checked by the options
    result = train_cross_encoder(changes["model"], examples, options.output, kind=kind, dev=dev, **chosen)
    figures = {"rows": len(examples), "steps": result["steps"], "loss": round(result["epochs"][-1]["loss"], 4)}
    if dev is not None:
        figures[f"dev {result['metric']} at best"] = round(result["best"], 4)
    return {**figures, "model": options.output}


def _read(options: TrainOptions, given: dict[str, Any], classes: Sequence[str] = ()) -> Examples:
    return read_examples(
        given["file"],
        given.get("columns", ()),
        given.get("label"),
        cast(Kind, options.cross_encoder),
        where=given.get("where"),
        label_range=given.get("label_range"),
        classes=classes,
        seed=options.seed or 0,
    )
