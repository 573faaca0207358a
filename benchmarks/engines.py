"""Writes the table of what is proven on which engine into the operating guide, from a record of the tests.

The record is made with `ENGINES_RECORD=benchmarks/results/engines.json python -m pytest -m engines`. The requests of
jobs to an object store, which are beside it, become a second table.
"""

import json
import re
import sys
from pathlib import Path

from benchmarks.measure import RESULTS
from tests.engines.catalog import ENGINES, JOBS
from tests.engines.object_stores import KINDS, STORES

GUIDE = Path(__file__).parents[1] / "docs" / "operating.md"


def _section(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: [^\n]* -->\n).*(<!-- end of {name} -->)", re.DOTALL)


def table(record: dict[str, dict[str, dict]]) -> str:
    """A row for each engine and a column for each job: when it last passed, or why it has not."""
    lines = [f"| engine | {' | '.join(JOBS)} |", "|---" * (len(JOBS) + 1) + "|"]
    for engine in (*ENGINES, *STORES):
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
    return _replace(text, "engines", table(record))


def render_requests(text: str, counts: dict[str, dict[str, dict[str, dict[str, int]]]]) -> str:
    """The guide with the requests of each job, by the number of blocks."""
    lines = [f"| job | blocks | {' | '.join(KINDS)} |", "|---" * (len(KINDS) + 2) + "|"]
    for jobs in counts.values():
        for job, sizes in jobs.items():
            lines += [
                f"| {job} | {blocks} | {' | '.join(str(kinds[kind]) for kind in KINDS)} |"
                for blocks, kinds in sizes.items()
            ]
    return _replace(text, "requests", "\n".join(lines))


def _replace(text: str, name: str, new: str) -> str:
    if not _section(name).search(text):
        raise SystemExit(
            f"{GUIDE.name} has no place for the table: put the lines '<!-- {name}: made by "
            f"benchmarks/engines.py -->' and '<!-- end of {name} -->' where it is to go"
        )
    return _section(name).sub(lambda match: f"{match[1]}\n{new}\n\n{match[2]}", text)


if __name__ == "__main__":
    if not GUIDE.exists():
        sys.exit(f"there is no {GUIDE.name} in {GUIDE.parent.name}/ to write the table into")
    known, requests = (json.loads((RESULTS / f"{each}.json").read_text()) for each in ("engines", "requests"))
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(render_requests(render(text, known), requests), encoding="utf-8")
