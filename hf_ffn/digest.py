"""One number for what a saved model computes, by which a proof or a result knows its own model again."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import torch

from .checkpoint_ffn import open_tensors, read_raw_config, weight_files
from .families.family import CONFIG_CLASSES, HOW_IT_RUNS, SCORING
from .registry_ffn import unknown_family

# The entry of a file of facts that says which model they are about.
DIGEST = "model_sha256"

# Entries of a configuration that say where a model comes from, what it is called or what it gives out.
_NOT_COMPUTED = {
    *HOW_IT_RUNS,
    *SCORING,
    *("architectures", "auto_map", "id2label", "label2id", "source_config", "source_family", "transformers_version"),
    *("chunk_size_feed_forward", "output_attentions", "output_hidden_states", "return_dict"),
}


def model_digest(source: str | os.PathLike, **hub_kwargs: Any) -> str:
    """SHA-256 of a saved model of ours: its tensors by name, type, shape and content, and what its configuration asks.

    The same in however many files the tensors lie, however the model is run and wherever it is copied; another one as
    soon as one weight is another, or a field that its outputs follow from.

    Args:
        source: a folder or a Hub id.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Raises:
        FileNotFoundError: there are no weights.
        ValueError: it is no model of ours, or a file of weights cannot be read.
    """
    raw_config = read_raw_config(source, hub_kwargs)
    config_class = CONFIG_CLASSES.get(raw_config.get("model_type", ""))
    if config_class is None:
        raise unknown_family(str(source), raw_config.get("model_type"))
    paths = weight_files(source, hub_kwargs)
    if not paths:
        raise FileNotFoundError(f"'{source}' has no weights")
    stated, usual = config_class.from_dict(raw_config).to_diff_dict(), config_class().to_dict()
    # Without what is as usual, so that a field that is added later changes no digest.
    computed = {n: value for n, value in stated.items() if n not in _NOT_COMPUTED and usual.get(n, ...) != value}
    digest = hashlib.sha256(json.dumps(computed, sort_keys=True, default=str).encode())
    with contextlib.ExitStack() as opened:
        readers: dict[str, Callable[[str], torch.Tensor]] = {}
        for path in paths:
            names, read = opened.enter_context(open_tensors(path))
            readers |= dict.fromkeys(names, read)
        for name, read in sorted(readers.items(), key=lambda item: item[0]):
            tensor = read(name)
            digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_about(content: dict[str, Any] | bytes, digest: str) -> bool:
    """Whether facts are about the model of this digest.

    Args:
        content: of a JSON file, or of a picture, which holds the digest among its texts.
        digest: from `model_digest`.
    """
    if isinstance(content, bytes):
        return digest.encode() in content
    return content.get(DIGEST) == digest


def picture_texts(path: str | os.PathLike, digest: str | None) -> dict[str, str] | None:
    """What `Figure.savefig` takes as `metadata`, so that a picture (a PNG) says which model it is about."""
    return {"Description": f"{DIGEST} {digest}"} if digest is not None and str(path).endswith(".png") else None
