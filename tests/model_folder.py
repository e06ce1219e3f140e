"""Folders with a tiny model of ours, as a conversion or a fine-tuning leaves them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import ASTFeatureExtractor, BertTokenizer, PreTrainedModel, ViTImageProcessor

import hf_ffn
from hf_ffn.digest import DIGEST, model_digest

from tiny import ffn_config, ffn_model

TEXT_CLASSES = (
    "FFNTextModel",
    "FFNForMaskedLM",
    "FFNForSequenceClassification",
    "FFNForTokenClassification",
    "FFNForQuestionAnswering",
)
VISION_CLASSES = (
    "FFNVisionModel",
    "FFNForImageClassification",
    "FFNForImageClassificationWithTeacher",
    "FFNForAudioClassification",
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "encoder", "reads", "france", ".", "?"]

# What `verify` stores beside a conversion
REPORT = {
    "ok": True,
    "first_departure": None,
    "source": "google-bert/bert-base-uncased",
    "source_class": "BertModel",
    "model_class": "FFNTextModel",
    "versions": {"torch": "2.13.0"},
    "checks": [{"kind": "tensor", "name": "pooler.dense.weight", "ok": True}],
}


def config_folder(folder: Path, class_name: str, **overrides: Any) -> Path:
    """What a card reads of a model: its config.json, and weights only so far that facts can be about them."""
    config = ffn_config(class_name, architectures=[class_name], **overrides)
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
    return folder


def weights_folder(folder: Path, class_name: str, **overrides: Any) -> PreTrainedModel:
    """Save a whole model; returns it."""
    model = ffn_model(class_name, **overrides)
    model.save_pretrained(folder)
    return model


def add_processor(folder: Path, class_name: str) -> None:
    """Put a tokenizer, an image processor or a feature extractor beside a model of that class."""
    if class_name == "FFNForAudioClassification":
        ASTFeatureExtractor(num_mel_bins=32, max_length=40).save_pretrained(folder)
        return
    if class_name in VISION_CLASSES:
        ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
        return
    vocabulary = folder / "words.txt"
    vocabulary.write_text("\n".join(WORDS))
    BertTokenizer(str(vocabulary)).save_pretrained(folder)
    vocabulary.unlink()


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content), encoding="utf-8")


def add_fact(folder: Path, name: str, content: dict[str, Any] | None = None, of: Path | None = None) -> None:
    """Put a file of facts into a folder, about the model in it or in another; a picture where there is no content."""
    digest = model_digest(of or folder)
    if content is None:
        (folder / name).write_bytes(b"\x89PNG\r\n" + digest.encode())
    else:
        write_json(folder / name, {**content, DIGEST: digest})


def add_run(folder: Path, results: dict[str, Any] | None = None, **arguments: Any) -> None:
    """What a fine-tuning leaves beside its model: its arguments, results and pictures."""
    add_fact(folder, "run.json", {"arguments": arguments, "processes": {"num_processes": 1}})
    measured = {
        "accuracy": 0.9375,
        "macro_f1": 0.91234567,
        "matthews": 0.8,
        "train_steps": 1200,
        "train_seconds": 12.5,
        "trained_parameters": 31427,
        "versions": {"hf_ffn": hf_ffn.__version__, "torch": "2.13.0"},
    }
    add_fact(folder, "all_results.json", measured if results is None else results)
    for name in ("training_curves.png", "confusion_matrix.png"):
        add_fact(folder, name)
