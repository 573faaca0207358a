"""Damaged model folders: loading fails with one line, or gives a model that works, and takes little time and memory."""

import contextlib
import copy
import json
import resource
import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
import transformers

from pipelines.cli import main
from sbert_beam import SentenceEncoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.heads import Dense, LayerNorm, Normalize
from sbert_core.encoder.model_folder import EncoderParts, read_folder
from sbert_core.encoder.static_embedding import StaticEmbedding
from sbert_core.errors import ModelError
from tests.tiny_models import make_tokenizer, make_transformer

pytestmark = pytest.mark.slow

KINDS = ("transformer", "static", "cross-encoder", "plain")


def make_model(folder: Path, kind: str) -> None:
    torch.manual_seed(0)
    if kind == "plain":
        make_transformer(folder, n_layers=1)
        return
    tokenizer = make_tokenizer().backend_tokenizer
    if kind == "static":
        SentenceEncoder(EncoderParts(StaticEmbedding(tokenizer, torch.randn(200, 8)), None)).save(folder)
        return
    plain = make_transformer(folder.with_name("plain model"), n_layers=1)
    if kind == "cross-encoder":
        CrossEncoder.begin(plain, ("no", "yes")).save(folder)
    else:
        parts = read_folder(plain)
        heads = (Dense(32, 16), LayerNorm(16), Normalize())
        prompts = {"query": "query: ", "document": ""}
        SentenceEncoder(EncoderParts(parts.body, parts.pooling, heads, prompts, "query")).save(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    found = {}
    for kind in KINDS:
        found[kind] = tmp_path_factory.mktemp(kind.replace("-", "_")) / "model"
        make_model(found[kind], kind)
    return found


def load(kind: str, folder: Path) -> object:
    return CrossEncoder.load(folder, device="cpu") if kind == "cross-encoder" else SentenceEncoder.load(folder, "cpu")


def outcome(kind: str, folder: Path) -> str:
    """The result of loading: the line of a ModelError, or "" if the model works."""
    try:
        model = load(kind, folder)
    except ModelError as error:
        line = str(error)
        assert "\n" not in line
        assert len(line) < 1000
        return line
    if kind == "cross-encoder":
        assert np.isfinite(model.predict([("the fox", "my dog"), ("a", "")])).all()
    else:
        assert np.isfinite(model.encode(["the fox", "my dog is lazy", ""])).all()
    return ""


def damaged(models, tmp_path, kind) -> Path:
    folder = tmp_path / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(models[kind], folder)
    return folder


# Files that a model works without.
OPTIONAL = ("config_sentence_transformers.json", "sentence_bert_config.json", "tokenizer_config.json", "modules.json")
OPTIONAL += ("special_tokens_map.json",)


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_missing_empty_cut_or_random(models, tmp_path, kind):
    names = sorted(path.relative_to(models[kind]) for path in models[kind].rglob("*") if path.is_file())
    assert len(names) >= 3
    for name in names:
        content = (models[kind] / name).read_bytes()
        flipped = bytearray(content)
        flipped[len(content) // 3] ^= 0xFF
        damage = {
            "missing": None,
            "empty": b"",
            "cut": content[: len(content) // 2],
            "cut at the end": content[:-1],
            "random": np.random.default_rng(0).bytes(500),
            "nested": b"[" * 100_000,
            "flipped": bytes(flipped),
            "a folder": "folder",
        }
        for what, new in damage.items():
            folder = damaged(models, tmp_path, kind)
            (folder / name).unlink()
            if new == "folder":
                (folder / name).mkdir()
            elif new is not None:
                (folder / name).write_bytes(new)
            error = outcome(kind, folder)
            is_harmless = name.name in OPTIONAL or (what == "cut at the end" and name.suffix == ".json")
            assert error or is_harmless or what == "flipped", (name, what)


VALUES = [None, "text", -1, 0, 1.5, 10**7, 10**12, 10**400, float("nan"), True, [1], {"a": 1}]


def places(content, path=()):
    """The path of every value of a JSON document; of lists the first two."""
    yield path
    inner = (
        content.items() if isinstance(content, dict) else enumerate(content[:2]) if isinstance(content, list) else ()
    )
    for name, value in inner:
        yield from places(value, (*path, name))


def with_value(content, path, value):
    if not path:
        return value
    changed = copy.deepcopy(content)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("kind", ["transformer", "static", "cross-encoder"])
def test_every_key_with_an_unusual_value(models, tmp_path, kind):
    folder = damaged(models, tmp_path, kind)
    skipped = {"tokenizer.json"}  # has a test of its own
    if kind == "cross-encoder":  # read like those of a transformer
        skipped |= {"tokenizer_config.json", "special_tokens_map.json"}
    files = [path for path in sorted(folder.rglob("*.json")) if path.name not in skipped]
    refused = 0
    for file in files:
        text = file.read_text()
        content = json.loads(text)
        for number, path in enumerate(places(content)):
            # Two values for each key, other ones for the next key and for a cross-encoder: all of them take minutes.
            first = 2 * number + (6 if kind == "cross-encoder" else 0)
            for value in (VALUES[first % len(VALUES)], VALUES[(first + 1) % len(VALUES)]):
                file.write_text(json.dumps(with_value(content, path, value)))
                refused += bool(outcome(kind, folder))
            if path and kind != "cross-encoder":
                missing = with_value(content, path, None)
                inner = missing
                for name in path[:-1]:
                    inner = inner[name]
                del inner[path[-1]]
                file.write_text(json.dumps(missing))
                outcome(kind, folder)
        file.write_text(text)
    assert refused > 10
    assert outcome(kind, folder) == ""


@pytest.mark.parametrize("kind", ["static", "transformer"])
def test_every_part_of_a_tokenizer(models, tmp_path, kind):
    folder = damaged(models, tmp_path, kind)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    for number, path in enumerate(places({**content, "model": {**content["model"], "vocab": {"[PAD]": 0}}})):
        for value in (None, []) if kind == "static" else ((None, [])[number % 2],):
            try:
                file.write_text(json.dumps(with_value(content, path, value)))
            except (KeyError, IndexError, TypeError):
                continue
            outcome(kind, folder)
    file.write_text(json.dumps(with_value(content, ("model", "vocab"), {})))
    assert outcome(kind, folder)
    large = {**content["model"]["vocab"], **{f"word{row}": 1000 + row for row in range(500)}}
    file.write_text(json.dumps(with_value(content, ("model", "vocab"), large)))
    assert "they do not belong together" in outcome(kind, folder)


def write_header(path: Path, header: object, body: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("kind", KINDS)
def test_headers_of_weights(models, tmp_path, kind):
    folder = damaged(models, tmp_path, kind)
    for path in sorted(folder.rglob("*.safetensors")):
        original = path.read_bytes()
        size = struct.unpack("<Q", original[:8])[0]
        header, body = json.loads(original[8 : 8 + size]), original[8 + size :]
        name = next(name for name in header if name != "__metadata__")
        bad = [
            {},
            [],
            {**header, name: None},
            {**header, name: {**header[name], "shape": [10**12, 10**6]}},
            {**header, name: {**header[name], "shape": [-1]}},
            {**header, name: {**header[name], "shape": []}},
            {**header, name: {**header[name], "dtype": "X9"}},
            {**header, name: {**header[name], "data_offsets": [0, 10**15]}},
            {other: value for other, value in header.items() if other != name},
            b"{",
        ]
        for header_ in bad:
            write_header(path, header_, body)
            assert outcome(kind, folder), header_
        for length in (0, 1, 2**63, 2**64 - 1, size - 1, size + 1):
            path.write_bytes(struct.pack("<Q", length) + original[8:])
            assert outcome(kind, folder), length
        for place in range(8, min(8 + size, 400), 17):
            flipped = bytearray(original)
            flipped[place] ^= 0x15
            path.write_bytes(flipped)
            outcome(kind, folder)
        path.write_bytes(original)
    assert outcome(kind, folder) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_another_shape_kind_or_name(models, tmp_path, kind):
    folder = damaged(models, tmp_path, kind)
    for path in sorted(folder.rglob("*.safetensors")):
        tensors = safetensors.torch.load_file(path)
        for name, tensor in list(tensors.items())[:: 1 if len(tensors) < 9 else 5]:
            if "pooler" in name and kind != "cross-encoder":
                continue
            others = {
                "longer": torch.cat([tensor, tensor]) if kind != "static" else tensor[:3],
                "flat": tensor.flatten()[:-1],
                "empty": tensor[:0],
                "whole numbers": tensor.to(torch.int32) if kind != "static" else tensor.to(torch.bool),
                "not numbers": torch.full_like(tensor, float("nan")),
            }
            for what, other in others.items():
                safetensors.torch.save_file({**tensors, name: other.contiguous()}, path, {"format": "pt"})
                assert outcome(kind, folder), (name, what)
            renamed = {("x" + key if key == name else key): value for key, value in tensors.items()}
            safetensors.torch.save_file(renamed, path, {"format": "pt"})
            assert outcome(kind, folder), name
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
    assert outcome(kind, folder) == ""


@pytest.mark.parametrize("shape", [(200, 0), (0, 8), (0, 0), (8,), (2, 100, 8)])
def test_a_static_table_of_the_wrong_shape(models, tmp_path, shape):
    folder = damaged(models, tmp_path, "static")
    safetensors.torch.save_file({"embedding.weight": torch.zeros(shape)}, folder / "model.safetensors")
    assert f"'embedding.weight' is F32 {shape}, expected floats (vocabulary, dim)" in outcome("static", folder)


MAPPED = {
    "beyond": ({"mapping": torch.full((200,), 9)}, "'mapping' must have a row"),
    "negative": ({"mapping": torch.full((200,), -1)}, "'mapping' must have a row"),
    "empty": ({"mapping": torch.zeros(0, dtype=torch.long)}, "'mapping' must have a row"),
    "weights": ({"weights": torch.ones(3)}, "'weights' is (3,), expected (9,)"),
}


@pytest.mark.parametrize(("tensors", "message"), MAPPED.values(), ids=MAPPED)
def test_tables_of_model2vec(models, tmp_path, tensors, message):
    folder = damaged(models, tmp_path, "static")
    safetensors.torch.save_file({"embeddings": torch.randn(9, 8), **tensors}, folder / "model.safetensors")
    assert message in outcome("static", folder)


def change_config(folder: Path, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


HUGE = [
    *({"num_hidden_layers": 10**7}, {"num_hidden_layers": 10**12}, {"num_hidden_layers": 90}),
    *({"hidden_size": 10**6}, {"hidden_size": 4 * 10**9}, {"vocab_size": 10**9}, {"intermediate_size": 10**9}),
    *({"max_position_embeddings": 10**9}, {"type_vocab_size": 10**8}, {"num_attention_heads": 10**7}),
]


@pytest.mark.parametrize("kind", ["transformer", "cross-encoder", "plain"])
def test_a_model_that_is_larger_than_its_weights_is_refused_before_it_is_built(models, tmp_path, kind, monkeypatch):
    built = []
    monkeypatch.setattr(
        transformers.PreTrainedModel, "from_pretrained", lambda *_, **__: built.append(1) or pytest.fail("it is built")
    )
    for values in HUGE:
        folder = damaged(models, tmp_path, kind)
        change_config(folder, **values)
        assert outcome(kind, folder), values
    assert not built


@contextlib.contextmanager
def memory_growth() -> Iterator[list[int]]:
    """Samples the memory of this process; the list holds the growth in bytes at each sample."""
    page, grown, is_done = resource.getpagesize(), [], threading.Event()

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before = resident_bytes()

    def sample() -> None:
        while not is_done.wait(0.01):
            grown.append(resident_bytes() - before)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield grown
    finally:
        is_done.set()
        sampler.join()


def embed(folder: Path, tmp_path: Path) -> int:
    pq.write_table(pa.table({"id": ["a"], "text": ["the fox"]}), tmp_path / "in.parquet")
    flags = ["--model", str(folder), "--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out")]
    return main(["embed", *flags])


def one_error_line(capsys) -> str:
    stderr = capsys.readouterr().err
    assert "Traceback" not in stderr
    (line,) = [line for line in stderr.splitlines() if line.startswith("sbert-beam embed: ")]
    return line


def test_embed_refuses_ten_million_layers_with_little_memory(models, tmp_path, capsys):
    folder = damaged(models, tmp_path, "transformer")
    change_config(folder, num_hidden_layers=10**7)
    with memory_growth() as grown:
        assert embed(folder, tmp_path) == 2
    assert "num_hidden_layers is 10,000,000" in one_error_line(capsys)
    assert max(grown, default=0) < 500_000_000
    assert not (tmp_path / "out" / "embeddings").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "modules.json"])
def test_embed_reports_a_damaged_folder_in_one_line(models, tmp_path, capsys, name):
    folder = damaged(models, tmp_path, "transformer")
    (folder / name).write_bytes(b"\x07damaged")
    assert embed(folder, tmp_path) == 2
    assert one_error_line(capsys)
