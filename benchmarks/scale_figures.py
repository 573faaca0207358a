"""The figures of large corpora as they stand in the documents: routed search, and all jobs on a million sentences."""

import json
from typing import Any

from benchmarks.measure import RESULTS


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def routed_figures() -> str:
    """Routed against exact search, a line per size."""
    result = _result("routed")
    sizes = [result[name] for name in result if name.startswith("rows-")]
    lines = [
        f"Routed search for the {sizes[0]['k']} nearest rows against exact search, CPU seconds on one core, start-up",
        "aside. The job itself measures the recall of all neighbours, on 1,000 random rows. How probes are chosen was",
        "tuned on 50,000 rows; the other sizes judge it:",
        "",
        "| rows | dimensions | exact | routed | of exact | recall (95 % interval) |",
        "|---|---|---|---|---|---|",
    ]
    for size in sizes:
        lines.append(
            f"| {size['rows']:,} | {size['dim']} | {size['exact']['search_cpu_s']:.1f} "
            f"| {size['routed']['search_cpu_s']:.1f} | {size['search_ratio']:.2f} "
            f"| {_recall(size['routed']['audit'])} |"
        )
    if peers := result.get("peers"):
        told = [
            f"faiss {name} with {next(iter(each))} {next(iter(each.values()))}: {each['recall']:.3f} in "
            f"{each['build_cpu_s'] + each['search_cpu_s']:.1f}"
            for name, each in peers.items()
            if isinstance(each, dict)
        ]
        lines += ["", f"On the {peers['rows']:,} rows above, CPU seconds, one thread: {'; '.join(told)}."]
    return "\n".join(lines)


def million_figures() -> str:
    """All jobs at three sizes: CPU seconds, growth and peak memory."""
    result = _result("million")
    sizes = [result[name] for name in result if name.startswith("rows-")]
    first = sizes[0]
    lines = [
        "| job | " + " | ".join(f"{size['rows']:,} rows: CPU s, peak" for size in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for job in ("embed", "mine", "cluster", "report"):
        cells = [f"{size[job]['cpu_s']:.0f}, {size[job]['peak_mib']:,.0f} MiB" for size in sizes]
        cells[1:] = [
            f"{cell} ({size[job]['cpu_s'] / first[job]['cpu_s']:.1f} x)"
            for cell, size in zip(cells[1:], sizes[1:], strict=True)
        ]
        lines.append(f"| {job} | " + " | ".join(cells) + " |")
    recalls = ", ".join(_recall(size["audit"]) for size in sizes)
    clusters = ", ".join(str(size["clusters"]) for size in sizes)
    lines += ["", f"Recall of all neighbours: {recalls}. Clusters: {clusters}."]
    return "\n".join(lines)


def _recall(audit: dict[str, Any]) -> str:
    low, high = audit["interval_95"]
    return f"{audit['recall']:.3f} ({low:.3f} to {high:.3f})"
