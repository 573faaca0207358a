"""Identifies what an encoder computes: encoders with the same fingerprint give the same vectors."""

import hashlib
import json
from typing import Any

import torch

from sbert_core.encoder.model_folder import EncoderParts
from sbert_core.encoder.transformer import Transformer

# Keys of a Hugging Face configuration that do not affect what a model computes.
_IGNORED_CONFIG_KEYS = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache")


def fingerprint(parts: EncoderParts, **options: Any) -> str:
    """Hashes weights, tokenizer, modules, prompts and `options` to 64 hexadecimal digits.

    It does not depend on where or in which file format the model is stored.
    """
    digest = hashlib.sha256()
    description = {
        "body": _describe_body(parts),
        "pooling": [parts.pooling.modes, parts.pooling.include_prompt] if parts.pooling else None,
        "heads": [repr(head) for head in parts.heads],
        "prompts": parts.prompts,
        "default_prompt_name": parts.default_prompt_name,
        "options": options,
    }
    digest.update(json.dumps(description, sort_keys=True, default=str).encode())
    for module in (parts.body, *parts.heads):
        for name, tensor in sorted(module.state_dict().items()):
            if name.startswith("model.pooler."):  # never used, and random where the file lacks it
                continue
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _describe_body(parts: EncoderParts) -> dict[str, Any]:
    body = parts.body
    tokenizer = json.loads(body.text_tokenizer.definition)
    description = {"kind": type(body).__name__, "tokenizer": tokenizer, "max_tokens": body.max_tokens}
    if isinstance(body, Transformer):
        config = body.model.config.to_diff_dict()
        description["config"] = {key: value for key, value in config.items() if key not in _IGNORED_CONFIG_KEYS}
    return description
