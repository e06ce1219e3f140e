"""A model is known again wherever and however it is saved, and no other is taken for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

import hf_ffn
from hf_ffn.conversion import model_class_for
from hf_ffn.digest import is_about, model_digest, picture_texts

from tiny import ffn_model, rewrite, rewrite_config, to_bin

Save = Callable[..., Path]


def saved_again(folder: Path, **kwargs: Any) -> Path:
    """Load a folder as it is, and save it elsewhere."""
    again = folder.with_name("again")
    model_class_for(folder).from_pretrained(folder, dtype="auto").save_pretrained(again, **kwargs)
    return again


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("class_name", ["FFNTextModel", "FFNForMaskedLM", "FFNForImageClassification"])
def test_saving_again_in_shards_makes_no_other_model(tmp_path: Path, class_name: str, dtype: str) -> None:
    model = ffn_model(class_name, dtype=dtype).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "one")
    again = saved_again(tmp_path / "one", max_shard_size="20KB")
    assert len(list(again.glob("model-*.safetensors"))) > 2
    assert model_digest(again) == model_digest(tmp_path / "one") == model_digest(to_bin(tmp_path / "one"))


def test_how_a_model_is_run_and_what_its_classes_are_called_make_no_other_model(tmp_path: Path) -> None:
    ffn_model("FFNForSequenceClassification").save_pretrained(tmp_path / "one")
    before = model_digest(tmp_path / "one")
    model = model_class_for(tmp_path / "one").from_pretrained(tmp_path / "one")
    model.config.update({"unpad": "never", "feed_forward_memory": "input", "hidden_dropout_prob": 0.3})
    model.config.id2label = {0: "bad", 1: "good"}
    model.save_pretrained(tmp_path / "one")
    assert model_digest(tmp_path / "one") == before


CHANGES: dict[str, Callable[[Path], Any]] = {
    "a weight": lambda folder: rewrite(
        folder, lambda t: {**t, "model.norm.weight": t.pop("model.norm.weight") + 1e-7}
    ),
    "a name": lambda folder: rewrite(folder, lambda t: {f"x{name}": tensor for name, tensor in t.items()}),
    "a type": lambda folder: rewrite(folder, lambda t: {name: tensor.bfloat16() for name, tensor in t.items()}),
    "a shape": lambda folder: rewrite(folder, lambda t: {name: tensor[None] for name, tensor in t.items()}),
    "one tensor less": lambda folder: rewrite(folder, lambda t: dict(list(t.items())[1:])),
    "the activation": lambda folder: rewrite_config(folder, hidden_act="relu"),
    "the order of norms": lambda folder: rewrite_config(folder, norm_order="post"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_what_is_computed_makes_another_model(tmp_path: Path, change: str) -> None:
    ffn_model("FFNForImageClassification").save_pretrained(tmp_path)
    before = model_digest(tmp_path)
    rewrite(tmp_path, lambda tensors: {**tensors, "model.norm.weight": torch.ones(32)})
    norm = model_digest(tmp_path)
    assert norm != before
    CHANGES[change](tmp_path)
    assert model_digest(tmp_path) not in (before, norm)


def test_a_field_that_is_as_usual_is_no_part_of_it(tmp_path: Path) -> None:
    ffn_model("FFNTextModel").save_pretrained(tmp_path)
    digest = model_digest(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content.pop("qkv_bias") is True
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert model_digest(tmp_path) == digest


def test_a_picture_says_which_model_it_is_about(tmp_path: Path) -> None:
    for name in ("a.png", "a.pdf"):
        Figure().savefig(tmp_path / name, metadata=picture_texts(name, "f" * 64))
    picture = (tmp_path / "a.png").read_bytes()
    assert is_about(picture, "f" * 64)
    assert not is_about(picture, "e" * 64)


@pytest.mark.parametrize("theirs", ["BertForMaskedLM", "ViTModel"])
def test_a_conversion_says_which_model_it_proves(save_source: Save, tmp_path: Path, theirs: str) -> None:
    _, report = hf_ffn.convert(save_source(theirs), tmp_path / "out")
    assert report is not None
    assert json.loads((tmp_path / "out" / "equivalence.json").read_text())["model_sha256"] == report.model_sha256
    assert report.model_sha256 == model_digest(tmp_path / "out") == model_digest(saved_again(tmp_path / "out"))


def test_what_is_no_model_of_ours_has_no_digest(save_source: Save, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hf_ffn"):
        model_digest(save_source("BertModel"))
    ffn_model("FFNTextModel").config.save_pretrained(tmp_path / "bare")
    with pytest.raises(FileNotFoundError, match="has no weights"):
        model_digest(tmp_path / "bare")
