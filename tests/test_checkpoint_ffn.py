"""Loading and saving: what converts, what is reported, what is refused, and labels by name."""

import json
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel

import hf_ffn
from hf_ffn import (
    FeedForward,
    FFNForImageClassification,
    FFNForMaskedLM,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNTextConfig,
    FFNTextModel,
    FFNVisionConfig,
    FFNVisionModel,
)

from tiny import BERT_CLASSES, VIT_CLASSES, bert_config, inputs_for, telling_model, text_inputs, vit_config

Save = Callable[..., Path]


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Change the tensors of a saved checkpoint."""
    path = folder / "model.safetensors"
    save_file({k: v.clone() for k, v in change(load_file(path)).items()}, path, metadata={"format": "pt"})


def rewrite_config(folder: Path, **entries: Any) -> None:
    """Change entries of a saved config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What hf_ffn and transformers log, whose loggers do not propagate by themselves."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("hf_ffn"), "propagate", True)
    return caplog


# ---- outputs and tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("theirs", "ours"), [*BERT_CLASSES.items(), *VIT_CLASSES.items()])
def test_hidden_states_and_outputs_equal_the_originals_bitwise(
    save_source: Save, theirs: str, ours: str, attention: str
) -> None:
    folder = save_source(theirs)
    original = getattr(transformers, theirs).from_pretrained(folder, attn_implementation=attention)
    model = getattr(hf_ffn, ours).from_pretrained(folder, attn_implementation=attention)
    inputs = inputs_for(original.config)
    with torch.no_grad():
        expected = original(**inputs, output_hidden_states=True)
        found = model(**inputs, output_hidden_states=True)
    assert len(found.hidden_states) == len(expected.hidden_states) == 4
    for layer, (a, b) in enumerate(zip(expected.hidden_states, found.hidden_states, strict=True)):
        assert torch.equal(a, b), f"hidden states {layer}"
    compared = [name for name, value in expected.items() if isinstance(value, torch.Tensor)]
    assert compared
    for name in compared:
        assert torch.equal(expected[name], found[name]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("theirs", "ours"), [("BertModel", "FFNTextModel"), ("ViTModel", "FFNVisionModel")])
def test_half_precision_is_no_further_from_float32_than_the_original(
    save_source: Save, theirs: str, ours: str, dtype: torch.dtype
) -> None:
    folder = save_source(theirs)
    original_class, model_class = getattr(transformers, theirs), getattr(hf_ffn, ours)
    exact = original_class.from_pretrained(folder, attn_implementation="eager")
    inputs = inputs_for(exact.config)
    with torch.no_grad():
        expected = exact(**inputs).last_hidden_state
        errors = []
        for each in (original_class, model_class):
            half = each.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
            assert half.dtype == dtype
            errors.append((half(**inputs).last_hidden_state.float() - expected).abs().max().item())
    assert 0 < errors[1] <= 3 * errors[0]


@pytest.mark.parametrize("theirs", ["ViTModel", "ViTForImageClassification"])
def test_both_dialects_of_vit_load(save_source: Save, theirs: str) -> None:
    in_files = save_source(theirs, "files")
    in_memory = save_source(theirs, "memory", {"save_original_format": False})
    names = {folder.name: set(load_file(folder / "model.safetensors")) for folder in (in_files, in_memory)}
    assert names["files"] != names["memory"]
    models = [getattr(hf_ffn, VIT_CLASSES[theirs]).from_pretrained(folder) for folder in (in_files, in_memory)]
    for (name, a), b in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def old_names(state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in state_dict.items()
    }


def with_prefix(state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"bert.{name}": tensor for name, tensor in state_dict.items()}


def without_prefix(state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix("bert."): tensor for name, tensor in state_dict.items()}


@pytest.mark.parametrize(
    ("theirs", "change"),
    [
        ("BertModel", old_names),
        ("BertModel", with_prefix),
        ("BertModel", lambda tensors: with_prefix(old_names(tensors))),
        ("BertForMaskedLM", old_names),
        ("BertForSequenceClassification", without_prefix),
    ],
)
def test_spellings_of_bert_files_load_alike(save_source: Save, theirs: str, change: Callable) -> None:
    folder = save_source(theirs)
    model_class = getattr(hf_ffn, BERT_CLASSES[theirs])
    plain = model_class.from_pretrained(folder).state_dict()
    rewrite(folder, change)
    for name, tensor in model_class.from_pretrained(folder).state_dict().items():
        assert torch.equal(tensor, plain[name]), name


