"""A run as it stands, on disk: killed and started again, it goes on as if nothing had happened."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from sbert_core.errors import DataError
from sbert_core.folder import EncoderParts, write_folder
from sbert_core.training.world import World

WORK = "_training"
RESULT = "training.json"
METRICS = "metrics.jsonl"


class RunFolder:
    """The folder of a run: its metrics, its last checkpoint, the best model so far and, at the end, the result."""

    def __init__(self, output: str, digest: str, world: World, tensorboard: bool = False) -> None:
        """`digest` stands for all that decides the result; a folder of another run is refused."""
        self.path = Path(output)
        self.work = self.path / WORK
        self._digest = digest
        self._world = world
        self._check()
        self._board = _open_board(self.path / "tensorboard") if tensorboard and world.leads else None

    def _check(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file: choose another output")
        names = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
        for name in (RESULT, f"{WORK}/run.json"):
            if (self.path / name).exists():
                if json.loads((self.path / name).read_text(encoding="utf-8"))["digest"] != self._digest:
                    raise DataError(
                        f"{self.path} belongs to a run with another plan, data or model: choose another output, "
                        "or remove it"
                    )
                return
        if names:
            raise DataError(f"{self.path} is not empty and holds no training run: choose another output")

    def finished(self) -> dict[str, Any] | None:
        """What the run came to, if it has ended before."""
        path = self.path / RESULT
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def begin(self) -> None:
        """Marks the folder as that of this run."""
        if self._world.leads:
            self.work.mkdir(parents=True, exist_ok=True)
            _replace(self.work / "run.json", json.dumps({"digest": self._digest}).encode())
        self._world.wait()

    def log(self, **figures: Any) -> None:
        """Adds a line to the metrics."""
        if self._world.leads:
            with (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures) + "\n")
        if self._board is not None:
            for name in figures.keys() - {"step", "epoch"}:
                self._board.add_scalar(name, figures[name], figures["step"])

    def save(self, state: dict[str, Any]) -> None:
        """Keeps the state, and drops the one before; random states are those of each process."""
        randoms = self._world.collect(_random_state())
        if self._world.leads:
            partial = self.work / "state.partial"
            torch.save({**state, "random": randoms}, partial)
            partial.replace(self.work / "state.pt")
        self._world.wait()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The last state, if there is one, with random states put back; metrics after it are dropped."""
        path = self.work / "state.pt"
        if not path.exists():
            if self._world.leads:
                (self.path / METRICS).unlink(missing_ok=True)
            return None
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        _set_random_state(state.pop("random")[self._world.rank])
        if self._world.leads and (self.path / METRICS).exists():
            lines = (self.path / METRICS).read_text(encoding="utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]  # the last may be cut off
            kept = [line for line in whole if json.loads(line)["step"] <= state["step"]]
            _replace(self.path / METRICS, "".join(kept).encode())
        return state

    def keep_best(self, parts: EncoderParts) -> None:
        """Keeps this model as the best so far."""
        if self._world.leads:
            partial, best = self.work / "best.partial", self.work / "best"
            shutil.rmtree(partial, ignore_errors=True)
            write_folder(partial, parts)
            shutil.rmtree(best, ignore_errors=True)
            partial.rename(best)

    def finish(self, parts: EncoderParts, result: dict[str, Any], card: str) -> None:
        """Puts the model into the folder, the best if one was kept, with its card, and then says that it is done."""
        if self._world.leads:
            best = self.work / "best"
            if best.exists():
                shutil.copytree(best, self.path, dirs_exist_ok=True)
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


def _open_board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise DataError("tensorboard is not installed: run `pip install 'sbert-beam[train]'`") from error
    return SummaryWriter(str(folder))


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
