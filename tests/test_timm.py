"""timm's vision transformers: sizes from the tensors, fused weights taken apart, and back to the same file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from hf_ffn import FAMILIES, FeedForward, FFNForImageClassification, FFNVisionModel, convert, export_pretrained
from hf_ffn.checkpoint_ffn import read_raw_config
from hf_ffn.conversion import model_class_for
from hf_ffn.families.timm_architectures import ARCHITECTURES

WIDTH, HEADS, CHANNELS, PATCH, IMAGE = 32, 4, 3, 8, (16, 24)
PATCHES = IMAGE[0] // PATCH * (IMAGE[1] // PATCH)


def tensors(
    prefix: tuple[str, ...] = ("cls_token",),
    registers: int = 0,
    positions: int | None = None,
    width: int = 48,
    gated: bool = False,
    extra: tuple[str, ...] = ("norm",),
    without: tuple[str, ...] = (),
    classes: int = 5,
) -> dict[str, torch.Tensor]:
    """A small timm checkpoint's tensors, large enough that each matters."""
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (WIDTH, CHANNELS, PATCH, PATCH),
        "patch_embed.proj.bias": (WIDTH,),
        "pos_embed": (1, len(prefix) + PATCHES if positions is None else positions, WIDTH),
        "head.weight": (classes, WIDTH),
        "head.bias": (classes,),
        **dict.fromkeys(prefix, (1, 1, WIDTH)),
    }
    if registers:
        shapes["reg_token"] = (1, registers, WIDTH)
    if "dist_token" in prefix:
        shapes |= {"head_dist.weight": (classes, WIDTH), "head_dist.bias": (classes,)}
    for name in extra:
        if not name.startswith("ls"):
            shapes |= {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}
    for layer in range(2):
        block = {
            "attn.qkv": (3 * WIDTH, WIDTH),
            "attn.proj": (WIDTH, WIDTH),
            "mlp.fc1": (2 * width if gated else width, WIDTH),
            "mlp.fc2": (WIDTH, width),
        }
        for name, shape in block.items():
            shapes |= {f"blocks.{layer}.{name}.weight": shape, f"blocks.{layer}.{name}.bias": shape[:1]}
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{layer}.{name}.weight": (WIDTH,), f"blocks.{layer}.{name}.bias": (WIDTH,)}
        if "ls" in extra:
            shapes |= {f"blocks.{layer}.ls{half}.gamma": (WIDTH,) for half in (1, 2)}
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) == 1 else shape[-1] ** -0.5)
        + (1.0 if name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "gamma")) else 0.0)
        for name, shape in shapes.items()
        if not name.endswith(without)
    }


def save(folder: Path, weights: dict[str, torch.Tensor], **config: Any) -> Path:
    """Write a checkpoint as timm does."""
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    own = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 5,
        "num_features": WIDTH,
        "global_pool": "token",
        "model_args": {"num_heads": HEADS},
        "pretrained_cfg": {"input_size": [CHANNELS, *IMAGE], "mean": [0.5, 0.5, 0.5]},
    }
    (folder / "config.json").write_text(json.dumps({**own, **config}, indent=2) + "\n")
    return folder