def test_a_sharded_checkpoint_loads(save_source: Save) -> None:
    whole = FFNTextModel.from_pretrained(save_source("BertModel", "whole")).state_dict()
    folder = save_source("BertModel", "shards", {"max_shard_size": "20KB"})
    assert len(list(folder.glob("*.safetensors"))) > 2
    for name, tensor in FFNTextModel.from_pretrained(folder).state_dict().items():
        assert torch.equal(tensor, whole[name]), name


def to_bin(folder: Path) -> Path:
    """Turn a folder's weights into a `.bin`."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize(("theirs", "ours"), [("BertModel", FFNTextModel), ("ViTModel", FFNVisionModel)])
def test_a_bin_checkpoint_loads(save_source: Save, theirs: str, ours: type) -> None:
    folder = save_source(theirs)
    expected = ours.from_pretrained(folder).state_dict()
    for name, tensor in ours.from_pretrained(to_bin(folder)).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_pretraining_heads_load_as_a_masked_language_model(tmp_path: Path) -> None:
    source = telling_model(BertForPreTraining, bert_config())
    source.save_pretrained(tmp_path)
    model = FFNForMaskedLM.from_pretrained(tmp_path)
    assert model.loading_report.new == []
    assert any("next-sentence" in reason for reason in model.loading_report.unused.values())
    inputs = text_inputs(source.config)
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, source(**inputs).prediction_logits)


def test_weights_are_mapped_from_the_file_and_not_copied(save_source: Save) -> None:
    folder = save_source("BertModel")
    FFNTextModel.from_pretrained(folder)
    # A model whose weights are the file's own pages shows the file in the process's memory map.
    model = FFNTextModel.from_pretrained(folder)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        assert model.dtype == torch.float32
        return
    assert str(folder / "model.safetensors") in maps.read_text()


# ---- the report, and faults that must not pass silently ------------------------------------------------------


def test_a_checkpoint_without_pooler_gives_none_and_says_so(
    save_source: Save, messages: pytest.LogCaptureFixture
) -> None:
    folder = save_source("BertForMaskedLM")
    model = FFNTextModel.from_pretrained(folder)
    assert model.pooler is None
    assert model(**text_inputs(model.config)).pooler_output is None
    assert model.loading_report.left_out == ["pooler"]
    assert "pooler" in messages.text


def test_a_new_head_is_reported_once_and_the_encoder_is_intact(
    save_source: Save, messages: pytest.LogCaptureFixture
) -> None:
    folder = save_source("BertModel")
    model = FFNForTokenClassification.from_pretrained(folder, num_labels=7)
    assert model.loading_report.new == ["classifier"]
    assert model.classifier.weight.shape == (7, 32)
    assert messages.text.count("newly made") == 1
    assert "LOAD REPORT" not in messages.text
    encoder = FFNTextModel.from_pretrained(folder).encoder.state_dict()
    for name, tensor in model.model.encoder.state_dict().items():
        assert torch.equal(tensor, encoder[name]), name


def test_nothing_is_reported_where_everything_fits(save_source: Save, messages: pytest.LogCaptureFixture) -> None:
    model = FFNForSequenceClassification.from_pretrained(save_source("BertForSequenceClassification"))
    assert str(model.loading_report) == ""
    assert messages.text == ""


def drop(part: str) -> Callable:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name}


def add(name: str) -> Callable:
    return lambda tensors: {**tensors, name: torch.zeros(4)}


def reshape(part: str) -> Callable:
    return lambda tensors: {n: (t[..., :5].contiguous() if part in n else t) for n, t in tensors.items()}


def as_integers(part: str) -> Callable:
    return lambda tensors: {n: (t.to(torch.int32) if part in n else t) for n, t in tensors.items()}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (drop("encoder.layer.1."), "missing: encoder.layers.1."),
        (drop("layer.2.output.dense.bias"), "missing: encoder.layers.2.ffn.linear_2.bias"),
        (drop("word_embeddings"), "missing: embeddings.word_embeddings.weight"),
        (drop("pooler.dense.bias"), "missing: pooler.dense.bias"),
        (add("encoder.layer.3.output.dense.bias"), "left over: encoder.layers.3.ffn.linear_2.bias"),
        (add("encoder.layer.0.attention.self.distance_embedding.weight"), "distance_embedding"),
        (add("embeddings.extra.weight"), "left over: embeddings.extra.weight"),
        (reshape("layer.1.intermediate.dense.weight"), r"\(64, 5\), and \(64, 32\) in the model"),
        (reshape("LayerNorm.weight"), "of another shape"),
        (as_integers("layer.0.output.dense.weight"), "I32"),
    ],
)
def test_a_faulty_bert_checkpoint_is_refused_naming_the_tensor(
    save_source: Save, change: Callable, named: str
) -> None:
    folder = save_source("BertModel")
    rewrite(folder, change)
    with pytest.raises(ValueError, match=named):
        FFNTextModel.from_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (drop("layer.1."), "missing: encoder.layers.1."),
        (drop("layernorm."), "missing: encoder.norm."),
        (drop("cls_token"), "missing: embeddings.cls_token"),
        (add("encoder.layer.3.output.dense.bias"), "left over: encoder.layers.3.ffn.linear_2.bias"),
        (reshape("position_embeddings"), "of another shape: embeddings.position_embeddings"),
    ],
)
def test_a_faulty_vit_checkpoint_is_refused_naming_the_tensor(save_source: Save, change: Callable, named: str) -> None:
    folder = save_source("ViTModel")
    rewrite(folder, change)
    with pytest.raises(ValueError, match=named):
        FFNVisionModel.from_pretrained(folder)


def test_a_faulty_native_checkpoint_is_refused_too(save_source: Save, tmp_path: Path) -> None:
    native = tmp_path / "native"
    FFNTextModel.from_pretrained(save_source("BertModel")).save_pretrained(native)
    rewrite(native, drop("layers.1.ffn"))
    with pytest.raises(ValueError, match=r"missing: encoder.layers.1.ffn.linear_1.bias"):
        FFNTextModel.from_pretrained(native)


@pytest.mark.parametrize("entries", [{"num_hidden_layers": 2}, {"num_hidden_layers": 4}, {"intermediate_size": 96}])
def test_a_config_that_disagrees_with_the_weights_is_refused(save_source: Save, entries: dict) -> None:
    folder = save_source("BertModel")
    rewrite_config(folder, **entries)
    with pytest.raises(ValueError, match="disagree"):
        FFNTextModel.from_pretrained(folder)


def test_a_config_whose_labels_disagree_with_the_head_is_refused(save_source: Save) -> None:
    folder = save_source("BertForSequenceClassification", num_labels=3)
    rewrite_config(folder, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    with pytest.raises(ValueError, match=r"classifier.weight is \(3, 32\), and \(2, 32\)"):
        FFNForSequenceClassification.from_pretrained(folder)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="has no config"):
        FFNTextModel.from_pretrained(tmp_path)


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        FFNTextModel.from_pretrained(tmp_path / "nowhere")


def test_a_config_without_weights_is_refused(tmp_path: Path) -> None:
    bert_config().save_pretrained(tmp_path)
    with pytest.raises(OSError, match="no file named"):
        FFNTextModel.from_pretrained(tmp_path)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lie_about_the_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes((10**9).to_bytes(8, "little") + content[8:])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, lie_about_the_header, empty])
@pytest.mark.parametrize("read", [FFNTextModel.from_pretrained, lambda folder: FeedForward.from_pretrained(folder, 0)])
def test_a_damaged_safetensors_file_is_refused_naming_it(save_source: Save, damage: Callable, read: Callable) -> None:
    folder = save_source("BertModel")
    damage(folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors' cannot be read as weights .* fetch or copy it again"):
        read(folder)


@pytest.mark.parametrize("damage", [truncate, empty])
@pytest.mark.parametrize("read", [FFNTextModel.from_pretrained, lambda folder: FeedForward.from_pretrained(folder, 0)])
def test_a_damaged_bin_file_is_refused_naming_it(save_source: Save, damage: Callable, read: Callable) -> None:
    folder = to_bin(save_source("BertModel"))
    damage(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        read(folder)


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("read", [FFNTextModel.from_pretrained, lambda folder: FeedForward.from_pretrained(folder, 0)])
@pytest.mark.parametrize("save", [torch.save, lambda data, path: path.write_bytes(pickle.dumps(data))])
def test_a_pickle_that_would_run_code_is_refused_and_never_run(
    save_source: Save, tmp_path: Path, read: Callable, save: Callable
) -> None:
    folder = to_bin(save_source("BertModel"))
    save({"x": Trap(tmp_path / "sprung")}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot be read as weights"):
        read(folder)
    assert not (tmp_path / "sprung").exists()


def test_asking_to_run_pickles_is_refused(save_source: Save) -> None:
    with pytest.raises(ValueError, match="weights_only=False"):
        FFNTextModel.from_pretrained(save_source("BertModel"), weights_only=False)


@pytest.mark.parametrize("model_type", ["gpt2", "no_such_family", None])
@pytest.mark.parametrize("read", [FFNTextModel.from_pretrained, lambda folder: FeedForward.from_pretrained(folder, 0)])
def test_an_unknown_family_is_refused_naming_the_known(
    save_source: Save, model_type: str | None, read: Callable
) -> None:
    folder = save_source("BertModel")
    rewrite_config(folder, model_type=model_type)
    with pytest.raises(ValueError, match=r"does not convert. Families that it converts: bert, vit"):
        read(folder)


def test_a_gpt2_checkpoint_is_refused(tmp_path: Path) -> None:
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    transformers.GPT2Model(transformers.GPT2Config(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="model_type='gpt2'"):
        FFNTextModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(("theirs", "ours"), [("BertModel", FFNVisionModel), ("ViTModel", FFNTextModel)])
def test_a_checkpoint_of_the_other_modality_is_refused(save_source: Save, theirs: str, ours: type) -> None:
    with pytest.raises(ValueError, match="use the FFN"):
        ours.from_pretrained(save_source(theirs))


@pytest.mark.parametrize(
    "entry", [{"is_decoder": True}, {"add_cross_attention": True}, {"position_embedding_type": "relative_key"}]
)
def test_a_variant_of_bert_that_would_compute_otherwise_is_refused(save_source: Save, entry: dict) -> None:
    folder = save_source("BertModel")
    rewrite_config(folder, **entry)
    with pytest.raises(ValueError, match=next(iter(entry))):
        FFNTextModel.from_pretrained(folder)


def test_an_impossible_override_is_refused(save_source: Save) -> None:
    with pytest.raises(ValueError, match="hidden_size=32 is not divisible by num_attention_heads=5"):
        FFNTextModel.from_pretrained(save_source("BertModel"), num_attention_heads=5)


def test_a_mismatch_is_tolerated_on_request_and_reported(save_source: Save) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder, vocab_size=50, ignore_mismatched_sizes=True)
    assert model.loading_report.new == ["embeddings.word_embeddings.weight ((99, 32) in the checkpoint)"]


# ---- labels --------------------------------------------------------------------------------------------------

NAMES = {0: "entailment", 1: "neutral", 2: "contradiction"}


def save_classifier(save_source: Save, theirs: str, labels: dict[int, str] | None = NAMES) -> Path:
    if labels is None:
        return save_source(theirs, num_labels=3)
    return save_source(theirs, id2label=labels, label2id={name: index for index, name in labels.items()})


CLASSIFIERS = ["BertForSequenceClassification", "BertForTokenClassification", "ViTForImageClassification"]


def our_class(theirs: str) -> type:
    return getattr(hf_ffn, {**BERT_CLASSES, **VIT_CLASSES}[theirs])


@pytest.mark.parametrize("theirs", CLASSIFIERS)
def test_labels_come_along(save_source: Save, theirs: str) -> None:
    model = our_class(theirs).from_pretrained(save_classifier(save_source, theirs))
    assert model.config.id2label == NAMES
    assert model.config.label2id == {name: index for index, name in NAMES.items()}


@pytest.mark.parametrize("theirs", CLASSIFIERS)
@pytest.mark.parametrize("native", [False, True])
def test_the_same_labels_in_another_order_move_the_rows(
    save_source: Save, tmp_path: Path, theirs: str, native: bool
) -> None:
    folder = save_classifier(save_source, theirs)
    original = our_class(theirs).from_pretrained(folder)
    if native:
        folder = tmp_path / "native"
        original.save_pretrained(folder)
    order = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    model = our_class(theirs).from_pretrained(folder, id2label=order)
    assert model.config.label2id == {"contradiction": 0, "entailment": 1, "neutral": 2}
    inputs = inputs_for(model.config)
    with torch.no_grad():
        before, after = original(**inputs).logits, model(**inputs).logits
    for name, index in model.config.label2id.items():
        assert torch.allclose(after[..., index], before[..., original.config.label2id[name]], atol=1e-6), name
    assert "rows moved" in str(model.loading_report)
    assert model.loading_report.new == []


@pytest.mark.parametrize("theirs", CLASSIFIERS)
@pytest.mark.parametrize(
    "labels", [{"0": "good", "1": "bad", "2": "ugly"}, {"0": "yes", "1": "no"}, dict(enumerate("abcde"))]
)
def test_other_labels_make_a_new_head_and_say_so(
    save_source: Save, theirs: str, labels: dict, messages: pytest.LogCaptureFixture
) -> None:
    folder = save_classifier(save_source, theirs)
    kept = our_class(theirs).from_pretrained(folder).state_dict()
    messages.clear()
    model = our_class(theirs).from_pretrained(folder, id2label=labels)
    assert list(model.config.id2label.values()) == list(labels.values())
    assert model.classifier.weight.shape[0] == len(labels)
    # A new head is drawn at initializer_range, the telling one was five times as wide.
    assert model.classifier.weight.abs().max() <= 2 * model.config.initializer_range
    assert model.classifier.bias.abs().max() == 0
    assert "newly made" in messages.text
    for name, tensor in model.state_dict().items():
        assert name.startswith("classifier.") or torch.equal(tensor, kept[name]), name


def test_another_number_of_labels_makes_a_new_head_and_asks_for_names(save_source: Save) -> None:
    folder = save_classifier(save_source, "BertForSequenceClassification")
    model = FFNForSequenceClassification.from_pretrained(folder, num_labels=5)
    assert model.classifier.weight.shape[0] == 5
    assert "for 5 labels in place of 3" in str(model.loading_report)
    assert "unnamed" in str(model.loading_report)


def test_names_for_a_trained_head_with_unnamed_labels_are_refused(save_source: Save) -> None:
    folder = save_classifier(save_source, "BertForSequenceClassification", None)
    with pytest.raises(ValueError, match="unnamed"):
        FFNForSequenceClassification.from_pretrained(folder, id2label=NAMES)
    model = FFNForSequenceClassification.from_pretrained(folder, id2label=NAMES, ignore_mismatched_sizes=True)
    assert "classifier" in model.loading_report.new[0]


def test_a_configuration_without_names_keeps_the_trained_heads(save_source: Save) -> None:
    folder = save_classifier(save_source, "BertForSequenceClassification")
    config = FFNTextConfig.from_pretrained(folder)
    config.id2label = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    model = FFNForSequenceClassification.from_pretrained(folder, config=config)
    assert model.config.id2label == NAMES
    assert model.loading_report.new == []


# ---- configurations ------------------------------------------------------------------------------------------


def test_a_configuration_of_bert_is_read_as_ours(save_source: Save) -> None:
    folder = save_source("BertModel", layer_norm_eps=1e-7, hidden_act="gelu_new", classifier_dropout=0.3)
    config = FFNTextConfig.from_pretrained(folder)
    assert (config.model_type, config.norm_order, config.source_family) == ("hf_ffn_text", "post", "bert")
    assert (config.layer_norm_eps, config.hidden_act, config.classifier_dropout) == (1e-7, "gelu_new", 0.3)


def test_what_an_old_config_leaves_out_takes_the_familys_default(save_source: Save) -> None:
    folder = save_source("ViTModel")
    content = json.loads((folder / "config.json").read_text())
    kept = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    (folder / "config.json").write_text(json.dumps({name: content[name] for name in kept}))
    config = FFNVisionConfig.from_pretrained(folder)
    assert (config.image_size, config.hidden_dropout_prob, config.qkv_bias) == (224, 0.0, True)


def test_our_own_configuration_can_be_passed_to_load_another_family(save_source: Save) -> None:
    folder = save_source("BertModel")
    config = FFNTextConfig.from_pretrained(folder, hidden_dropout_prob=0.25)
    model = FFNTextModel.from_pretrained(folder, config=config)
    assert model.config.hidden_dropout_prob == 0.25
    assert model.config.model_type == config.model_type == "hf_ffn_text"


# ---- one block -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "save_kwargs"), [
    ("BertModel", None),
    ("BertForMaskedLM", None),
    ("BertForSequenceClassification", {"max_shard_size": "20KB"}),
    ("ViTModel", None),
    ("ViTForImageClassification", {"save_original_format": False}),
])  # fmt: skip
@pytest.mark.parametrize("layer", [0, 2])
def test_one_blocks_feed_forward_is_read(save_source: Save, theirs: str, save_kwargs: dict | None, layer: int) -> None:
    folder = save_source(theirs, save_kwargs=save_kwargs)
    ffn = FeedForward.from_pretrained(folder, layer=layer)
    whole = our_class(theirs).from_pretrained(folder).base_model.encoder.layers[layer].ffn
    assert not ffn.training
    x = torch.randn(2, 5, 32)
    assert torch.equal(ffn(x), whole(x))
    assert ffn.state_dict().keys() == whole.state_dict().keys()


def test_one_block_is_read_from_ours_and_from_bin_in_another_dtype(save_source: Save, tmp_path: Path) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder)
    model.save_pretrained(tmp_path / "native")
    for place in (tmp_path / "native", to_bin(folder)):
        ffn = FeedForward.from_pretrained(place, layer=1, dtype="bfloat16")
        expected = model.encoder.layers[1].ffn.linear_1.weight.to(torch.bfloat16)
        assert torch.equal(ffn.linear_1.weight, expected)


@pytest.mark.parametrize("layer", [-1, 3, 12])
def test_a_layer_that_is_not_there_is_refused(save_source: Save, layer: int) -> None:
    with pytest.raises(ValueError, match="has the layers 0…2"):
        FeedForward.from_pretrained(save_source("BertModel"), layer=layer)


@pytest.mark.parametrize("change", [drop("layer.1.intermediate"), drop("layer.1.output.dense.bias")])
def test_a_block_with_a_missing_tensor_is_refused(save_source: Save, change: Callable) -> None:
    folder = save_source("BertModel")
    rewrite(folder, change)
    with pytest.raises(ValueError, match="layer 1"):
        FeedForward.from_pretrained(folder, layer=1)


READ_ONE_BLOCK = """
import sys, psutil, transformers
from hf_ffn import FeedForward
process = psutil.Process()
FeedForward.from_pretrained(sys.argv[1], layer=0)  # everything that is imported on the way is in
before = process.memory_info().rss
ffn = FeedForward.from_pretrained(sys.argv[1], layer=5)
assert float(sum(p.double().sum() for p in ffn.parameters())) != 0  # touch every byte
print(process.memory_info().rss - before, sum(p.numel() * p.element_size() for p in ffn.parameters()))
"""


@pytest.mark.slow
def test_reading_one_block_touches_little_more_than_its_bytes(tmp_path: Path) -> None:
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 8}
    BertModel(bert_config(**sizes, vocab_size=20_000)).save_pretrained(tmp_path)
    whole = (tmp_path / "model.safetensors").stat().st_size
    result = subprocess.run([sys.executable, "-c", READ_ONE_BLOCK, tmp_path], capture_output=True, text=True)
    read, block = map(int, result.stdout.split())
    assert whole > 15 * block
    assert read < 2.5 * block


# ---- the native format ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [*BERT_CLASSES, *VIT_CLASSES])
def test_saving_and_loading_changes_no_byte_of_the_weights(save_source: Save, tmp_path: Path, theirs: str) -> None:
    model_class = our_class(theirs)
    model_class.from_pretrained(save_source(theirs)).save_pretrained(tmp_path / "once")
    model_class.from_pretrained(tmp_path / "once").save_pretrained(tmp_path / "twice")
    once, twice = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "twice"))
    assert once == twice
    names = load_file(tmp_path / "once" / "model.safetensors")
    assert all("layers." in name for name in names if "encoder" in name and "norm." not in name)


@pytest.mark.parametrize("theirs", [*BERT_CLASSES, *VIT_CLASSES])
def test_the_tasks_auto_class_loads_a_native_folder(save_source: Save, tmp_path: Path, theirs: str) -> None:
    model_class = our_class(theirs)
    model_class.from_pretrained(save_source(theirs)).save_pretrained(tmp_path / "native")
    auto_class = getattr(transformers, model_class._auto_class)
    assert type(auto_class.from_pretrained(tmp_path / "native")) is model_class
    base = FFNVisionModel if "ViT" in theirs else FFNTextModel
    assert type(AutoModel.from_pretrained(tmp_path / "native")) is base


@pytest.mark.parametrize("theirs", ["BertForMaskedLM", "ViTForImageClassification"])
def test_a_saved_folder_is_self_sufficient(save_source: Save, tmp_path: Path, theirs: str) -> None:
    native = tmp_path / "native"
    our_class(theirs).from_pretrained(save_source(theirs)).save_pretrained(native)
    config = json.loads((native / "config.json").read_text())
    assert config["model_type"].startswith("hf_ffn_")
    for auto_class, target in config["auto_map"].items():
        module, _, class_name = target.partition(".")
        source = (native / f"{module}.py").read_text()
        assert f"class {class_name}(" in source, auto_class
        for line in source.splitlines():
            if line.startswith("from ."):
                imported = line.split()[1].removeprefix(".")
                assert (native / f"{imported}.py").exists(), line


WITHOUT_HF_FFN = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hf_ffn":
            raise ModuleNotFoundError("hf_ffn is not installed here", name="hf_ffn")

sys.meta_path.insert(0, Blocked())
import torch, transformers
from safetensors.torch import load_file
folder, case, auto_class, again = sys.argv[1:]
model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
case = load_file(case)
expected = case.pop("expected")
with torch.no_grad():
    found = model(**case)[0]
assert "hf_ffn" not in sys.modules
assert type(model).__module__.startswith("transformers_modules.")
assert torch.equal(found, expected), (found - expected).abs().max()
model.save_pretrained(again)  # saved again by somebody without hf_ffn, it is still whole
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "auto_class"),
    [
        ("BertModel", "AutoModel"),
        ("BertForMaskedLM", "AutoModelForMaskedLM"),
        ("BertForSequenceClassification", "AutoModelForSequenceClassification"),
        ("BertForTokenClassification", "AutoModelForTokenClassification"),
        ("BertForQuestionAnswering", "AutoModelForQuestionAnswering"),
        ("ViTModel", "AutoModel"),
        ("ViTForImageClassification", "AutoModelForImageClassification"),
    ],
)
def test_a_folder_loads_with_trust_remote_code_where_hf_ffn_is_not_importable(
    save_source: Save, tmp_path: Path, theirs: str, auto_class: str
) -> None:
    model = our_class(theirs).from_pretrained(save_source(theirs))
    model.save_pretrained(tmp_path / "native")
    case = inputs_for(model.config)
    with torch.no_grad():
        case["expected"] = model(**case)[0].contiguous()
    save_file(case, tmp_path / "case.safetensors")
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_HF_FFN, tmp_path / "native", tmp_path / "case.safetensors", auto_class,
         tmp_path / "again"],
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    first, again = (sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("native", "again"))
    assert first == again
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("native", "again")]
    assert weights[0] == weights[1]
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("native", "again")]
    assert configs[0] == configs[1]


def test_tied_weights_are_saved_once_and_are_one_after_loading(save_source: Save, tmp_path: Path) -> None:
    FFNForMaskedLM.from_pretrained(save_source("BertForMaskedLM")).save_pretrained(tmp_path / "native")
    names = load_file(tmp_path / "native" / "model.safetensors")
    assert "lm_head.decoder.weight" not in names
    again = FFNForMaskedLM.from_pretrained(tmp_path / "native")
    assert again.lm_head.decoder.weight is again.model.embeddings.word_embeddings.weight
    assert again.lm_head.decoder.bias is again.lm_head.bias


def test_untied_weights_stay_two(tmp_path: Path) -> None:
    source = telling_model(BertForMaskedLM, bert_config(tie_word_embeddings=False))
    source.save_pretrained(tmp_path / "source")
    model = FFNForMaskedLM.from_pretrained(tmp_path / "source")
    assert torch.equal(model.lm_head.decoder.weight, source.cls.predictions.decoder.weight)
    assert not torch.equal(model.lm_head.decoder.weight, model.model.embeddings.word_embeddings.weight)
    model.save_pretrained(tmp_path / "native")
    again = FFNForMaskedLM.from_pretrained(tmp_path / "native").state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again[name]), name


def test_layers_of_different_widths_are_saved_and_loaded(tmp_path: Path) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = FFNTextConfig(**sizes, intermediate_size=64, per_layer_config={1: {"intermediate_size": 40}})
    model = telling_model(FFNTextModel, config)
    assert [layer.ffn.linear_1.out_features for layer in model.encoder.layers] == [64, 40, 64]
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    inputs = {"input_ids": torch.arange(10).view(2, 5) + 1}
    assert torch.equal(again(**inputs).last_hidden_state, model(**inputs).last_hidden_state)
    assert FeedForward.from_pretrained(tmp_path, layer=1).linear_1.out_features == 40


def test_initialising_after_loading_overwrites_nothing(tmp_path: Path) -> None:
    model = FFNVisionModel(FFNVisionConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
                                           intermediate_size=64, image_size=16, patch_size=8,
                                           layer_scale_init_value=0.1))  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    model.save_pretrained(tmp_path)
    for name, tensor in FFNVisionModel.from_pretrained(tmp_path).state_dict().items():
        assert torch.equal(tensor, torch.full_like(tensor, 0.5)), name


# ---- failing to save -----------------------------------------------------------------------------------------


def test_a_failed_save_leaves_what_was_there(
    save_source: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"))
    native = tmp_path / "native"
    model.save_pretrained(native)
    before = {path.name: path.read_bytes() for path in native.iterdir()}

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transformers.modeling_utils, "safe_save_file", full_disk)
    nn.init.zeros_(model.pooler.dense.weight)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(native)
    assert {path.name: path.read_bytes() for path in native.iterdir()} == before
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path / "fresh")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["native", "source"]


def test_saving_over_another_number_of_shards_leaves_no_stale_weights(save_source: Save, tmp_path: Path) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"))
    native = tmp_path / "native"
    for size in ("20KB", "5GB", "30KB"):
        nn.init.constant_(model.pooler.dense.bias, float(size[0]))
        model.save_pretrained(native, max_shard_size=size)
        (native / "vocab.txt").write_text("kept")
        assert torch.equal(FFNTextModel.from_pretrained(native).pooler.dense.bias, model.pooler.dense.bias)
    assert not (native / "model.safetensors").exists()
    assert (native / "vocab.txt").read_text() == "kept"


def test_saving_onto_a_file_is_refused(save_source: Save, tmp_path: Path) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file"):
        model.save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_trained_classifier_loads_into_transformers_trainer_layout(save_source: Save, tmp_path: Path) -> None:
    """`Trainer` resumes with a raw, non-strict `load_state_dict`, which forgets whatever has another name."""
    model = FFNForSequenceClassification.from_pretrained(save_source("BertForSequenceClassification"))
    model.save_pretrained(tmp_path / "checkpoint")
    result = model.load_state_dict(load_file(tmp_path / "checkpoint" / "model.safetensors"), strict=False)
    assert result.missing_keys == []
    assert result.unexpected_keys == []
    assert isinstance(telling_model(BertForSequenceClassification, bert_config()), BertForSequenceClassification)


def test_a_native_checkpoint_without_head_takes_a_new_one(tmp_path: Path) -> None:
    config = FFNVisionConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64,
                             image_size=16, patch_size=8)  # fmt: skip
    FFNVisionModel(config).save_pretrained(tmp_path)
    model = FFNForImageClassification.from_pretrained(tmp_path, id2label={0: "cat", 1: "dog"})
    assert model.loading_report.new == ["classifier"]
    assert model.config.label2id == {"cat": 0, "dog": 1}
    assert vit_config().image_size == 32
