"""What image encoders of other families have beyond ViT: tokens, positions, pooling; at other sizes too."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForImageClassification

import hf_ffn
from hf_ffn import (
    FFNForAudioClassification,
    FFNForImageClassification,
    FFNForImageClassificationWithTeacher,
    FFNVisionConfig,
    FFNVisionModel,
    export_pretrained,
)
from hf_ffn.grids_ffn import GridRotaryEmbedding, WindowPositionBias
from hf_ffn.pooling_ffn import pool_tokens

from families import ROWS, Row
from families.rows import source_class
from tiny import ffn_model, ffn_vision_config, image_inputs, telling_model


def row_of(name: str) -> Row:
    return next(row for row in ROWS if str(row) == name)


def images(*size: int) -> torch.Tensor:
    """Two images of a size."""
    return image_inputs(ffn_vision_config(), size=size or (32, 32))["pixel_values"]


def converted(name: str, ours: str, folder: Path, **labels: Any) -> tuple[Any, Any]:
    """A telling model of a row's class, and what it converts to."""
    row = row_of(name)
    theirs = row.family.heads[ours]
    source_config = row.source_config(theirs)
    source_config.update(labels)
    telling_model(source_class(theirs), source_config).save_pretrained(folder)
    return source_class(theirs).from_pretrained(folder), getattr(hf_ffn, ours).from_pretrained(folder)


# Other sizes of images

INTERPOLATING = ["deit", "vit-msn", "ijepa", "dinov2", "dinov2-with-registers", "clip", "siglip"]


@pytest.mark.parametrize("size", [(48, 48), (24, 40), (64, 16)])
@pytest.mark.parametrize("name", [*INTERPOLATING, "beit", "beit-shared-bias", "beit-absolute", "dinov3"])
def test_images_of_another_size_give_what_the_original_gives(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    original, model = converted(name, "FFNVisionModel", tmp_path)
    # DINO and BEiT take any size without being asked.
    asks = {} if name.startswith(("dino", "beit")) else {"interpolate_pos_encoding": True}
    with torch.no_grad():
        expected = original(images(*size), **asks).last_hidden_state
        found = model(images(*size), interpolate_pos_encoding=True).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


def test_an_encoder_without_learnt_positions_takes_any_size(tmp_path: Path) -> None:
    _, model = converted("dinov3", "FFNVisionModel", tmp_path)
    assert model(images(24, 40)).last_hidden_state.shape == (2, 1 + 3 + 3 * 5, 32)


@pytest.mark.parametrize("name", ["deit", "vit-msn", "siglip"])
def test_another_size_is_refused_where_positions_are_learnt(tmp_path: Path, name: str) -> None:
    _, model = converted(name, "FFNVisionModel", tmp_path)
    with pytest.raises(ValueError, match=r"24x40 pixels does not match image_size=32x32"):
        model(images(24, 40))


def test_a_beit_that_is_not_square_is_refused(tmp_path: Path) -> None:
    config = transformers.BeitConfig(**{**row_of("beit").config, "image_size": [32, 16]})
    telling_model(transformers.BeitModel, config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"relative positions and image_size=\[32, 16\] does not convert"):
        FFNVisionModel.from_pretrained(tmp_path)


# Positions in attention


def test_the_window_bias_depends_on_the_offset_alone() -> None:
    bias = WindowPositionBias(ffn_vision_config(image_size=(16, 24), num_attention_heads=2))
    torch.nn.init.normal_(bias.table)
    found = bias((2, 3))
    assert found.shape == (1, 2, 7, 7)
    places = [(down, across) for down in range(2) for across in range(3)]
    by_offset: dict[tuple[int, int], torch.Tensor] = {}
    for query, (down, across) in enumerate(places, start=1):
        for key, (other_down, other_across) in enumerate(places, start=1):
            value = found[0, :, query, key]
            first = by_offset.setdefault((down - other_down, across - other_across), value)
            assert torch.equal(first, value)
    values = torch.stack(list(by_offset.values()))
    assert len(values) == 3 * 5
    assert len(values.unique(dim=0)) == 3 * 5
    # The class token has a value as query, one as key, and one with itself.
    assert torch.equal(found[0, :, 0, 1:], bias.table[-3, :, None].expand(2, 6))
    assert torch.equal(found[0, :, 1:, 0], bias.table[-2, :, None].expand(2, 6))
    assert torch.equal(found[0, :, 0, 0], bias.table[-1])


def test_a_window_bias_refuses_a_back_end_that_cannot_add_it(tmp_path: Path) -> None:
    _, model = converted("beit", "FFNVisionModel", tmp_path)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="cannot add this model's position bias"):
        model(images())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_adds_a_window_bias(tmp_path: Path) -> None:
    _, model = converted("beit", "FFNVisionModel", tmp_path)
    tables = [parameter for name, parameter in model.named_parameters() if name.endswith("table")]
    assert tables
    for table in tables:
        torch.nn.init.normal_(table)
    model.set_attn_implementation("eager")
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        expected = model(images()).last_hidden_state
        model.set_attn_implementation("flex_attention")
        torch.testing.assert_close(model(images()).last_hidden_state, expected, atol=1e-5, rtol=0)


