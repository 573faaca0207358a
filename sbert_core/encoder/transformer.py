"""The body of a Sentence-BERT encoder: a Hugging Face transformer with its tokenizer."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from sbert_core.encoder.tokenization import TextTokenizer, check_vocabulary
from sbert_core.encoder.weights import check_finite, check_fits
from sbert_core.errors import ModelError

# Encoder-decoder models of which only the encoder is used, if not told otherwise (Sentence-T5).
_ENCODER_CLASSES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
_FAMILY = ", ".join(_ENCODER_CLASSES)

# Models that number positions from padding_idx + 1: that many rows of their position table are never used.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet")

_DEFAULT_MAX_TOKENS = 512
# Where tokenizers keep their vocabulary.
_VOCABULARIES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "spm.model"),
    *("sentencepiece.bpe.model", "sentencepiece.model", "vocab.model", "bpe.codes"),
)


class Transformer(nn.Module):
    """A transformer encoder: token ids in, one vector per token out.

    `max_tokens` counts special tokens too. `lower_case` lower-cases before a cased tokenizer. With `decoder` an
    encoder-decoder model gives a single vector: that of the decoder's first token, which has seen the whole text
    (Sentence-T5's third form).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_tokens: int | None = None,
        lower_case: bool = False,
        decoder: bool = False,
    ) -> None:
        super().__init__()
        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} has no fast (Rust) form: convert it to tokenizer.json")
        longest = max_tokens or tokenizer.model_max_length
        limit = _position_limit(model.config)
        if not isinstance(longest, int | float) or not longest >= 1 or limit < 1:
            raise ModelError(f"the longest text is {longest!r} tokens, and {limit} positions: expected 1 or more")
        self.max_tokens: int = int(min(longest, limit))
        self.model = model
        self.tokenizer = tokenizer
        self.lower_case = lower_case
        self.decoder = decoder
        self.text_tokenizer = TextTokenizer(tokenizer.backend_tokenizer, self.max_tokens, lower_case=lower_case)

    @property
    def dim(self) -> int:
        """Length of a token vector."""
        return int(self.model.config.hidden_size)

    @property
    def pad_id(self) -> int:
        """The token id to pad with; what it is does not matter where the mask is 0."""
        return int(self.tokenizer.pad_token_id or 0)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Maps token ids (n, length) and their mask to token vectors (n, length, dim), or (n, 1, dim) of a decoder."""
        first = {}
        if self.decoder:
            start = getattr(self.model.config, "decoder_start_token_id", None)
            first["decoder_input_ids"] = ids.new_full((len(ids), 1), self.pad_id if start is None else start)
        return self.model(input_ids=ids, attention_mask=mask, **first).last_hidden_state

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        max_tokens: int | None = None,
        lower_case: bool = False,
        decoder: bool = False,
        allow_pickle: bool = False,
        allow_code: bool = False,
    ) -> "Transformer":
        """Loads a Hugging Face folder in float32. The folder is expected to have passed `check_folder`."""
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=allow_code)
        if decoder and config.model_type not in _ENCODER_CLASSES:
            raise ModelError(f"{folder} holds a {config.model_type}, which has no decoder: only {_FAMILY} have one")
        name = "AutoModel" if decoder else _ENCODER_CLASSES.get(config.model_type, "AutoModel")
        encoder_class = getattr(transformers, name)
        with quiet():
            if not allow_code:  # whose code says what it builds
                check_fits(folder, config, encoder_class)
            model, info = encoder_class.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=None if allow_pickle else True,
                output_loading_info=True,
                **({"trust_remote_code": True} if allow_code else {}),
            )
        # A pooler is a classification head that sentence vectors do not use; models are often saved without.
        missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
        if missing:
            raise ModelError(
                f"{folder}: the weights lack {len(missing)} tensors of {type(model).__name__}, "
                f"{missing[0]!r} among them: is config.json the one they were saved with?"
            )
        check_finite(folder, model)
        with quiet():
            tokenizer = load_tokenizer(folder, len(model.get_input_embeddings().weight), allow_code)
        return cls(model.eval(), tokenizer, max_tokens, lower_case, decoder)

    def save(self, folder: Path) -> None:
        """Writes weights (safetensors), configuration and tokenizer in Hugging Face's format."""
        self.tokenizer.model_max_length = self.max_tokens
        with quiet():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


def load_tokenizer(folder: Path, rows: int, allow_code: bool = False) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder, for a model with vectors of `rows` tokens."""
    if not any((folder / name).exists() for name in _VOCABULARIES):  # transformers would make up an empty one
        raise ModelError(f"{folder} has no tokenizer.json: it is not a complete model folder")
    path = folder / "tokenizer.json"
    if path.exists():
        Tokenizer.from_file(str(path))  # transformers would pass over a damaged one
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=allow_code)
    if tokenizer.is_fast:
        check_vocabulary(folder, tokenizer.backend_tokenizer, rows)
    return tokenizer


def _position_limit(config: PretrainedConfig) -> int:
    """The longest input the position table allows."""
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if not positions or positions < 0:
        return _DEFAULT_MAX_TOKENS
    if config.model_type in _OFFSET_POSITIONS:
        return int(positions) - int(config.pad_token_id or 0) - 1
    return int(positions)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers' progress bars and load reports: what matters in them is checked and raised."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
