"""Bringing a checkpoint's tokenizer along."""

import os
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import cached_file

from .checkpoint_ffn import hub_keywords


def can_be_found(source: str | os.PathLike) -> bool:
    """Whether there is such a folder, or can be such a repository on the Hub."""
    if os.path.isdir(source):
        return True
    try:
        validate_repo_id(str(source))
    except HFValidationError:
        return False
    return bool(str(source))


def find_file(source: str | os.PathLike, name: str, hub_kwargs: dict[str, Any]) -> str | None:
    """The path of a checkpoint's file (of a folder or a Hub id), or None where it has none of that name."""
    if not can_be_found(source):
        return None
    quiet = {
        "_raise_exceptions_for_gated_repo": False,
        "_raise_exceptions_for_missing_entries": False,
        "_raise_exceptions_for_connection_errors": False,
    }
    return cached_file(source, name, **quiet, **hub_keywords(hub_kwargs))