def test_rotary_positions_leave_tokens_before_the_patches_alone() -> None:
    config = ffn_vision_config(position_embedding_type="rotary", num_register_tokens=3)
    cos, sin = GridRotaryEmbedding(config).eval()(torch.zeros(1, 1, 32), (4, 2))
    assert cos.shape == sin.shape == (1, 4 + 8, 8)
    assert torch.equal(cos[:, :4], torch.ones(1, 4, 8))
    assert torch.equal(sin[:, :4], torch.zeros(1, 4, 8))
    assert len(sin[0, 4:].unique(dim=0)) == 8


@pytest.mark.parametrize("name", ["pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"])
def test_rotary_coordinates_are_disturbed_in_training_alone(name: str) -> None:
    config = ffn_vision_config(position_embedding_type="rotary", **{name: 1.5})
    rotary = GridRotaryEmbedding(config)
    torch.manual_seed(0)
    first, second = (rotary.train()(torch.zeros(1, 1, 32), (4, 4))[1] for _ in range(2))
    assert not torch.equal(first, second)
    plain = GridRotaryEmbedding(ffn_vision_config(position_embedding_type="rotary"))
    assert torch.equal(rotary.eval()(torch.zeros(1, 1, 32), (4, 4))[1], plain.eval()(torch.zeros(1, 1, 32), (4, 4))[1])


def test_rotary_coordinates_are_disturbed_as_the_originals(tmp_path: Path) -> None:
    row = row_of("dinov3")
    config = row.source_config()
    config.update({"pos_embed_shift": 0.3, "pos_embed_jitter": 1.4, "pos_embed_rescale": 1.7})
    telling_model(transformers.DINOv3ViTModel, config).save_pretrained(tmp_path)
    results = []
    for model_class in (transformers.DINOv3ViTModel, FFNVisionModel):
        model = model_class.from_pretrained(tmp_path).train()
        torch.manual_seed(3)
        results.append(model(images()).last_hidden_state)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-5)


# Masks


@pytest.mark.parametrize("name", ["dinov2", "dinov2-with-registers", "dinov3", "beit-absolute"])
def test_masked_patches_are_the_mask_token_as_in_the_original(tmp_path: Path, name: str) -> None:
    original, model = converted(name, "FFNVisionModel", tmp_path)
    with torch.no_grad():
        model.embeddings.mask_token.normal_()
        original.embeddings.mask_token.copy_(model.embeddings.mask_token.view_as(original.embeddings.mask_token))
        masked = torch.arange(16).expand(2, -1) % 3 == 0
        expected = original(images(), bool_masked_pos=masked).last_hidden_state
        found = model(images(), bool_masked_pos=masked).last_hidden_state
        assert not torch.equal(found, model(images()).last_hidden_state)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_masks_need_a_mask_token() -> None:
    model = FFNVisionModel(ffn_vision_config())
    with pytest.raises(ValueError, match="needs a model with use_mask_token=True"):
        model(images(), bool_masked_pos=torch.zeros(2, 16))