def reference(
    weights: dict[str, torch.Tensor], images: torch.Tensor, pool: str, act: Any = F.gelu, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """What timm computes, written out: all tokens after the last LayerNorm, and the logits."""
    w = {name: tensor.to(images.dtype) for name, tensor in weights.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        known = f"{name}.weight" in w
        return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], eps) if known else x

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    batch = len(images)
    patches = F.conv2d(images, w["patch_embed.proj.weight"], w.get("patch_embed.proj.bias"), stride=PATCH)
    x = patches.flatten(2).transpose(1, 2)
    tokens = [w[name].expand(batch, -1, -1) for name in ("cls_token", "dist_token") if name in w]
    registers = [w["reg_token"].expand(batch, -1, -1)] if "reg_token" in w else []
    if w["pos_embed"].shape[1] == x.shape[1]:
        x = torch.cat([*tokens, *registers, x + w["pos_embed"]], dim=1)
    else:
        assert not registers
        x = torch.cat([*tokens, x], dim=1) + w["pos_embed"]
    x = norm(x, "norm_pre")
    for layer in range(2):
        block = f"blocks.{layer}"
        qkv = linear(norm(x, f"{block}.norm1"), f"{block}.attn.qkv")
        query, key, value = qkv.reshape(batch, -1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + linear(attended, f"{block}.attn.proj") * w.get(f"{block}.ls1.gamma", 1.0)
        inner = linear(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1")
        if inner.shape[-1] == w[f"{block}.mlp.fc2.weight"].shape[1]:
            inner = act(inner)
        else:
            gate, inner = inner.chunk(2, dim=-1)
            inner = act(gate) * inner
        x = x + linear(inner, f"{block}.mlp.fc2") * w.get(f"{block}.ls2.gamma", 1.0)
    x = norm(x, "norm")
    pooled = norm(x[:, -PATCHES:].mean(dim=1), "fc_norm") if pool == "avg" else x[:, 0]
    logits = linear(pooled, "head")
    return x, (logits + linear(x[:, 1], "head_dist")) / 2 if "head_dist.weight" in w else logits


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}, {}),
    "mean": ({"extra": ("fc_norm",)}, {"global_pool": "avg"}, {"pool": "avg"}),
    "mean-after-norm": ({"prefix": ()}, {"global_pool": "avg"}, {"pool": "avg"}),
    "registers": ({"registers": 3, "positions": PATCHES, "extra": ("norm", "ls")}, {}, {}),
    "without-biases": ({"without": ("qkv.bias", "patch_embed.proj.bias")}, {}, {}),
    "distilled": ({"prefix": ("cls_token", "dist_token")}, {}, {}),
    "clip": (
        {"extra": ("norm", "norm_pre")},
        {"architecture": "vit_base_patch16_clip_quickgelu_224"},
        {"act": lambda x: x * torch.sigmoid(1.702 * x), "eps": 1e-5},
    ),
    "gated": (
        {"gated": True, "extra": ("norm", "ls")},
        {"architecture": "vit_giant_patch14_dinov2"},
        {"act": F.silu},
    ),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor], dict[str, Any]]:
    """Each form's folder, tensors, and what the reference must know."""
    parts, config, told = FORMS[request.param]
    weights = tensors(**parts)
    return save(tmp_path / "timm", weights, **config), weights, {"pool": "token", **told}


