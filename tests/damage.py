"""Damage to files, and the files of an output for comparison."""

from pathlib import Path

from sbert_core.process_cache import clear_process_caches


def flip_bit(path: Path, place: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 8
    path.write_bytes(content)
    clear_process_caches()


def contents(output: Path) -> dict[str, bytes]:
    """Every file of a result but the figures of the run."""
    files = [path for path in output.rglob("*") if path.is_file() and path.name != "_run.json"]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


class Payload:
    """Leaves a mark on disk when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))
