"""Which parameters are trained, and which decay."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from hf_ffn import (
    FFNForImageClassification,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNTextConfig,
    FFNVisionConfig,
)
from hf_ffn.training.parameters import add_lora, choose_trainable, parameter_groups

from tiny import telling_model

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SIZES, "vocab_size": 50, "max_position_embeddings": 16}
VISION = {**SIZES, "image_size": 16, "patch_size": 8}


def text_classifier() -> FFNForSequenceClassification:
    return telling_model(FFNForSequenceClassification, FFNTextConfig(**TEXT))


def image_classifier(**more: float) -> FFNForImageClassification:
    return telling_model(FFNForImageClassification, FFNVisionConfig(**VISION, **more))


def test_train_only_ffn_trains_four_tensors_a_layer_and_the_head() -> None:
    names = choose_trainable(text_classifier(), "ffn", freeze_embeddings=False)
    in_blocks = [name for name in names if ".layers." in name]
    assert sorted(in_blocks) == sorted(
        f"model.encoder.layers.{layer}.ffn.{linear}.{kind}"
        for layer in (0, 1)
        for linear in ("linear_1", "linear_2")
        for kind in ("weight", "bias")
    )
    assert sorted(set(names) - set(in_blocks)) == [
        "classifier.bias", "classifier.weight", "model.pooler.dense.bias", "model.pooler.dense.weight"
    ]  # fmt: skip


@pytest.mark.parametrize("model_class", [FFNForTokenClassification, FFNForImageClassification])
def test_train_only_ffn_works_without_a_pooler(model_class: type) -> None:
    is_text = model_class is FFNForTokenClassification
    model = model_class(FFNTextConfig(**TEXT) if is_text else FFNVisionConfig(**VISION))
    assert len(choose_trainable(model, "ffn", freeze_embeddings=False)) == 2 * 4 + 2


def test_what_is_frozen_does_not_move_and_the_rest_does() -> None:
    model = text_classifier()
    names = choose_trainable(model, "ffn", freeze_embeddings=False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=1e-2)
    model(input_ids=torch.arange(1, 13).view(2, 6), labels=torch.tensor([0, 1])).loss.backward()
    optimizer.step()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == (name not in names), name


def test_freezing_the_embeddings_freezes_them_alone() -> None:
    model = text_classifier()
    names = choose_trainable(model, None, freeze_embeddings=True)
    frozen = {name for name, _ in model.named_parameters()} - set(names)
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith("model.embeddings.")}


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="train_only='attention' must be ffn"):
        choose_trainable(text_classifier(), "attention", freeze_embeddings=False)


@pytest.mark.parametrize("model", [text_classifier(), image_classifier(layer_scale_init_value=0.1)])
def test_matrices_decay_and_biases_norms_scales_tokens_and_positions_do_not(model: nn.Module) -> None:
    decayed, kept = parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    decayed_ids = {id(parameter) for parameter in decayed["params"]}
    for name, parameter in model.named_parameters():
        is_plain_matrix = name.endswith("weight") and "norm" not in name and "position" not in name
        assert (id(parameter) in decayed_ids) == is_plain_matrix, name
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))


def test_lora_trains_adapters_and_head_and_refuses_what_is_not_there() -> None:
    adapted = add_lora(text_classifier(), "linear_1, q_proj", rank=4)
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    adapters = [name for name in trained if "lora_" in name]
    assert len(adapters) == 2 * 2 * 2
    assert all(".linear_1." in name or ".q_proj." in name for name in adapters)
    heads = [name for name in trained if "lora_" not in name]
    assert all("classifier" in name or "pooler" in name for name in heads)
    assert len(heads) == 4
    with pytest.raises(ValueError, match="no projection called dense; there are k_proj, linear_1, linear_2"):
        add_lora(text_classifier(), "dense", rank=4)


def test_adapters_are_saved_alike_whatever_the_hash_seed(tmp_path: Path) -> None:
    add_lora(text_classifier(), "v_proj, q_proj, linear_1, linear_2, q_proj", rank=4).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())
    assert saved["target_modules"] == ["linear_1", "linear_2", "q_proj", "v_proj"]
