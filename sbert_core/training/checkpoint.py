"""The state of a run on disk, so that a killed run continues and ends with the same result."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sbert_core.encoder.model_folder import EncoderParts, write_folder
from sbert_core.errors import DataError
from sbert_core.training.world import World

WORK = "_training"
RESULT = "training.json"
METRICS = "metrics.jsonl"


class RunFolder:
    """The folder of a run: its metrics, its last checkpoint, the best model so far and, at the end, the result."""

    def __init__(self, output: str, digest: str, world: World, tensorboard: bool = False) -> None:
        """`digest` is the hash of all that decides the result; the folder of another run is refused."""
        self.path = Path(output)
        self.work = self.path / WORK
        self._digest = digest
        self._world = world
        self._saved_best: int | None = None  # the step of the best model that the last checkpoint refers to
        self._check()
        self._open_board = _board_of(self.path / "tensorboard") if tensorboard and world.is_main else None
        self._board: Any = None

    def _check(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file: choose another output")
        names = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
        for name in (RESULT, f"{WORK}/run.json"):
            if (self.path / name).exists():
                if _read(self.path / name)["digest"] != self._digest:
                    raise DataError(
                        f"{self.path} belongs to a run with another plan, data or model: choose another output, "
                        "or remove it"
                    )
                return
        if names:
            raise DataError(f"{self.path} is not empty and holds no training run: choose another output")

    def finished(self) -> dict[str, Any] | None:
        """The result of the run, if it has finished before."""
        path = self.path / RESULT
        return _read(path) if path.exists() else None

    def begin(self) -> None:
        """Marks the folder as that of this run; nothing is written before."""
        if self._world.is_main:
            try:
                self.work.mkdir(parents=True, exist_ok=True)
                _replace(self.work / "run.json", json.dumps({"digest": self._digest}).encode())
            except OSError as error:
                raise DataError(f"{self.path} cannot be written: {error.strerror}; choose another output") from error
            if not (self.work / "state.pt").exists():
                (self.path / METRICS).unlink(missing_ok=True)  # of a run that was stopped before its first checkpoint
        if self._open_board is not None:
            self._board = self._open_board()
        self._world.wait()

    def log(self, **figures: Any) -> None:
        """Adds a line to the metrics."""
        if self._world.is_main:
            with (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures) + "\n")
        if self._board is not None:
            for name in figures.keys() - {"step", "epoch"}:
                self._board.add_scalar(name, figures[name], figures["step"])

    def save(self, state: dict[str, Any]) -> None:
        """Saves a checkpoint in place of the last one, with the random state of each process."""
        randoms = self._world.collect(_random_state())
        if self._world.is_main:
            partial = self.work / "state.partial"
            torch.save({**state, "random": randoms}, partial)
            partial.replace(self.work / "state.pt")
            self._saved_best = state["progress"]["best_step"]
            self._drop_best(self._saved_best)
        self._world.wait()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint, if there is one. Restores the random state and drops the metrics after it."""
        path = self.work / "state.pt"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except Exception as error:  # torch raises many types for a damaged file
            raise DataError(f"the checkpoint {path} cannot be read: remove it to start again") from error
        self._saved_best = state["progress"]["best_step"]
        _set_random_state(state.pop("random")[self._world.process_rank])
        if self._world.is_main and (self.path / METRICS).exists():
            lines = (self.path / METRICS).read_text(encoding="utf-8").splitlines(keepends=True)
            complete = [line for line in lines if line.endswith("\n")]  # the last may be truncated
            kept = [line for line in complete if json.loads(line)["step"] <= state["progress"]["step"]]
            _replace(self.path / METRICS, "".join(kept).encode())
        return state

    def keep_best(self, parts: EncoderParts, step: int) -> None:
        """Saves the best model so far; the one before stays until no checkpoint refers to it."""
        if self._world.is_main:
            partial, best = self.work / "best.partial", self._best(step)
            shutil.rmtree(partial, ignore_errors=True)
            write_folder(partial, parts)
            shutil.rmtree(best, ignore_errors=True)  # of a run that continued from a checkpoint before this step
            partial.rename(best)
            self._drop_best(step, self._saved_best)

    def _best(self, step: int) -> Path:
        return self.work / f"best-{step}"

    def _drop_best(self, *kept: int | None) -> None:
        for folder in self.work.glob("best-*"):
            if folder.name not in [f"best-{step}" for step in kept]:
                shutil.rmtree(folder)

    def finish(self, parts: EncoderParts, result: dict[str, Any], card: str, best_step: int | None = None) -> None:
        """Writes the model, the best if one was kept, and its card; the result is written last and marks the end."""
        if self._world.is_main:
            if best_step:
                shutil.copytree(self._best(best_step), self.path, dirs_exist_ok=True)
            else:
                write_folder(self.path, parts)
            (self.path / "README.md").write_text(card, encoding="utf-8")
            content = json.dumps({"digest": self._digest, **result}, indent=2) + "\n"
            _replace(self.path / RESULT, content.encode())
            shutil.rmtree(self.work)
            if self._board is not None:
                self._board.close()
        self._world.wait()


def _random_state() -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    return {**state, "cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else state


def _set_random_state(state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"].cpu())
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu())


def _board_of(folder: Path) -> Callable[[], Any]:
    """A function that opens TensorBoard's writer, which creates a file at once."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise DataError("tensorboard is not installed: run `pip install 'sbert-beam[train]'`") from error
    return lambda: SummaryWriter(str(folder))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): choose another output, or remove {path.parent}") from error
    if not isinstance(content, dict) or "digest" not in content:
        raise DataError(f"{path} is not from a training run: choose another output, or remove {path.parent}")
    return content


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
