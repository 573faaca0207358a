"""Writes the table of what is proven on which engine into the operating guide, from a record of the tests.

The record is made with `ENGINES_RECORD=benchmarks/results/engines.json python -m pytest -m engines`.
"""

import json
import re
import sys
from pathlib import Path

from benchmarks.measure import RESULTS
from tests.engines.catalog import ENGINES, JOBS

GUIDE = Path(__file__).parents[1] / "docs" / "operating.md"
SECTION = re.compile(r"(<!-- engines: [^\n]* -->\n).*(<!-- end of engines -->)", re.DOTALL)


def table(record: dict[str, dict[str, dict]]) -> str:
    """A row for each engine and a column for each job: when it last passed, or why it has not."""
    lines = [f"| engine | {' | '.join(JOBS)} |", "|---" * (len(JOBS) + 1) + "|"]
    for engine in ENGINES:
        outcomes = record.get(engine, {})
        lines.append(f"| {engine} | {' | '.join(_cell(outcomes.get(job)) for job in JOBS)} |")
    return "\n".join([*lines, "", *_versions(record)])


def _cell(entry: dict | None) -> str:
    if entry is None:
        return "not tried"
    return entry["date"] if entry["outcome"] == "passed" else f"{entry['outcome']}: {entry['reason']}"


def _versions(record: dict[str, dict[str, dict]]) -> list[str]:
    """The versions of each date on which something passed."""
    found = {
        (entry["date"], *entry["versions"].items())
        for outcomes in record.values()
        for entry in outcomes.values()
        if entry["outcome"] == "passed"
    }
    return [
        f"Passed on {date} with {', '.join(f'{name} {number}' for name, number in versions)}."
        for date, *versions in sorted(found)
    ]


def render(text: str, record: dict[str, dict[str, dict]]) -> str:
    """The guide with the table as the record has it."""
    if not SECTION.search(text):
        raise SystemExit(
            f"{GUIDE.name} has no place for the table: put the lines '<!-- engines: made by "
            "benchmarks/engines.py -->' and '<!-- end of engines -->' where it is to go"
        )
    return SECTION.sub(lambda match: f"{match[1]}\n{table(record)}\n\n{match[2]}", text)


if __name__ == "__main__":
    if not GUIDE.exists():
        sys.exit(f"there is no {GUIDE.name} in {GUIDE.parent.name}/ to write the table into")
    known = json.loads((RESULTS / "engines.json").read_text(encoding="utf-8"))
    GUIDE.write_text(render(GUIDE.read_text(encoding="utf-8"), known), encoding="utf-8")
