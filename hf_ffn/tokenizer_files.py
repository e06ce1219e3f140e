"""Bringing a checkpoint's tokenizer along, or saying why it stays behind."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file, is_sentencepiece_available, logging

from .checkpoint_ffn import hub_keywords
from .families import FAMILIES, Family

logger = logging.get_logger(__name__)

# Files that hold the vocabulary of a tokenizer, of one class or another.
VOCABULARY_FILES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model"),
    *("tokenizer.model", "sentencepiece.model"),
)
# Files that a tokenizer reads beside its vocabulary.
OTHER_FILES = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "bpe.codes", "dict.txt"),
    *("chat_template.jinja",),
)
TOKENIZER_FILES = (*VOCABULARY_FILES, *OTHER_FILES)
# How files of other tokenizers end.
_LOOK_LIKE = (".model", ".spm", ".vocab", ".codes", ".bpe", ".tiktoken")


class TokenizerError(ValueError):
    """Why a tokenizer cannot be read here. `package` is what has to be installed, where that is known."""

    def __init__(self, reason: str, package: str | None = None) -> None:
        super().__init__(reason)
        self.package = package


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


def copy_tokenizer(
    config: PreTrainedConfig,
    source: str | os.PathLike,
    folder: Path,
    *,
    readable: bool = False,
    **hub_kwargs: Any,
) -> None:
    """Bring a checkpoint's tokenizer into another folder, or warn that it stays behind; weights wait for none.

    One that needs a package which is not installed here comes along as its files are.

    Args:
        config: of the model that will lie beside it, whose embeddings it should fit.
        source: a folder or a Hub id.
        folder: to write to.
        readable: leave behind what cannot be read here.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…
    """
    found = {name: path for name in TOKENIZER_FILES if (path := find_file(source, name, hub_kwargs))}
    if not found:
        say_what_is_not_known(source)
        return
    stated = entries(find_file(source, CONFIG_NAME, hub_kwargs))
    family = FAMILIES.get(config.source_family or "") if "model_type" not in stated else None
    try:
        tokenizer = read_tokenizer(source, found, family, hub_kwargs)
    except TokenizerError as error:
        if error.package is None or readable:
            logger.warning(f"the tokenizer of '{source}' ({', '.join(found)}) stays behind: {error}")
            return
        copy_as_they_are(found, folder, tokenizer_class(family.model_type if family else stated.get("model_type")))
        logger.warning(
            f"the tokenizer of '{source}' needs {error.package}, which is not installed: its files "
            f"({', '.join(found)}) come along as they are, unread ({error})"
        )
        return
    # Saved anew, for an old tokenizer's files do not name its class, which no model type of ours implies.
    tokenizer.save_pretrained(folder)
    warn_of_misfit(tokenizer, config, source, stated.get("vocab_size"))


def say_what_is_not_known(source: str | os.PathLike) -> None:
    """Warn of files that look like a tokenizer's, where there is none that is known."""
    names = sorted(path.name for path in Path(source).glob("*") if path.suffix in _LOOK_LIKE) if str(source) else []
    if names:
        logger.warning(f"'{source}': {', '.join(names)} may be a tokenizer's; they are not known here and stay behind")


def read_tokenizer(
    source: str | os.PathLike, found: dict[str, str], family: Family | None, hub_kwargs: dict[str, Any]
) -> PreTrainedTokenizerBase:
    """Read a tokenizer from these files of a checkpoint.

    Args:
        source: the checkpoint.
        found: paths of the files by their names.
        family: which the checkpoint was read as, where its config.json does not say it.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Raises:
        TokenizerError: it cannot be read, or would be made from less than its vocabulary.
    """
    # Imported here, for `import hf_ffn` need not wait for every tokenizer's converter.
    from transformers import AutoConfig, AutoTokenizer

    told = {"config": AutoConfig.for_model(family.model_type)} if family is not None else {}
    if not found.keys() & {*VOCABULARY_FILES}:
        raise TokenizerError(f"{', '.join(found)} without a vocabulary ({', '.join(VOCABULARY_FILES)})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **told, **hub_kwargs)
    except ImportError as error:
        raise TokenizerError(first_line(error), package=error.name or "another package") from error
    # tokenizers raises plain exceptions for a damaged file.
    except Exception as error:
        if "auto_map" in entries(found.get("tokenizer_config.json")):
            raise TokenizerError("it runs code of somebody's own, which is never run here") from error
        pieces = [name for name in found if name.endswith(".model")]
        if pieces and not is_sentencepiece_available():
            reason = f"{pieces[0]} is read with sentencepiece: pip install sentencepiece"
            raise TokenizerError(reason, package="sentencepiece") from error
        raise TokenizerError(first_line(error)) from error
    reads = {name for name in tokenizer.vocab_files_names.values() if name}
    if not reads & found.keys():
        # transformers makes a tokenizer of special tokens alone then, and says nothing.
        kind = type(tokenizer).__name__
        raise TokenizerError(f"{kind} reads {' or '.join(sorted(reads))}, and there is {', '.join(found)}")
    return tokenizer


def first_line(error: Exception) -> str:
    """What an error says, in short."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def entries(path: str | None) -> dict[str, Any]:
    """What a JSON file holds by name; nothing where there is no such file, or it is damaged."""
    if path is None:
        return {}
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def tokenizer_class(model_type: str | None) -> str | None:
    """The class of the tokenizers that models of this type have."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    return TOKENIZER_MAPPING_NAMES.get(model_type or "")


def copy_as_they_are(found: dict[str, str], folder: Path, class_name: str | None) -> None:
    """Copy a tokenizer's files, and say of which class it is, for no model type of ours implies that."""
    for name, path in found.items():
        shutil.copyfile(path, folder / name)
    config = entries(found.get("tokenizer_config.json"))
    if class_name is not None and "tokenizer_class" not in config:
        text = json.dumps({**config, "tokenizer_class": class_name}, indent=2, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def warn_of_misfit(
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
    source: str | os.PathLike,
    before: int | None,
) -> None:
    """Warn of a tokenizer that does not belong to the embeddings of the model beside it.

    Args:
        tokenizer: of the checkpoint.
        config: of the model.
        source: the checkpoint.
        before: how many embeddings the checkpoint has; None where it does not say.
    """
    rows = getattr(config, "vocab_size", None)
    if rows is None:
        return
    tokens = max(tokenizer.get_vocab().values(), default=-1) + 1
    what_to_do = "save the one that fits over it (tokenizer.save_pretrained)"
    if tokens > rows:
        logger.warning(
            f"the tokenizer of '{source}' has {tokens} tokens, and the model embeddings for {rows}: texts with the "
            f"others fail. Call model.resize_token_embeddings({tokens}), or {what_to_do}"
        )
    elif before not in (None, rows) and rows != tokens:
        logger.warning(
            f"the model's embeddings were resized from {before} to {rows} after it was loaded from '{source}', whose "
            f"tokenizer of {tokens} tokens comes along: where you added tokens, {what_to_do}"
        )