@pytest.mark.parametrize("name", ["dinov2", "clip", "siglip"])
def test_what_a_classifier_only_holds_to_go_back_is_not_trained(tmp_path: Path, name: str) -> None:
    _, model = converted(name, "FFNForImageClassification", tmp_path / "source")
    model.save_pretrained(tmp_path / "native")
    for each in (model, FFNForImageClassification.from_pretrained(tmp_path / "native"), type(model)(model.config)):
        each(images(), labels=torch.tensor([0, 1])).loss.backward()
        assert all((each.grad is not None) == each.requires_grad for each in each.parameters())
        frozen = {name for name, each in each.named_parameters() if not each.requires_grad}
        assert frozen
        assert all("mask_token" in name or name.startswith("model.pooler.") for name in frozen)


# Pooling


def test_pooling_by_words() -> None:
    tokens = torch.arange(10.0).view(1, 5, 2)
    assert pool_tokens(tokens, "cls", 2).tolist() == [[0, 1]]
    assert pool_tokens(tokens, "mean", 2).tolist() == [[6, 7]]
    assert pool_tokens(tokens, "cls_mean", 2).tolist() == [[0, 1, 6, 7]]
    assert pool_tokens(tokens, "cls_distillation", 2).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"pooling": "max"}, "pooling='max' must be one of 'cls', 'mean'"),
        ({"use_cls_token": False}, "pooling='cls' needs use_cls_token=True"),
        ({"use_cls_token": False, "add_pooling_layer": False}, "classifier_pooling='cls' needs use_cls_token=True"),
        ({"pooling": "cls_distillation"}, "needs use_distillation_token=True"),
        ({"classifier_pooling": "pooler", "add_pooling_layer": False}, "needs add_pooling_layer=True"),
        ({"position_embedding_type": "relative"}, "position_embedding_type='relative' must be one of"),
        ({"position_embedding_type": "rotary", "num_attention_heads": 16}, "a number of channels that 4 divides"),
        ({"num_register_tokens": -1}, "num_register_tokens=-1 must be at least 0"),
        ({"pos_embed_jitter": 0.5}, "pos_embed_jitter=0.5 is a factor and must be at least 1"),
        ({"rope_theta": 0}, "rope_theta=0 must be a finite number greater than 0"),
        ({"use_relative_position_bias": True, "num_register_tokens": 2}, "need the class token, and no other token"),
        ({"patch_stride": 0}, "patch_stride=0 must be at least 1"),
        ({"embedding_dropout_prob": 2.0}, "embedding_dropout_prob=2.0 is a probability"),
    ],
)
def test_impossible_images_are_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ffn_vision_config(**overrides)


@pytest.mark.parametrize(("stride", "grid"), [(None, (4, 4)), (4, (7, 7)), ((8, 3), (4, 9)), (24, (2, 2))])
def test_patches_overlap_as_the_stride_says(stride: Any, grid: tuple[int, int]) -> None:
    config = ffn_vision_config(patch_stride=stride)
    assert config.grid_size == grid
    model = FFNVisionModel(config)
    assert model.embeddings.patch_embeddings.grid_of(images()) == grid
    assert model(images()).last_hidden_state.shape == (2, 1 + grid[0] * grid[1], 32)


# Heads


