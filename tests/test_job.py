"""The skeleton of jobs: the order of steps, and what all jobs have in common."""

import dataclasses
import functools
import json

import apache_beam as beam
import pytest

from pipelines import search, verify
from pipelines.flags import JobOptions, flag
from pipelines.job import Job, PipelineJob
from pipelines.search_options import SearchOptions
from pipelines.verify_options import VerifyOptions
from sbert_core.errors import DataError, JobError
from tests.corpora import make_table, run_fake, write_shards
from tests.fake_encoder import FakeEncoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteOptions(JobOptions):
    output: str = flag("a folder")


class WriteJob(PipelineJob[WriteOptions]):
    """Records which steps are called."""

    name = "write"

    def __init__(self, options, beam_flags=(), *, is_done=False, fails=False):
        folder = options.output
        super().__init__(
            options, beam_flags, output=folder, workers=1, record_folder=folder, work_folder=f"{folder}/_w"
        )
        self.steps, self._is_done, self._fails = [], is_done, fails

    def prepare(self):
        self.steps.append("prepare")

    def is_done(self):
        self.steps.append("is_done")
        return self._is_done

    def needed_bytes(self):
        self.steps.append("needed_bytes")
        return 10

    def check(self):
        self.steps.append("check")

    def build(self, root):
        self.steps.append("build")
        _ = root | beam.Create([1]) | beam.Map(lambda row: row / 0 if self._fails else row)

    def advice(self):
        return ". Try again"

    def figures(self, counters):
        self.steps.append("figures")
        return {"kept": self.is_kept}

    def results(self):
        return {"out/": self.output}


def test_the_order_of_steps(tmp_path):
    job = WriteJob(WriteOptions(output=str(tmp_path)))
    summary = job.run()
    assert job.steps == ["prepare", "is_done", "needed_bytes", "check", "build", "figures"]
    assert list(summary) == ["kept", "seconds", "out/"]
    record = json.loads((tmp_path / "_run.json").read_text())
    assert record == {"kept": False, "seconds": record["seconds"], "counters": {}}
    assert [path.name for path in tmp_path.iterdir()] == ["_run.json"]  # the lock is gone


def test_results_that_are_kept_need_no_pipeline(tmp_path):
    job = WriteJob(WriteOptions(output=str(tmp_path)), is_done=True)
    assert job.run()["kept"]
    assert job.steps == ["prepare", "is_done", "figures"]
    assert not list(tmp_path.iterdir())


def test_submit_runs_the_pipeline_even_if_results_could_be_kept(tmp_path):
    job = WriteJob(WriteOptions(output=str(tmp_path)), is_done=True)
    job.submit().wait_until_finish()
    assert job.steps == ["prepare", "needed_bytes", "check", "build"]


def test_a_failure_has_advice_and_no_record(tmp_path):
    with pytest.raises(JobError, match=r"ZeroDivisionError: division by zero\. Try again"):
        WriteJob(WriteOptions(output=str(tmp_path)), fails=True).run()
    assert not list(tmp_path.iterdir())


def test_an_engine_that_cannot_be_used_fails_first(tmp_path):
    job = WriteJob(WriteOptions(output=str(tmp_path / "out")), ["--runner=NoRunner"])
    with pytest.raises(DataError, match="Unexpected pipeline runner"):
        job.run()
    assert job.steps == []
    assert not (tmp_path / "out").exists()


class PlainJob(Job[WriteOptions]):
    name = "plain"

    def check(self):
        raise DataError("wrong")

    def work(self):
        raise AssertionError("checks come first")


def test_a_job_without_a_pipeline(tmp_path):
    options = WriteOptions(output=str(tmp_path))
    with pytest.raises(DataError, match="wrong"):
        PlainJob(options).run()
    with pytest.raises(DataError, match="plain runs no pipeline: --streaming has no effect here"):
        PlainJob(options, ["--streaming"])
    with pytest.raises(DataError, match="verify runs no pipeline: --runner=x has no effect here"):
        verify.run(VerifyOptions(output=str(tmp_path)), ["--runner=x"])


@pytest.mark.slow
def test_search_loads_its_model_once(tmp_path, monkeypatch, capsys):
    run_fake(write_shards(tmp_path / "in", make_table(20), 1), tmp_path / "out")
    loads = []

    def load(model, **options) -> FakeEncoder:
        loads.append(model)
        return FakeEncoder()

    monkeypatch.setattr(search, "make_encode", functools.partial(search.make_encode, load=load))
    options = {"corpus": str(tmp_path / "out" / "embeddings"), "model": "fake", "output": str(tmp_path / "found")}
    assert search.run(SearchOptions(queries="sentence number 7", **options))["rows searched"] == 20
    assert len(capsys.readouterr().out.splitlines()) == 10
    (tmp_path / "queries.txt").write_text("sentence number 7\n")
    assert search.run(SearchOptions(queries=str(tmp_path / "queries.txt"), **options))["found"] == 10
    assert loads == ["fake", "fake"]
