"""The body of a Sentence-BERT encoder: a Hugging Face transformer with its tokenizer."""

from pathlib import Path

import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from sbert_core.encoder.pretrained import (
    load_config,
    load_tokenizer,
    load_weights,
    refuse_missing,
    silence_transformers,
)
from sbert_core.encoder.tokenization import TextTokenizer
from sbert_core.errors import ModelError

# Encoder-decoder models of which only the encoder is used by default (Sentence-T5).
_ENCODER_CLASSES = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}

# Models that number positions from padding_idx + 1: that many rows of their position table are never used.
_OFFSET_POSITION_TYPES = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet")

_DEFAULT_MAX_TOKENS = 512


class Transformer(nn.Module):
    """A transformer encoder: token ids in, one vector per token out.

    `max_tokens` includes special tokens. `lower_case` converts to lower case before a cased tokenizer. With `decoder`
    an encoder-decoder model gives a single vector: that of the decoder's first token, which attends to all tokens of
    the text (Sentence-T5's third variant).
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
            raise ModelError(f"{type(tokenizer).__name__} has no fast (Rust) version: convert it to tokenizer.json")
        requested = max_tokens or tokenizer.model_max_length
        limit = _position_limit(model.config)
        if not isinstance(requested, int | float) or not requested >= 1 or limit < 1:
            raise ModelError(
                f"the maximum length of a text is {requested!r} tokens, with {limit} positions: expected 1 or more"
            )
        self.max_tokens: int = int(min(requested, limit))
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
        """The token id to pad with; its value has no effect where the mask is 0."""
        return int(self.tokenizer.pad_token_id or 0)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Maps token ids (n, length) and their mask to token vectors (n, length, dim), or (n, 1, dim) of a decoder."""
        decoder_inputs = {}
        if self.decoder:
            start_id = getattr(self.model.config, "decoder_start_token_id", None)
            first_token = ids.new_full((len(ids), 1), self.pad_id if start_id is None else start_id)
            decoder_inputs["decoder_input_ids"] = first_token
        return self.model(input_ids=ids, attention_mask=mask, **decoder_inputs).last_hidden_state

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
        config = load_config(folder, allow_code)
        if decoder and config.model_type not in _ENCODER_CLASSES:
            supported = ", ".join(_ENCODER_CLASSES)
            raise ModelError(f"{folder} holds a {config.model_type}, which has no decoder: only {supported} have one")
        class_name = "AutoModel" if decoder else _ENCODER_CLASSES.get(config.model_type, "AutoModel")
        model, missing = load_weights(
            folder, getattr(transformers, class_name), config, allow_pickle=allow_pickle, allow_code=allow_code
        )
        # Sentence vectors do not use the pooler, a part of the classification head: many models are saved without it.
        needed = (name for name in missing if not name.startswith("pooler."))
        refuse_missing(folder, model, needed, "is config.json the one they were saved with?")
        tokenizer = load_tokenizer(folder, len(model.get_input_embeddings().weight), allow_code)
        return cls(model.eval(), tokenizer, max_tokens, lower_case, decoder)

    def save(self, folder: Path) -> None:
        """Writes weights (safetensors), configuration and tokenizer in Hugging Face's format."""
        self.tokenizer.model_max_length = self.max_tokens
        with silence_transformers():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


def _position_limit(config: PretrainedConfig) -> int:
    """Returns the maximum number of tokens that the position table allows."""
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if not positions or positions < 0:
        return _DEFAULT_MAX_TOKENS
    if config.model_type in _OFFSET_POSITION_TYPES:
        return int(positions) - int(config.pad_token_id or 0) - 1
    return int(positions)