def test_both_classifiers_of_deit_follow_the_labels(tmp_path: Path) -> None:
    names = {0: "ant", 1: "bee", 2: "cat"}
    labels = {"id2label": names, "label2id": {name: index for index, name in names.items()}}
    _, model = converted("deit", "FFNForImageClassificationWithTeacher", tmp_path, **labels)
    moved = FFNForImageClassificationWithTeacher.from_pretrained(tmp_path, id2label={0: "cat", 1: "ant", 2: "bee"})
    for name in ("cls_classifier", "distillation_classifier"):
        assert torch.equal(getattr(moved, name).weight, getattr(model, name).weight[[2, 0, 1]])
    fewer = FFNForImageClassificationWithTeacher.from_pretrained(tmp_path, num_labels=2)
    for name in ("cls_classifier", "distillation_classifier"):
        assert torch.equal(getattr(fewer, name).weight, getattr(model, name).weight[:2])
    assert fewer.loading_report.new == []
    assert "the checkpoint's rows of ['ant', 'bee'] stay" in str(fewer.loading_report)
    other = FFNForImageClassificationWithTeacher.from_pretrained(tmp_path, id2label={0: "x", 1: "y", 2: "z"})
    for part in (other.cls_classifier, other.distillation_classifier):
        assert part.weight.abs().max() <= 2 * other.config.initializer_range


def test_deits_two_logits_are_given_and_their_mean_is_trained(tmp_path: Path) -> None:
    _, model = converted("deit", "FFNForImageClassificationWithTeacher", tmp_path)
    labels = torch.tensor([0, 1])
    outputs = model(images(), labels=labels)
    assert torch.equal(outputs.logits, (outputs.cls_logits + outputs.distillation_logits) / 2)
    assert torch.equal(outputs.loss, torch.nn.functional.cross_entropy(outputs.logits, labels))


def test_two_classifiers_need_both_tokens() -> None:
    with pytest.raises(ValueError, match="needs use_cls_token=True and use_distillation_token=True"):
        FFNForImageClassificationWithTeacher(ffn_vision_config())


@pytest.mark.parametrize("class_name", ["FFNForImageClassification", "FFNForImageClassificationWithTeacher"])
def test_the_auto_class_takes_the_classifier_that_was_saved(tmp_path: Path, class_name: str) -> None:
    model = ffn_model(class_name, use_distillation_token=True)
    model.save_pretrained(tmp_path)
    again = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert type(again) is type(model)
    assert str(again.loading_report) == ""
    made = AutoModelForImageClassification.from_config(ffn_vision_config(use_distillation_token=True))
    assert type(made) is FFNForImageClassification


