"""Loading: what converts, bit for bit, from every spelling, and its configuration."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import BertForPreTraining

import hf_ffn
from hf_ffn import (
    FFNForMaskedLM,
    FFNTextConfig,
    FFNTextModel,
    FFNVisionConfig,
    FFNVisionModel,
)

from tiny import (
    BERT_CLASSES,
    VIT_CLASSES,
    bert_config,
    inputs_for,
    rewrite,
    telling_model,
    text_inputs,
    to_bin,
)

Save = Callable[..., Path]


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
        assert torch.equal(model(**inputs, unpad="never").logits, source(**inputs).prediction_logits)


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
