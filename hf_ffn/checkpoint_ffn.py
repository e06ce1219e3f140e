"""A checkpoint's files: finding, opening and reading them, and writing a model's.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import contextlib
import json
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import _add_variant
from transformers.utils import (
    CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    cached_file,
)
from transformers.utils.hub import get_checkpoint_shard_files

from .folders_ffn import refuse_broken_save, staged_folder
from .labels_ffn import with_sound_labels
from .registry_ffn import FOREIGN_FAMILIES, Shapes, with_model_type
from .ties_ffn import written_out

# Where the shapes of a checkpoint's tensors are put in its configuration, while it is read.
TENSOR_SHAPES = "tensor_shapes"

# Keywords that say where a checkpoint lies, for reading its config.json and single files.
HUB_KEYWORDS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")

# How files of weights end, where one is given and not a folder.
WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth")

# The auto classes that a saved folder serves, so that every task's loads from it and not only the saved one.
AUTO_MAPS = {
    "hf_ffn_text": {
        "AutoConfig": "configuration_ffn.FFNTextConfig",
        "AutoModel": "modeling_ffn_text.FFNTextModel",
        "AutoModelForMaskedLM": "modeling_ffn_text.FFNForMaskedLM",
        "AutoModelForQuestionAnswering": "modeling_ffn_text.FFNForQuestionAnswering",
        "AutoModelForSequenceClassification": "modeling_ffn_text.FFNForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_ffn_text.FFNForTokenClassification",
    },
    "hf_ffn_vision": {
        "AutoConfig": "configuration_ffn.FFNVisionConfig",
        "AutoModel": "modeling_ffn_vision.FFNVisionModel",
        "AutoModelForAudioClassification": "modeling_ffn_vision.FFNForAudioClassification",
        "AutoModelForImageClassification": "modeling_ffn_vision.FFNForImageClassification",
    },
}

# What libraries raise on a file that is cut short or no weights at all; torch adds plain RuntimeErrors of its reader.
UNREADABLE = (SafetensorError, pickle.UnpicklingError, EOFError)


def read_raw_config(source: str | os.PathLike | None, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint's config.json, completed; empty where the caller brings a configuration and there is none."""
    if source is None:
        return {}
    # transformers would take the path for a repository's name, and complain of that.
    if str(source).startswith(("/", ".", "~")) and not os.path.exists(source):
        raise FileNotFoundError(f"there is no folder '{source}'")
    refuse_broken_save(source)
    try:
        check_config_file(source, kwargs)
        raw_config = PreTrainedConfig.get_config_dict(source, **hub_keywords(kwargs))[0]
        if not raw_config:
            raise FileNotFoundError(f"'{source}' has no config.json, or an empty one")
        return completed(raw_config, source, kwargs)
    except OSError as error:
        if kwargs.get("config") is not None:
            return {}
        # Folders of sentence-transformers, as they were until 2021
        for inner in sorted(Path(source).glob("0_*/config.json")):
            raise FileNotFoundError(
                f"'{source}' has no config.json: the encoder is in its folder '{inner.parent.name}'. Give that one, "
                f"or turn the whole into ours with `hf-ffn convert`"
            ) from error
        raise


def completed(config_dict: dict[str, Any], source: str | os.PathLike, kwargs: dict[str, Any]) -> dict[str, Any]:
    """A config.json with what it leaves out and the checkpoint tells: sizes, labels, the family."""

    def shapes() -> Shapes:
        return read_shapes(weight_files(source, kwargs))

    config_dict = with_sound_labels(config_dict, str(source))
    config_dict = with_model_type(config_dict, str(source), kwargs.get("family"), shapes)
    family = FOREIGN_FAMILIES.get(config_dict["model_type"])
    return {**config_dict, TENSOR_SHAPES: shapes()} if family is not None and family.sizes_in_tensors else config_dict


def read_shapes(files: list[str]) -> Shapes:
    """The shapes of all tensors in these files, by name."""
    shapes: Shapes = {}
    for path in files:
        if path.endswith(".safetensors"):
            with open_safetensors(path) as file:
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            continue
        with open_tensors(path) as (names, read):
            shapes |= {name: tuple(read(name).shape) for name in names}
    return shapes


def check_config_file(source: str | os.PathLike, kwargs: dict[str, Any]) -> None:
    """Look whether a config.json is what every reader of it takes for granted.

    Raises:
        ValueError: naming the file, and the entry that is at fault.
    """
    path = str(source) if os.path.isfile(source) else find_file(source, CONFIG_NAME, kwargs)
    if path is None:
        return
    config_dict = read_json(path)
    names = config_dict.get("architectures")
    sound = {
        "model_type": (str, "a name"),
        "architectures": (list, "a list of names"),
        "id2label": (dict, 'an object like {"0": "no", "1": "yes"}'),
        "label2id": (dict, 'an object like {"no": 0, "yes": 1}'),
        "num_labels": (int, "a whole number"),
        "auto_map": (dict, "an object"),
        "dtype": (str, "the name of one of torch's types, as float32"),
        "torch_dtype": (str, "the name of one of torch's types, as float32"),
    }
    for key, (kind, words) in sound.items():
        value = config_dict.get(key)
        ok = value is None or isinstance(value, kind)
        if ok and key == "architectures":
            ok = all(isinstance(name, str) for name in names or ())
        elif ok and key == "id2label":
            ok = all(re.fullmatch(r"-?\d+", index) for index in value or ())
        elif ok and key.endswith("dtype") and value is not None:
            ok = isinstance(getattr(torch, value, None), torch.dtype)
        if not ok:
            raise ValueError(f"'{path}': {key}={str(value)[:80]!r} must be {words}")