def test_a_spectrogram_is_an_image_as_high_as_there_are_mel_bins(tmp_path: Path) -> None:
    _, model = converted("audio-spectrogram-transformer", "FFNForAudioClassification", tmp_path)
    encoder = FFNVisionModel.from_pretrained(tmp_path)
    spectrograms = torch.randn(2, 30, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        pooled = encoder(spectrograms.transpose(1, 2).unsqueeze(1)).pooler_output
        assert torch.equal(model(spectrograms).logits, model.classifier(model.pooled_norm(pooled)))
    assert model(spectrograms, labels=torch.tensor([0, 1])).loss.requires_grad
    assert isinstance(model, FFNForAudioClassification)


def test_audio_classifiers_come_by_their_auto_class(tmp_path: Path) -> None:
    _, model = converted("audio-spectrogram-transformer", "FFNForAudioClassification", tmp_path / "source")
    model.save_pretrained(tmp_path / "native")
    found = transformers.AutoModelForAudioClassification.from_pretrained(tmp_path / "native")
    assert type(found) is FFNForAudioClassification


# Whole models of two towers


def test_a_tower_out_of_a_whole_model_goes_back_as_a_tower(tmp_path: Path) -> None:
    row = row_of("clip")
    config = transformers.CLIPConfig(**row.beside, vision_config=row.config)
    original = telling_model(transformers.CLIPModel, config)
    original.save_pretrained(tmp_path / "whole")
    model = FFNVisionModel.from_pretrained(tmp_path / "whole")
    reasons = model.loading_report.unused
    assert {name.partition(".")[0] for name in reasons} == {
        *("text_model", "text_projection", "visual_projection", "logit_scale"),
    }
    # All are kept by name, but not each is printed.
    assert len(reasons) > 20
    assert len(str(model.loading_report).splitlines()) < 8
    export_pretrained(model, tmp_path / "tower")
    tower = transformers.CLIPVisionModel.from_pretrained(tmp_path / "tower")
    with torch.no_grad():
        expected = original.vision_model(images()).pooler_output
        assert torch.equal(tower(images()).pooler_output, expected)
        assert torch.equal(model(images()).pooler_output, expected)


def test_a_classifier_from_a_whole_model_goes_back_with_its_other_part(tmp_path: Path) -> None:
    row = row_of("siglip")
    config = transformers.SiglipConfig(**row.beside, vision_config=row.config)
    telling_model(transformers.SiglipModel, config).save_pretrained(tmp_path / "whole")
    model = FFNForImageClassification.from_pretrained(tmp_path / "whole", num_labels=3)
    assert model.loading_report.new == ["classifier"]
    export_pretrained(model, tmp_path / "back")
    back = transformers.SiglipForImageClassification.from_pretrained(tmp_path / "back")
    assert back.config.text_config.hidden_size == row.beside["text_config"]["hidden_size"]
    with torch.no_grad():
        assert torch.equal(back.eval()(images()).logits, model.eval()(images()).logits)


def test_a_family_without_the_features_refuses_a_model_that_has_them() -> None:
    model = FFNVisionModel(FFNVisionConfig(**ffn_vision_config(use_distillation_token=True).to_dict()))
    with pytest.raises(ValueError, match="vit cannot express use_distillation_token=True"):
        export_pretrained(model, "nowhere", family="vit")


@pytest.mark.parametrize(
    ("family", "overrides", "message"),
    [
        ("dinov2", {"intermediate_size": 65, "pooler_dense": False}, "cannot express intermediate_size=65"),
        ("dinov2", {"gated": True, "hidden_act": "gelu"}, "cannot express hidden_act='gelu' beside gated=True"),
        ("beit", {"pooling": "mean"}, "beit cannot express pooling='mean'"),
        ("beit", {"position_embedding_type": "rotary"}, "beit cannot express position_embedding_type='rotary'"),
    ],
)
def test_what_a_family_cannot_compute_back_is_refused(family: str, overrides: dict[str, Any], message: str) -> None:
    chosen = hf_ffn.FAMILIES[family]
    own = {name: value for name, value in chosen.fixed.items() if name not in overrides}
    config = ffn_vision_config(**{"layer_scale_init_value": 1.0, "drop_path_rate": 0.0, **own, **overrides})
    with pytest.raises(ValueError, match=message):
        chosen.computed.write(config)


def test_biases_that_only_dinov3_could_have_are_refused() -> None:
    config = transformers.DINOv3ViTConfig(query_bias=True, value_bias=False).to_dict()
    with pytest.raises(ValueError, match="value_bias=False does not convert"):
        hf_ffn.FAMILIES["dinov3"].translate_config(config)


@pytest.mark.parametrize("class_name", ["FFNVisionModel", "FFNForImageClassification"])
def test_a_mask_token_that_a_checkpoint_lacks_is_newly_made_and_named(tmp_path: Path, class_name: str) -> None:
    model = ffn_model(class_name)
    model.save_pretrained(tmp_path)
    masking = type(model).from_pretrained(tmp_path, use_mask_token=True)
    prefix = "" if class_name == "FFNVisionModel" else "model."
    assert masking.loading_report.new == [f"{prefix}embeddings.mask_token"]
    assert masking.base_model.embeddings.mask_token.abs().max() == 0
    assert masking.base_model.embeddings.mask_token.requires_grad is (class_name == "FFNVisionModel")
    with torch.no_grad():
        assert torch.equal(masking(images())[0], model(images())[0])
