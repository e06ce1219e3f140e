"""Bringing a checkpoint's image processor along, so that it loads beside another model type."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES, AutoImageProcessor
from transformers.utils import IMAGE_PROCESSOR_NAME, PROCESSOR_NAME, logging
from transformers.utils.generic import is_timm_local_checkpoint

from .checkpoint_ffn import read_json
from .families import FAMILIES, Family
from .tokenizer_files import find_file

logger = logging.get_logger(__name__)

IMAGE_PROCESSOR_FILES = (IMAGE_PROCESSOR_NAME, PROCESSOR_NAME)
TYPES = ("image_processor_type", "feature_extractor_type")
# Our own, which is written out of this package.
OWN_CODE = Path(__file__).with_name("image_processing_ffn.py")


def copy_image_processor(config: PreTrainedConfig, source: str | os.PathLike, folder: Path, **hub_kwargs: Any) -> None:
    """Bring a checkpoint's image processor (or that of its sounds), where it has one, into another folder.

    Its file says which class reads it, as no model type of ours does. Pillow or torchvision are not needed.

    Args:
        config: of the model that was made from the checkpoint.
        source: a folder or a Hub id; empty for none.
        folder: with the model's config.json in it.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…
    """
    family = FAMILIES.get(config.source_family)
    if is_timm_local_checkpoint(str(folder)):
        return  # It is in config.json.
    found = [path for name in IMAGE_PROCESSOR_FILES if (path := find_file(source, name, hub_kwargs))]
    for path in found:
        content = read_json(path)
        typed = with_type(content, type_with_processor(family), path)
        if typed == content:
            shutil.copyfile(path, folder / Path(path).name)
        else:
            write_json(folder / Path(path).name, typed)
        copy_code(typed, source, folder, hub_kwargs)
    if not found and family is not None and family.image_processor is not None:
        try:
            write_image_processor(family.image_processor(config), folder)
        except ValueError as error:
            logger.warning(f"no image processor is written for '{source}': {error}")


def load_image_processor(source: str | os.PathLike, config: PreTrainedConfig, **hub_kwargs: Any) -> Any:
    """The image processor of a checkpoint, also where a model of another type or timm's config.json says how.

    Args:
        source: a folder or a Hub id.
        config: ours, of a model that was made from the checkpoint.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Raises:
        ValueError: there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy_image_processor(config, source, Path(folder), **hub_kwargs)
        if not any(Path(folder, name).exists() for name in IMAGE_PROCESSOR_FILES):
            raise ValueError(
                f"'{source}' has no {IMAGE_PROCESSOR_NAME}, so that it is not known how its images were prepared: add "
                f"one, as ViTImageProcessor(…).save_pretrained('{source}') writes it"
            )
        return AutoImageProcessor.from_pretrained(folder)


def write_image_processor(content: dict[str, Any], folder: Path) -> None:
    """Write the file of an image processor, and the code of ours if it is that."""
    write_json(folder / IMAGE_PROCESSOR_NAME, content)
    copy_code(content, "", folder, {})


def type_with_processor(family: Family | None) -> str | None:
    """The model type by which transformers finds a family's image processor; None where it knows none."""
    if family is None:
        return None
    names = (family.model_type, *(family.nested or ())[:1])
    return next((n for n in names if n in IMAGE_PROCESSOR_MAPPING_NAMES or n in FEATURE_EXTRACTOR_MAPPING_NAMES), None)


def with_type(content: dict[str, Any], model_type: str | None, path: str) -> dict[str, Any]:
    """The content of an image processor's file, with the class that reads it.

    Files of 2021 leave it to the model's type; older ones name classes that transformers has no more.

    Args:
        content: of the file.
        model_type: from `type_with_processor`.
        path: the file, for messages.
    """
    if Path(path).name == PROCESSOR_NAME:
        # It may hold an image processor's file among others.
        inner = content.get("image_processor")
        return {**content, "image_processor": with_type(inner, model_type, "")} if isinstance(inner, dict) else content
    is_image = model_type in IMAGE_PROCESSOR_MAPPING_NAMES
    stated = str(content.get(TYPES[0]) or "")
    # Some versions wrote the old class under the new name, beside the old one.
    old = stated if stated.endswith("FeatureExtractor") else str(content.get(TYPES[1]) or "")
    if content.get("auto_map") or (stated and stated != old) or (old and not is_image):
        return content
    if old:
        rest = {name: value for name, value in content.items() if name not in TYPES}
        return {TYPES[0]: old.replace("FeatureExtractor", "ImageProcessor"), **rest}
    if model_type is not None and is_image:
        names = IMAGE_PROCESSOR_MAPPING_NAMES[model_type]
        return {TYPES[0]: names.get("torchvision") or names["pil"].removesuffix("Pil"), **content}
    if model_type in FEATURE_EXTRACTOR_MAPPING_NAMES:
        return {TYPES[1]: FEATURE_EXTRACTOR_MAPPING_NAMES[model_type], **content}
    logger.warning(f"'{path}' does not say which class reads it: add image_processor_type to it")
    return content


def copy_code(content: dict[str, Any], source: str | os.PathLike, folder: Path, hub_kwargs: dict[str, Any]) -> None:
    """Bring along the code of an image processor of its own, which its file names."""
    reference = (content.get("auto_map") or {}).get("AutoImageProcessor")
    for each in reference if isinstance(reference, list) else [reference]:
        # What lies in another repository is found there.
        if each is None or "--" in each:
            continue
        name = f"{each.split('.')[0]}.py"
        path = OWN_CODE if name == OWN_CODE.name else find_file(source, name, hub_kwargs)
        if path is None:
            logger.warning(f"'{source}' has no {name}, in which its image processor is: it will not load")
        else:
            shutil.copyfile(path, folder / name)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as transformers writes its own."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