def read_json(path: str) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        ValueError: naming the file, and the place where it is no JSON.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"'{path}' is not valid JSON ({error}). It may be incomplete: fetch it again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"'{path}' holds {str(content)[:40]!r}, where a JSON object {{…}} is expected")
    return content


def check_index(path: str) -> None:
    """Look whether an index of shards says which tensor is in which file, as transformers' loader takes for granted.

    Raises:
        ValueError: naming the file, and the entry that is at fault.
    """
    index = read_json(path)
    for key in ("metadata", "weight_map"):
        if not isinstance(index.get(key), dict):
            what = f"{key}={str(index[key])[:80]!r} is no object {{…}}" if key in index else f"there is no entry {key}"
            hint = '; "metadata": {} will do' if key == "metadata" else ""
            raise ValueError(f"'{path}': {what}, which an index of shards needs{hint}")
    for name, file in index["weight_map"].items():
        if not isinstance(file, str):
            raise ValueError(f"'{path}': weight_map names {str(file)[:80]!r} for '{name}', where a file is expected")


def hub_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those of `kwargs` that say where a checkpoint lies."""
    return {name: kwargs[name] for name in HUB_KEYWORDS if kwargs.get(name) is not None}


def find_file(source: str | os.PathLike, name: str, kwargs: dict[str, Any]) -> str | None:
    """The path of a checkpoint's file (of a folder or a Hub id), or None where it has none of that name."""
    return cached_file(
        source,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        **hub_keywords(kwargs),
    )


def weight_files(source: str | os.PathLike, kwargs: dict[str, Any]) -> list[str]:
    """The checkpoint's weight files in transformers' order of preference; safetensors first. Empty where none is."""
    names = [SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME]
    if kwargs.get("use_safetensors") is not None:
        names = names[:2] if kwargs["use_safetensors"] else names[2:]
    for name in names:
        path = find_file(source, _add_variant(name, kwargs.get("variant")), kwargs)
        if path is not None and name.endswith(".index.json"):
            check_index(path)
            return get_checkpoint_shard_files(source, path, **hub_keywords(kwargs))[0]
        if path is not None:
            return [path]
    return []


def refuse_unreadable_or_integer_weights(files: list[str]) -> None:
    """Look at the headers of safetensors files: are they whole, and are the weights floating-point numbers?

    Raises:
        ValueError: naming the file, and the tensor where one is at fault.
    """
    for path in files:
        if not path.endswith(".safetensors"):
            continue
        with open_safetensors(path) as file:
            for name in file.keys():  # noqa: SIM118 - a safe_open handle is not iterable
                dtype = file.get_slice(name).get_dtype()
                # Buffers of positions are integers by right; transformers makes them itself.
                if not dtype.startswith(("F", "BF")) and not name.endswith(("position_ids", "token_type_ids")):
                    raise ValueError(
                        f"'{path}': tensor '{name}' is of type {dtype}, where weights are floating-point numbers "
                        f"(F32, BF16, F16…). Quantised or damaged checkpoints are not converted."
                    )


@contextlib.contextmanager
def open_tensors(path: str) -> Iterator[tuple[list[str], Callable[[str], torch.Tensor]]]:
    """Open a weight file; gives its tensors' names, and a function that reads one of them and no other."""
    if path.endswith(".safetensors"):
        with open_safetensors(path) as file:
            yield list(file.keys()), file.get_tensor
        return
    try:
        # Files from before torch 1.6 are no zip archives, and cannot be mapped.
        state_dict = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (*UNREADABLE, RuntimeError) as error:
        raise unreadable(path, error) from error
    if not isinstance(state_dict, dict):
        raise ValueError(f"'{path}' holds a {type(state_dict).__name__}, where a dictionary of tensors is expected")
    # What training left beside them (a step's number) is none.
    names = [name for name, value in state_dict.items() if isinstance(name, str) and torch.is_tensor(value)]
    yield names, state_dict.__getitem__


def open_safetensors(path: str) -> Any:
    """`safe_open` with an error that says what to do."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"'{path}' is named in the checkpoint's index, but is not there")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> ValueError:
    """The error for a weight file that cannot be read."""
    return ValueError(
        f"'{path}' cannot be read as weights ({type(error).__name__}: {str(error)[:120]}). It may be "
        f"incomplete: fetch or copy it again. Pickles that hold more than tensors are refused."
    )


def save_model(
    model: PreTrainedModel, save: Callable[..., None], directory: str | os.PathLike, kwargs: dict[str, Any]
) -> None:
    """Save in the native format through transformers' own saving (see `FFNPreTrainedModel.save_pretrained`)."""
    kwargs.setdefault("save_original_format", False)
    if not getattr(model.config, "tie_word_embeddings", True):
        given = kwargs.get("state_dict")
        state_dict = model.state_dict() if given is None else given
        to_write = written_out(model, state_dict)
        # Where nothing is shared, transformers finds offloaded weights by itself, which a state dict does not hold.
        if to_write is not state_dict:
            kwargs["state_dict"] = to_write
    model.config.auto_map = dict(AUTO_MAPS[type(model.config).model_type])
    staged_by_caller = kwargs.get("push_to_hub") or kwargs.get("distributed_checkpoint")
    if staged_by_caller or not kwargs.get("is_main_process", True):
        save(directory, **kwargs)
        return
    needed = sum(parameter.nbytes for parameter in model.parameters())
    with staged_folder(directory, needed=needed) as stage:
        save(stage, **kwargs)
