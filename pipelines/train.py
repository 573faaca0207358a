"""The train job: labelled or plain texts to an encoder or a cross-encoder; no pipeline is needed."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pipelines.job import Figures, Job
from pipelines.train_options import TrainOptions
from sbert_core.data.examples import Examples, read_examples
from sbert_core.errors import DataError
from sbert_core.training.cross_encoder_training import Kind, train_cross_encoder
from sbert_core.training.loop import train
from sbert_core.training.plan import TrainPlan
from transforms.dataset.files import check_target


class TrainJob(Job[TrainOptions]):
    """Trains a model and writes it to a folder."""

    name = "train"

    def check(self) -> None:
        """Checks the output folder: it gets the model, and its last or best state."""
        check_target(self.options.output, 2 * _model_bytes(self.options.model))

    def work(self) -> Figures:
        """Trains an encoder, or a cross-encoder with --cross_encoder."""
        return self._train_cross_encoder() if self.options.cross_encoder else self._train_encoder()

    def summary(self, figures: Figures, seconds: float) -> Figures:
        """The figures alone: they hold the seconds of the training, also of one that is kept from before."""
        return figures

    def _train_encoder(self) -> Figures:
        config, changes = self.options.config, self.options.changes()
        plan = TrainPlan.read(config, **changes) if config else TrainPlan.from_dict(changes, "the flags")
        result = train(plan, progress=True)
        if os.environ.get("RANK", "0") != "0":  # of several processes, the first reports
            return {}
        figures: Figures = {name: result[name] for name in ("rows", "steps", "seconds")}
        figures["loss"] = round(result["loss"], 4)
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

    def _train_cross_encoder(self) -> Figures:
        changes = self.options.changes()
        settings = ("epochs", "batch_size", "learning_rate", "seed", "device")
        unused = changes.keys() - {"output", "model", "data", "dev", *settings}
        if unused:
            raise DataError(f"--{min(unused)} is not for cross-encoders")
        examples = _read(self.options, changes["data"])
        dev = _read(self.options, changes["dev"], examples.classes) if "dev" in changes else None
        chosen = {name: changes[name] for name in settings if name in changes}
        kind = cast(Kind, self.options.cross_encoder)  # checked by the options
        result = train_cross_encoder(changes["model"], examples, self.options.output, kind=kind, dev=dev, **chosen)
        figures: Figures = {"rows": len(examples), "steps": result["steps"]}
        figures["loss"] = round(result["epochs"][-1]["loss"], 4)
        if dev is not None:
            figures[f"dev {result['metric']} at best"] = round(result["best"], 4)
        return {**figures, "model": self.options.output}


def _model_bytes(model: str | None) -> int:
    """The size of a model folder; 0 for a model that has to be fetched first."""
    folder = Path(model or "")
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) if model and folder.is_dir() else 0


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


def run(options: TrainOptions, beam_flags: Sequence[str] = ()) -> Figures:
    """Runs the job and returns its summary."""
    return TrainJob(options, beam_flags).run()
