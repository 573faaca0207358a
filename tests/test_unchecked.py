"""The benchmark of the checks measures all of them: none is left on where it runs without."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.unchecked import CHECKS, Clocks, clocked_checks, compare, without_checks
from pipelines import mine
from pipelines.mine_options import MineOptions
from sbert_core.data.dataset_reader import DatasetReader
from sbert_core.errors import DataError
from sbert_core.process_cache import clear_process_caches
from tests.corpora import make_table, run_fake, write_shards
from tests.damage import flip_bit
from transforms.dataset import published as dataset
from transforms.dataset.published import read_dataset

pytestmark = pytest.mark.slow


@pytest.fixture
def embeddings(tmp_path):
    run_fake(write_shards(tmp_path / "in", make_table(60), 2), tmp_path / "out")
    clear_process_caches()
    return tmp_path / "out/embeddings"


def test_every_check_of_the_reader_is_patched():
    assert set(CHECKS) == {name for name in vars(DatasetReader) if name.startswith(("check_", "has_"))}


def test_damage_is_not_noticed_without_checks(embeddings):
    path = next(embeddings.glob("*.parquet"))
    flip_bit(path, path.read_bytes().index(b"\x00\x00\x80\x3f") + 2)  # a value of a vector
    with pytest.raises(DataError, match="has changed since it was written"):
        read_dataset(str(embeddings))
    with without_checks():
        assert len(read_dataset(str(embeddings))) == 60
        assert dataset.is_current(str(embeddings), str(dataset.read_manifest(str(embeddings)).source))
    with pytest.raises(DataError, match="has changed since it was written"):
        read_dataset(str(embeddings))


def test_pages_have_no_checksums_without_checks(tmp_path):
    table = pa.table({"value": list(range(1000))})
    pq.write_table(table, tmp_path / "with.parquet", write_page_checksum=True)
    with without_checks():
        pq.write_table(table, tmp_path / "without.parquet", write_page_checksum=True)
    assert (tmp_path / "without.parquet").stat().st_size < (tmp_path / "with.parquet").stat().st_size


def test_clocks_see_the_checks_of_a_job(embeddings, tmp_path):
    with clocked_checks() as clocks:
        mine.run(MineOptions(input=str(embeddings), output=str(tmp_path / "mined")))
    assert min(clocks.checks, clocks.reading, clocks.writing) > 0
    assert len(list((tmp_path / "mined/neighbors").glob("*.parquet"))) == 1


def test_no_clock_runs_within_another():
    """`check_content` calls `has_content`: the time of one is not counted as that of both."""
    clocks = Clocks()
    inner = clocks.clocked(lambda: sum(range(200_000)), "reading")
    clocks.clocked(inner, "checks")()
    assert clocks.checks > 0
    assert clocks.reading == 0


def test_compare_prepares_every_run():
    runs = []

    def work(name: str) -> None:
        runs.append(name)
        sum(range(200_000))  # takes CPU time that a clock can see

    found = compare(lambda: work("run"), 3, lambda: runs.append("prepare"), lambda: work("unchecked"))
    assert runs[::2] == ["prepare"] * 10
    assert (runs.count("run"), runs.count("unchecked"), found["rounds"]) == (7, 3, 3)
