"""Small models with random weights, as folders on disk."""

import json
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast

from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.transformer import Transformer

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_POSITIONS = {"max_position_embeddings": 40}

# Architecture -> its configuration for a vocabulary of n tokens. RoBERTa-like models number positions from the padding
# id: theirs is 1, so that a mistake shows.
_CONFIGS = {
    "bert": lambda n: transformers.BertConfig(vocab_size=n, **_SIZES, **_POSITIONS),
    "roberta": lambda n: transformers.RobertaConfig(vocab_size=n, pad_token_id=1, **_SIZES, **_POSITIONS),
    "xlm-roberta": lambda n: transformers.XLMRobertaConfig(vocab_size=n, pad_token_id=1, **_SIZES, **_POSITIONS),
    "camembert": lambda n: transformers.CamembertConfig(vocab_size=n, pad_token_id=1, **_SIZES, **_POSITIONS),
    "electra": lambda n: transformers.ElectraConfig(vocab_size=n, embedding_size=16, **_SIZES, **_POSITIONS),
    "distilbert": lambda n: transformers.DistilBertConfig(
        vocab_size=n, dim=32, n_layers=2, n_heads=4, hidden_dim=48, **_POSITIONS
    ),
    "mpnet": lambda n: transformers.MPNetConfig(vocab_size=n, pad_token_id=1, **_SIZES, **_POSITIONS),
    "deberta-v2": lambda n: transformers.DebertaV2Config(
        vocab_size=n, relative_attention=True, pos_att_type=["c2p", "p2c"], **_SIZES, **_POSITIONS
    ),
    "t5": lambda n: transformers.T5Config(
        vocab_size=n, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, n_positions=40
    ),
    "mt5": lambda n: transformers.MT5Config(vocab_size=n, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4),
}
ARCHITECTURES = tuple(_CONFIGS)
PACKED = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet")


def make_tokenizer(pad_id: int = 0, lower_case: bool = True) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer over letters and a few words."""
    special = ["[UNK]", "[PAD]"] if pad_id == 1 else ["[PAD]", "[UNK]"]
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?:"
    words = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "man", "is", "playing", "flute"]
    words += ["where", "my", "parcel", "query"]
    pieces = [*special, "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters[:26]), *words]
    tokenizer = Tokenizer(models.WordPiece({piece: row for row, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", cls), ("[SEP]", sep)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=24,
    )


def make_transformer(folder: Path, architecture: str = "bert", lower_case: bool = True, n_layers: int = 2) -> Path:
    """Writes a plain Hugging Face folder with a random model of this architecture."""
    make_config = _CONFIGS[architecture]
    tokenizer = make_tokenizer(make_config(100).pad_token_id or 0, lower_case)
    config = make_config(len(tokenizer))
    config.num_hidden_layers = n_layers
    torch.manual_seed(3)
    model = transformers.AutoModel.from_config(config)
    perturb(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def perturb(module: nn.Module) -> None:
    """Changes every weight: the initial values of a LayerNorm or a bias, 1 and 0, would hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)


NLI = ("contradiction", "Entailment", "neutral")


def make_classifier(folder: Path, labels: tuple[str, ...] = ("LABEL_0",), architecture: str = "bert") -> Path:
    """Writes a Hugging Face folder with a random classifier of pairs."""
    config = transformers.AutoConfig.from_pretrained(make_transformer(folder / "encoder", architecture))
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: position for position, label in enumerate(labels)}
    tokenizer = make_tokenizer(config.pad_token_id or 0)
    backend = tokenizer.backend_tokenizer
    special = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    torch.manual_seed(5)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    for _ in range(4):  # large enough weights that the scores of two pairs differ clearly
        perturb(model)
    model.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    if architecture in ("bert", "distilbert"):  # DistilBERT has no token types: they must not be passed
        names = ["input_ids", "token_type_ids", "attention_mask"]
        edit_json(folder / "hf" / "tokenizer_config.json", lambda config: config.update(model_input_names=names))
    return folder / "hf"


def edit_json(path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def make_parts(folder, architecture="bert", modes=("mean",), heads=(), **options) -> EncoderParts:
    body = Transformer.load(make_transformer(folder, architecture), **options)
    for head in heads:
        perturb(head)
    prompts = {"query": "query: ", "passage": "the dog "}
    return EncoderParts(body, Pooling(body.dim, modes), tuple(heads), prompts, "query")


WORDS = ["the", "quick", "brown", "fox", "a", "lazy", "dog", "man", "is", "playing", "flute", "where", "my", "parcel"]


TEXTS = [" ".join(np.random.default_rng(row).choice(WORDS, 5)) for row in range(60)]