def images(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Two images."""
    return torch.randn(2, CHANNELS, *IMAGE, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_are_within_three_times_the_originals_own_error(form: Any, dtype: torch.dtype, attention: str) -> None:
    folder, weights, told = form
    model = model_class_for(folder).from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    assert str(model.loading_report) == ""
    rounded = {name: tensor.to(dtype) for name, tensor in weights.items()}
    with torch.no_grad():
        outputs = model(images(dtype), output_hidden_states=True)
        found = (model.model.encoder.norm(outputs.hidden_states[-1]), outputs.logits)
    expected = reference(rounded, images(dtype), **told)
    exact = reference(rounded, images(dtype).double(), **told)
    for ours, theirs, best in zip(found, expected, exact, strict=True):
        own_error = max(torch.dist(theirs.double(), best), torch.finfo(dtype).eps / 2 * best.abs().max())
        assert torch.dist(ours.double(), best) <= 3 * own_error


def test_an_unchanged_model_goes_back_byte_for_byte(form: Any, tmp_path: Path) -> None:
    folder, _, _ = form
    export_pretrained(model_class_for(folder).from_pretrained(folder), tmp_path / "back")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_saved_model_gives_the_same_and_still_goes_back(form: Any, tmp_path: Path) -> None:
    folder, _, _ = form
    model_class = model_class_for(folder)
    model = model_class.from_pretrained(folder)
    model.save_pretrained(tmp_path / "ours")
    again = model_class.from_pretrained(tmp_path / "ours")
    with torch.no_grad():
        assert torch.equal(again(images()).logits, model(images()).logits)
    export_pretrained(again, tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_the_encoder_alone_leaves_the_head_and_says_so(tmp_path: Path) -> None:
    weights = tensors()
    folder = save(tmp_path / "timm", weights)
    model = FFNVisionModel.from_pretrained(folder)
    assert set(model.loading_report.unused) == {"head.weight", "head.bias"}
    tokens, _ = reference(weights, images(), "token")
    with torch.no_grad():
        outputs = model(images())
    torch.testing.assert_close(outputs.last_hidden_state, tokens, rtol=0, atol=1e-5)
    assert torch.equal(outputs.pooler_output, outputs.last_hidden_state[:, 0])


def test_sizes_come_from_the_tensors_and_not_from_the_name(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors(), architecture="vit_large_patch14_224")
    config = FFNForImageClassification.from_pretrained(folder).config
    assert (config.hidden_size, config.num_hidden_layers, config.intermediate_size) == (WIDTH, 2, 48)
    assert (config.patch_size, config.image_size, config.num_labels) == ([PATCH, PATCH], list(IMAGE), 5)
    assert config.num_attention_heads == HEADS


def test_what_only_timm_defines_comes_from_the_definition() -> None:
    assert ARCHITECTURES["vit_huge_patch14_224"] == (16, "gelu", 1e-6)
    assert ARCHITECTURES["vit_base_patch32_clip_quickgelu_224"] == (None, "quick_gelu", 1e-5)
    assert ARCHITECTURES["vit_giant_patch14_dinov2"][1] == "silu"


def test_one_head_for_every_64_channels_where_timm_defines_no_other(tmp_path: Path) -> None:
    weights = {
        name: torch.zeros([size * 4 if size in (WIDTH, 3 * WIDTH) else size for size in tensor.shape])
        for name, tensor in tensors().items()
    }
    folder = save(tmp_path / "timm", weights, model_args={})
    assert FFNForImageClassification.from_pretrained(folder).config.num_attention_heads == 2


def plain_config(**changed: Any) -> dict[str, Any]:
    """A config.json as timm writes it today."""
    own = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 5,
        "label_names": list("vwxyz"),
        "global_pool": "token",
        "model_args": {"num_heads": HEADS, "num_classes": 5, "in_chans": CHANNELS, "img_size": list(IMAGE)},
        "pretrained_cfg": {"input_size": [CHANNELS, *IMAGE], "mean": [0.5, 0.5, 0.5], "num_classes": 5},
    }
    return {**own, **changed}


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


# Other ways to say the same: with the tensors' prefix
OTHER_WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "transformers' wrapper": (plain_config(model_type="timm_wrapper", do_pooling=True), "timm_model."),
    "no architecture": (without(plain_config(), "architecture"), ""),
    "wrapped, no architecture": (without(plain_config(model_type="timm_wrapper"), "architecture"), "timm_model."),
    "architecture inside": (
        plain_config(
            architecture=None, pretrained_cfg={"architecture": "vit_tiny_patch16_224", "input_size": [3, *IMAGE]}
        ),
        "",
    ),
    "architecture with a tag": (plain_config(architecture="vit_tiny_patch16_224.augreg_in21k"), ""),
    "no pooling stated": (without(plain_config(), "global_pool"), ""),
    "labels by number": (plain_config(label_names={str(row): name for row, name in enumerate("vwxyz")}), ""),
    "defaults": (plain_config(model_args={"num_heads": HEADS, "qk_norm": False, "act_layer": None}), ""),
    "flat": (
        {
            **without(plain_config(), "pretrained_cfg", "label_names", "global_pool"),
            "labels": list("vwxyz"),
            "input_size": [CHANNELS, *IMAGE],
        },
        "",
    ),
    "flat, no architecture": (
        {"model_args": {"num_heads": HEADS}, "input_size": [CHANNELS, *IMAGE], "label_names": list("vwxyz")},
        "",
    ),
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_every_way_to_write_a_folder_loads_as_the_plain_one(tmp_path: Path, way: str) -> None:
    config, prefix = OTHER_WAYS[way]
    plain, other = save(tmp_path / "plain", tensors(), **plain_config()), tmp_path / "other"
    other.mkdir()
    save_file({prefix + name: tensor for name, tensor in tensors().items()}, other / "model.safetensors")
    (other / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    expected = FFNForImageClassification.from_pretrained(plain)
    model_class = model_class_for(other)
    assert model_class is FFNForImageClassification
    found = model_class.from_pretrained(other)
    of_the_file = ("source_config", "_name_or_path")
    assert without(found.config.to_dict(), *of_the_file) == without(expected.config.to_dict(), *of_the_file)
    assert torch.equal(found(images()).logits, expected(images()).logits)
    export_pretrained(found, tmp_path / "back")
    stored = json.loads((tmp_path / "back" / "config.json").read_text())
    assert without(stored, "num_classes") == without(config, "num_classes", "model_type")
    assert torch.equal(
        model_class_for(tmp_path / "back").from_pretrained(tmp_path / "back")(images()).logits,
        expected(images()).logits,
    )


@pytest.mark.parametrize("arguments", [{"model_args": None}, {}])
def test_arguments_that_are_null_are_none(tmp_path: Path, arguments: dict[str, Any]) -> None:
    folder = save(
        tmp_path / "timm", tensors(), **{**plain_config(architecture="test_vit", model_args={}), **arguments}
    )
    model = FFNForImageClassification.from_pretrained(folder)
    assert model.config.num_attention_heads == 2
    export_pretrained(model, tmp_path / "back")
    assert (tmp_path / "back" / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_dropout_is_no_matter_and_goes_back_as_it_is_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stated = {"drop_path_rate": 0.1, "proj_drop_rate": 0.2, "attn_drop_rate": 0.3, "drop_rate": 0.4}
    folder = save(tmp_path / "timm", tensors(), **plain_config(model_args={"num_heads": HEADS, **stated}))
    model = FFNForImageClassification.from_pretrained(folder)
    assert "drop_rate=0.4" in caplog.text
    config = model.config
    assert (config.drop_path_rate, config.attention_probs_dropout_prob) == (0.1, 0.3)
    assert (config.hidden_dropout_prob, config.activation_dropout_prob, config.embedding_dropout_prob) == (0.2, 0.2, 0)
    plain = FFNForImageClassification.from_pretrained(save(tmp_path / "plain", tensors(), **plain_config()))
    assert torch.equal(model(images()).logits, plain(images()).logits)
    export_pretrained(model, tmp_path / "back")
    assert (tmp_path / "back" / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    model.config.drop_path_rate = 0.5
    export_pretrained(model, tmp_path / "changed")
    changed = json.loads((tmp_path / "changed" / "config.json").read_text())
    assert changed["model_args"] == {"num_heads": HEADS, **stated, "drop_path_rate": 0.5}


def test_what_transformers_saved_goes_back_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrapper = {"architectures": ["TimmWrapperForImageClassification"], "model_type": "timm_wrapper"}
    wrapper |= {"architecture": "test_vit", "label_names": list("vwxyz"), "num_classes": 5}
    folder = save(tmp_path / "timm", tensors(prefix=("cls_token",), positions=10))
    stored = {**wrapper, "model_args": None}
    (folder / "config.json").write_text(json.dumps(stored))
    model, _ = convert(folder, tmp_path / "ours", check=False)
    assert "does not say how images are prepared" in caplog.text
    assert not (tmp_path / "ours" / "preprocessor_config.json").exists()
    export_pretrained(model, tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == stored
    model.config.drop_path_rate = 0.1
    export_pretrained(model, tmp_path / "changed")
    changed = json.loads((tmp_path / "changed" / "config.json").read_text())
    assert changed == {**wrapper, "model_args": {"drop_path_rate": 0.1}}


@pytest.mark.parametrize("flat", [False, True])
def test_another_image_size_goes_back_wherever_timm_reads_it(tmp_path: Path, flat: bool) -> None:
    way = OTHER_WAYS["flat"][0] if flat else plain_config()
    config = without(way, "model_args") | {"architecture": "test_vit", "crop_pct": 0.9, "num_features": WIDTH}
    folder = save(tmp_path / "timm", tensors())
    (folder / "config.json").write_text(json.dumps(config))
    model = FFNForImageClassification.from_pretrained(folder, image_size=(32, 40))
    export_pretrained(model, tmp_path / "back")
    stored = json.loads((tmp_path / "back" / "config.json").read_text())
    assert stored["model_args"] == {"img_size": [32, 40]}
    assert stored["pretrained_cfg"]["input_size"] == [CHANNELS, 32, 40]
    assert (stored["architecture"], stored["num_features"]) == ("test_vit", WIDTH)
    assert (stored["pretrained_cfg"] if flat else stored)["crop_pct"] == 0.9
    again = FFNForImageClassification.from_pretrained(tmp_path / "back")
    assert again.config.id2label == model.config.id2label
    assert again.config.image_size == [32, 40]


def test_the_wrappers_configuration_names_classes_once_and_an_architecture_always(tmp_path: Path) -> None:
    known = save(tmp_path / "known", tensors(), **plain_config())
    (config,) = FAMILIES["timm"].original_keywords(read_raw_config(known, {})).values()
    assert (config.architecture, config.num_labels) == ("vit_tiny_patch16_224", 5)
    assert config.model_args == {"num_heads": HEADS, "in_chans": CHANNELS, "img_size": list(IMAGE)}
    unknown = save(tmp_path / "unknown", tensors(extra=("fc_norm",)))
    (unknown / "config.json").write_text(json.dumps({"model_args": {"num_heads": HEADS}, "input_size": [3, *IMAGE]}))
    (config,) = FAMILIES["timm"].original_keywords(read_raw_config(unknown, {})).values()
    sizes = {"img_size": list(IMAGE), "patch_size": [PATCH, PATCH], "embed_dim": WIDTH, "depth": 2, "num_heads": HEADS}
    parts = {"global_pool": "avg", "fc_norm": True, "final_norm": False, "class_token": True, "reg_tokens": 0}
    assert {name: config.model_args[name] for name in sizes | parts} == sizes | parts
    assert int(WIDTH * config.model_args["mlp_ratio"]) == 48


def test_labels_that_were_given_later_go_back(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors())
    model = FFNForImageClassification.from_pretrained(folder)
    export_pretrained(model, tmp_path / "as it was")
    assert (tmp_path / "as it was" / "config.json").read_text() == (folder / "config.json").read_text()
    model.config.id2label = dict(enumerate("vwxyz"))
    export_pretrained(model, tmp_path / "named")
    assert json.loads((tmp_path / "named" / "config.json").read_text())["label_names"] == list("vwxyz")


def test_labels_come_by_name_and_fewer_keep_the_first_rows(tmp_path: Path) -> None:
    names = ["ant", "bee", "cat", "dog", "elk"]
    arguments = {"num_heads": HEADS, "num_classes": 5}
    folder = save(tmp_path / "timm", tensors(), label_names=names, model_args=arguments)
    model = FFNForImageClassification.from_pretrained(folder)
    assert model.config.id2label == dict(enumerate(names))
    moved = FFNForImageClassification.from_pretrained(folder, id2label=dict(enumerate(reversed(names))))
    assert torch.equal(moved.classifier.weight, model.classifier.weight.flip(0))
    export_pretrained(moved, tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["label_names"] == names[::-1]
    fewer = FFNForImageClassification.from_pretrained(folder, num_labels=2)
    assert fewer.classifier.weight.shape[0] == 2
    assert list(fewer.config.id2label.values()) == names[:2]
    assert torch.equal(fewer.classifier.weight, model.classifier.weight[:2])
    export_pretrained(fewer, tmp_path / "fewer")
    stored = json.loads((tmp_path / "fewer" / "config.json").read_text())
    assert (stored["num_classes"], stored["model_args"]["num_classes"]) == (2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "resnet50"}, "resnet50' does not convert: an architecture that hf_ffn does not know"),
        ({"global_pool": "map"}, "global_pool='map'"),
        ({"model_args": {"num_heads": HEADS, "qk_norm": True}}, "model_args qk_norm"),
        ({"pretrained_cfg": {}, "model_args": {"num_heads": HEADS}}, "7 positions"),
        (
            {"architecture": None, "model_args": None},
            'of 32 channels the number of heads does not follow. Add "architec',
        ),
        ({"label_names": ["ant", "bee"]}, "label_names for 2 rows, and a head of 5"),
    ],
)
def test_what_does_not_convert_is_refused_by_its_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = save(tmp_path / "timm", tensors(), **change)
    with pytest.raises(ValueError, match=message):
        FFNForImageClassification.from_pretrained(folder)


def test_gated_blocks_or_a_norm_before_need_an_architecture(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors(gated=True), architecture=None)
    with pytest.raises(ValueError, match=r'several activations and epsilons. Add "architecture"'):
        FFNForImageClassification.from_pretrained(folder)


def test_another_model_of_timms_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", {"conv1.weight": torch.zeros(2, 3, 3, 3)}, architecture="resnet50")
    with pytest.raises(ValueError, match="'resnet50' is no vision transformer that converts"):
        FFNForImageClassification.from_pretrained(folder)


def test_an_unknown_part_of_a_block_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors() | {"blocks.0.attn.q_norm.weight": torch.ones(8)})
    with pytest.raises(ValueError, match=r"left over: .*attn\.q_norm\.weight"):
        FFNForImageClassification.from_pretrained(folder)


def test_a_block_of_a_fused_checkpoint_is_read_alone(tmp_path: Path) -> None:
    weights = tensors(gated=True)
    folder = save(tmp_path / "timm", weights, architecture="vit_giant_patch14_dinov2")
    block = FeedForward.from_pretrained(folder, layer=1)
    gate, value = weights["blocks.1.mlp.fc1.weight"].chunk(2)
    assert torch.equal(block.linear_gate.weight, gate)
    assert torch.equal(block.linear_1.weight, value)
    assert torch.equal(block.linear_2.weight, weights["blocks.1.mlp.fc2.weight"])


def test_a_pickled_checkpoint_of_timms_loads_too(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors())
    expected = FFNForImageClassification.from_pretrained(folder)(images()).logits
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert torch.equal(FFNForImageClassification.from_pretrained(folder)(images()).logits, expected)


def test_a_whole_folder_converts(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors())
    model, report = convert(folder, tmp_path / "ours", check=False)
    assert report is None
    assert type(model) is FFNForImageClassification
    assert (tmp_path / "ours" / "config.json").exists()


def test_only_what_came_from_timm_goes_back_to_it(tmp_path: Path) -> None:
    folder = save(tmp_path / "timm", tensors())
    model = FFNForImageClassification.from_pretrained(folder)
    model.config.source_family = "vit"
    with pytest.raises(ValueError, match="only what came from one can go back"):
        export_pretrained(model, tmp_path / "back", family="timm")
    assert not (tmp_path / "back").exists()
