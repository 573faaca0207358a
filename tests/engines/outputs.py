"""What jobs have written, in a form that can be compared."""

import json
import re
from pathlib import Path


def contents(folder: Path, counters: bool = True) -> dict[str, bytes]:
    """All files below a folder, but for how long things took, and perhaps what was counted."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): timeless(path.name, path.read_bytes(), counters) for path in paths}


def timeless(name: str, content: bytes, counters: bool = True) -> bytes:
    """The same for the content of one file, whose path ends with `name`."""
    if name.endswith("_run.json"):
        figures = json.loads(content)
        figures.pop("seconds", None)
        figures["counters"].pop("encode/batch_latency_ms", None)
        if not counters:
            del figures["counters"]
            figures.pop("parts kept", None)
        return json.dumps(figures, sort_keys=True).encode()
    if name.endswith("report.html"):
        return re.sub(rb"(<dt>seconds to embed</dt><dd>)[\d.]+", rb"\1", content)
    return content
