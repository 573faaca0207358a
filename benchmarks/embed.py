"""What the embed job costs on top of encoding, against Beam's own ways to embed, and how its memory grows.

    python -m benchmarks.embed --data DATA

DATA holds english_sentences/english_1m.parquet (text). Takes about ten minutes.
"""

import argparse
import json
import logging
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from apache_beam.ml.inference.base import RunInference
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.ml.transforms.embeddings.huggingface import SentenceTransformerEmbeddings

from benchmarks.free_encoder import FreeEncoder
from benchmarks.measure import machine, measure_sections, memory_mib, race
from pipelines import embed
from pipelines.embed_options import EmbedOptions
from sbert_core.encoder.model_source import find_model
from transforms.dataset.read_tasks import plan_tasks, read_task, share_rows
from transforms.dataset.slices import inspect_files, read_slice, split_file

READ_ROWS, READ_TASKS = 500_000, 8
JOB_ROWS, PEER_ROWS, SHARD_ROWS = 20_000, 3_000, 5_000
MEMORY_ROWS = (10_000, 40_000, 160_000)


def write_corpus(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(parents=True)
    for start in range(0, len(texts), SHARD_ROWS):
        part = texts[start : start + SHARD_ROWS]
        table = pa.table({"id": [f"r{start + row}" for row in range(len(part))], "text": part})
        pq.write_table(table, folder / f"part-{start:07}.parquet")
    return folder


def options_for(corpus: Path, output: Path) -> EmbedOptions:
    shutil.rmtree(output, ignore_errors=True)
    return EmbedOptions(input=[str(corpus)], output=str(output))


def compare_bare(corpus: Path, scratch: Path) -> dict[str, Any]:
    """The whole job against a plain loop that reads the same slices and encodes them; the model is loaded before."""
    step = embed.make_encode(options_for(corpus, scratch / "out"))
    encoder = step.acquire()

    def bare() -> None:
        for file in inspect_files([str(corpus)]):
            for task in split_file(file):
                encoder.encode(read_slice(task)["text"].to_pylist())

    times = race({"bare": bare, "job": lambda: embed.run(options_for(corpus, scratch / "out"), encode=step)}, 3)
    return {"rows": JOB_ROWS, **times, "wall_ratio": times["job"]["wall_s"] / times["bare"]["wall_s"]}


def compare_peers(corpus: Path, scratch: Path) -> dict[str, Any]:
    """Beam's MLTransform and RunInference with sentence-transformers, from the same Parquet to Parquet."""
    model = str(find_model("default"))
    vectors = pa.schema([("id", pa.string()), ("text", pa.list_(pa.float32()))])

    def embeddings() -> SentenceTransformerEmbeddings:
        return SentenceTransformerEmbeddings(model_name=model, columns=["text"], load_model_args={"device": "cpu"})

    def fresh(name: str) -> str:
        shutil.rmtree(scratch / name, ignore_errors=True)
        (scratch / name).mkdir()
        return str(scratch / name)

    def ml_transform() -> None:
        with beam.Pipeline("FnApiRunner") as root:
            rows = root | beam.io.ReadFromParquet(f"{corpus}/*.parquet")
            embedded = rows | MLTransform(write_artifact_location=fresh("artifacts")).with_transform(embeddings())
            _ = embedded | beam.io.WriteToParquet(fresh("ml") + "/part", vectors)

    def run_inference() -> None:
        with beam.Pipeline("FnApiRunner") as root:
            rows = root | beam.io.ReadFromParquet(f"{corpus}/*.parquet")
            found = rows | beam.Map(lambda row: row["text"]) | RunInference(embeddings().get_model_handler())
            rows = found | beam.Map(lambda vector: {"id": "", "text": vector.tolist()})
            _ = rows | beam.io.WriteToParquet(fresh("inference") + "/part", vectors)

    def ours() -> None:
        embed.run(options_for(corpus, scratch / "ours"))

    times = race({"sbert-beam": ours, "MLTransform": ml_transform, "RunInference": run_inference}, 3)
    ratios = {name: times[name]["wall_s"] / times["sbert-beam"]["wall_s"] for name in ("MLTransform", "RunInference")}
    return {"rows": PEER_ROWS, "start_up": "included", **times, "wall_ratio": ratios}


def measure_once(rows: int) -> dict[str, float]:
    """One job of this size with an encoder that costs nothing, in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        texts = [f"sentence number {row} is about something or other" for row in range(rows)]
        options = options_for(write_corpus(Path(scratch) / "in", texts), Path(scratch) / "out")
        step = embed.make_encode(options, load=FreeEncoder.load)
        cpu, wall = time.process_time(), time.perf_counter()
        embed.run(options, encode=step)
        return {
            "rows": rows,
            "cpu_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - wall,
            "peak_mib": memory_mib("VmHWM"),
        }


def measure_growth() -> dict[str, Any]:
    """Memory and speed of the job itself, at three sizes."""
    runs: dict[int, list[dict[str, float]]] = {rows: [] for rows in MEMORY_ROWS}
    for _ in range(5):
        for rows in MEMORY_ROWS:
            command = [sys.executable, "-m", "benchmarks.embed", "--once", str(rows)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs[rows].append(json.loads(done.stdout))
            print(runs[rows][-1])
    sizes = [{key: statistics.median(run[key] for run in runs[rows]) for key in runs[rows][0]} for rows in MEMORY_ROWS]
    small, large = sizes[0], sizes[-1]
    added = large["rows"] - small["rows"]
    return {
        "sizes": sizes,
        "rows_per_cpu_s": added / (large["cpu_s"] - small["cpu_s"]),
        "rows_per_wall_s": added / (large["wall_s"] - small["wall_s"]),
    }


def write_formats(folder: Path, texts: list[str]) -> list[Path]:
    """The same rows in four formats, the Parquet file with one row group."""
    folder.mkdir()
    table = pa.table({"id": [f"r{row}" for row in range(len(texts))], "text": texts})
    paths = [folder / f"rows.{suffix}" for suffix in ("parquet", "csv", "jsonl", "txt")]
    pq.write_table(table, paths[0], row_group_size=len(table))
    pa.csv.write_csv(table, paths[1])
    paths[2].write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()), encoding="utf-8")
    paths[3].write_text("".join(f"{' '.join(text.split())}\n" for text in texts), encoding="utf-8")
    return paths


def read_plainly(path: Path) -> None:
    """One pass by Arrow alone; lines of text are a CSV file of one column."""
    match path.suffix:
        case ".parquet":
            batches = pq.ParquetFile(path).iter_batches(8192)
        case ".jsonl":
            batches = pa.json.open_json(path, pa.json.ReadOptions(block_size=1 << 22))
        case suffix:
            parse = pa.csv.ParseOptions(newlines_in_values=suffix == ".csv")
            names = None
            if suffix == ".txt":
                parse, names = pa.csv.ParseOptions(delimiter="\x01", quote_char=False), ["text"]
            batches = pa.csv.open_csv(path, pa.csv.ReadOptions(column_names=names), parse)
    for _ in batches:
        pass


def measure_reading(scratch: Path, texts: list[str]) -> dict[str, Any]:
    """CPU time of inspecting a file and reading its slices, against one plain pass by Arrow.

    `tasks_1` is one worker, `tasks_8` eight workers that share the one row group; `slices` reads each slice on its own.
    """

    def read(path: Path, min_tasks: int) -> None:
        files = inspect_files([str(path)])
        for task in plan_tasks(files[0].for_workers(), 8192, share_rows(files, min_tasks)):
            for _ in read_task(task):
                pass

    def read_each(path: Path) -> None:
        for task in split_file(inspect_files([str(path)])[0]):
            read_slice(task)

    result: dict[str, Any] = {"rows": len(texts)}
    for path in write_formats(scratch / "formats", texts):
        contestants = {
            "arrow": lambda path=path: read_plainly(path),
            "inspection": lambda path=path: inspect_files([str(path)]),
            "tasks_1": lambda path=path: read(path, 1),
            f"tasks_{READ_TASKS}": lambda path=path: read(path, READ_TASKS),
            "slices": lambda path=path: read_each(path),
        }
        times = race(contestants, 5)
        ratios = {name: times[name]["cpu_s"] / times["arrow"]["cpu_s"] for name in times if name != "arrow"}
        result[path.suffix.removeprefix(".")] = {**times, "cpu_ratio": ratios}
    return result


def main() -> None:
    """Measures everything and stores benchmarks/results/embed.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets; see benchmarks/README.md")
    parser.add_argument("--once", type=int, help="only run one job of this many rows, and print what it took")
    parser.add_argument("--only", help="measure only this section of the stored result")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    if arguments.once:
        print(json.dumps(measure_once(arguments.once)))
        return
    if arguments.data is None or not arguments.data.is_dir():
        sys.exit("give the folder of data sets with --data DIR (make bench DATA=DIR); see benchmarks/README.md")
    path = arguments.data / "english_sentences/english_1m.parquet"
    column = pq.read_table(path, columns=["text"])["text"]
    texts = column.take(pa.array(range(0, 1_000_000, 50))).to_pylist()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        sections = {
            "machine": lambda: machine("apache-beam", "torch", "sentence-transformers", "pyarrow"),
            "growth": measure_growth,
            "reading": lambda: measure_reading(scratch, column.slice(0, READ_ROWS).to_pylist()),
            "job": lambda: compare_bare(write_corpus(scratch / "corpus", texts[:JOB_ROWS]), scratch),
            "peers": lambda: compare_peers(write_corpus(scratch / "small", texts[:PEER_ROWS]), scratch),
        }
        measure_sections("embed", sections, arguments.only)


if __name__ == "__main__":
    main()
