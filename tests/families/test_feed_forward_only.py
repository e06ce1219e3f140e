"""Families of which feed-forward blocks alone can be read: each block computes what the original's own modules do."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from hf_ffn import FeedForward, FFNConfig, FFNTextModel, FFNVisionModel, convert
from hf_ffn.families import FEED_FORWARD_ONLY

from tiny import drop, rewrite, rewrite_config, telling_model, to_bin

# Layers and widths of text and vision differ, so that the one is not taken for the other.
BLOCK = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
VISION = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
TEXT = {**BLOCK, "vocab_size": 50, "max_position_embeddings": 40}
IMAGES = {**VISION, "image_size": 16, "patch_size": 8}
EPS, OTHER_EPS = {"layer_norm_eps": 3e-6}, {"layer_norm_eps": 4e-6}
BERT_DROPOUT = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
SPEECH = {
    **BLOCK,
    **EPS,
    "hidden_dropout": 0.3,
    "activation_dropout": 0.4,
    "attention_dropout": 0.2,
    "conv_dim": (16, 16),
    "conv_stride": (2, 2),
    "conv_kernel": (3, 3),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 20,
}
WHISPER = {
    "d_model": 32,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 40,
    "dropout": 0.3,
    "activation_dropout": 0.4,
    "attention_dropout": 0.2,
    "init_std": 0.01,
    "vocab_size": 50,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
}


def bert_like(layer: Any) -> Callable:
    return lambda x: layer.output.dropout(layer.output.dense(layer.intermediate(x)))


def mlp(layer: Any) -> Callable:
    return layer.mlp


def speech_like(layer: Any) -> Callable:
    return layer.feed_forward


def whisper_like(layer: Any) -> Callable:
    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.dropout(layer.activation_fn(layer.fc1(x)), layer.activation_dropout, layer.training)
        return nn.functional.dropout(layer.fc2(x), layer.dropout, layer.training)

    return feed_forward


@dataclass
class Case:
    """A family's class and what its blocks are.

    Attributes:
        model_class: of transformers.
        sizes: keywords of its configuration.
        layers: where the blocks are.
        feed_forward: from a block to the function that its feed-forward modules compute together.
        expected: fields of our configuration.
        part: as in `FeedForward.from_pretrained`.
    """

    model_class: str
    sizes: dict[str, Any]
    layers: str
    feed_forward: Callable[[Any], Callable]
    expected: dict[str, Any]
    part: str | None = None

    @property
    def config(self) -> Any:
        return getattr(transformers, self.model_class).config_class(**self.sizes)

    def save(self, folder: Path, **save_kwargs: Any) -> Any:
        """Save a telling model to a folder, and return it."""
        model = telling_model(getattr(transformers, self.model_class), self.config)
        model.save_pretrained(folder, **save_kwargs)
        return model


def text_and_vision(name: str, act: str) -> dict[str, Case]:
    """The cases of CLIP or SigLIP: each encoder out of a whole checkpoint, and the text encoder alone."""
    text, vision = {**TEXT, **EPS, "attention_dropout": 0.2}, {**IMAGES, **OTHER_EPS, "attention_dropout": 0.2}
    sizes = {"text_config": text, "vision_config": vision}
    same = {"norm_order": "pre", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.2, "hidden_act": act}
    of_text, of_vision = {**BLOCK, **EPS, **same}, {**VISION, **OTHER_EPS, **same}
    return {
        f"{name} text": Case(f"{name}Model", sizes, "text_model.encoder.layers", mlp, of_text, "text"),
        f"{name} vision": Case(f"{name}Model", sizes, "vision_model.encoder.layers", mlp, of_vision, "vision"),
        f"{name} text alone": Case(f"{name}TextModel", text, "encoder.layers", mlp, of_text),
    }


BERT = {**TEXT, **EPS, **BERT_DROPOUT, "initializer_range": 0.01}
BERT_EXPECTED = {**BLOCK, **EPS, **BERT_DROPOUT, "norm_order": "post", "hidden_act": "gelu", "initializer_range": 0.01}
DROPOUT = {"hidden_dropout_prob": 0.3, "activation_dropout_prob": 0.4, "attention_probs_dropout_prob": 0.2}
SPEECH_EXPECTED = {**BLOCK, **EPS, **DROPOUT, "hidden_act": "gelu"}

CASES = {
    "deberta": Case("DebertaModel", BERT, "encoder.layer", bert_like, BERT_EXPECTED),
    "deberta with a head": Case(
        "DebertaForSequenceClassification", BERT, "deberta.encoder.layer", bert_like, BERT_EXPECTED
    ),
    "deberta-v2": Case("DebertaV2Model", BERT, "encoder.layer", bert_like, BERT_EXPECTED),
    "layoutlm": Case("LayoutLMModel", BERT, "encoder.layer", bert_like, BERT_EXPECTED),
    "longformer": Case("LongformerModel", {**BERT, "attention_window": 4}, "encoder.layer", bert_like, BERT_EXPECTED),
    **text_and_vision("CLIP", "quick_gelu"),
    **text_and_vision("Siglip", "gelu_pytorch_tanh"),
    "CLIP text with a head": Case(
        "CLIPTextModelWithProjection", {**TEXT, **EPS}, "text_model.encoder.layers", mlp, {**BLOCK, **EPS}
    ),
    "wav2vec2": Case(
        "Wav2Vec2Model",
        SPEECH,
        "encoder.layers",
        speech_like,
        {**SPEECH_EXPECTED, "norm_order": "post"},
    ),
    "wav2vec2 with a head": Case(
        "Wav2Vec2ForCTC",
        {**SPEECH, "do_stable_layer_norm": True},
        "wav2vec2.encoder.layers",
        speech_like,
        {**SPEECH_EXPECTED, "norm_order": "pre"},
    ),
    "hubert": Case(
        "HubertModel",
        SPEECH,
        "encoder.layers",
        speech_like,
        {**SPEECH_EXPECTED, "norm_order": "post"},
    ),
    "whisper": Case(
        "WhisperModel",
        WHISPER,
        "encoder.layers",
        whisper_like,
        {
            **BLOCK,
            **DROPOUT,
            "norm_order": "pre",
            "layer_norm_eps": 1e-5,
            "hidden_act": "gelu",
            "initializer_range": 0.01,
        },
    ),
    "whisper with a head": Case(
        "WhisperForConditionalGeneration", WHISPER, "model.encoder.layers", whisper_like, BLOCK
    ),
    "nomic_bert": Case(
        "NomicBertModel",
        BERT,
        "layers",
        lambda layer: lambda x: layer.post_mlp_dropout(layer.mlp(x)),
        {**BERT_EXPECTED, "hidden_act": "silu", "gated": True, "ffn_bias": False},
    ),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def read(case: Case, folder: Path, layer: int, **kwargs: Any) -> FeedForward:
    return FeedForward.from_pretrained(folder, layer=layer, part=case.part, **kwargs)


def blocks(case: Case, model: Any) -> list[Any]:
    return list(model.get_submodule(case.layers))


def test_every_family_has_a_case() -> None:
    covered = {(case.config.model_type, case.part) for case in CASES.values()}
    assert {(row.model_type, row.part) for row in FEED_FORWARD_ONLY} == covered


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_block_computes_what_the_originals_does(case: Case, dtype: torch.dtype, tmp_path: Path) -> None:
    model = case.save(tmp_path).to(dtype)
    x = 3 * torch.randn(2, 7, case.expected["hidden_size"], dtype=dtype)
    outputs = set()
    for layer, original in enumerate(blocks(case, model)):
        ffn = read(case, tmp_path, layer, dtype=dtype)
        assert not ffn.training
        output = ffn(x)
        assert torch.equal(output, case.feed_forward(original)(x))
        # In training, dropout stands in the same places.
        for seed in range(2):
            torch.manual_seed(seed)
            expected = case.feed_forward(original.train())(x)
            torch.manual_seed(seed)
            assert torch.equal(ffn.train()(x), expected)
        outputs.add(output.sum().item())
    assert len(outputs) == case.expected["num_hidden_layers"]


@every_case
def test_the_configuration_is_the_originals(case: Case, tmp_path: Path) -> None:
    model = case.save(tmp_path)
    config = FFNConfig.from_pretrained(tmp_path, part=case.part)
    assert {name: getattr(config, name) for name in case.expected} == case.expected
    # DeBERTa has a class of its own, and calls it variance_epsilon.
    modules = [vars(module) for module in blocks(case, model)[0].modules()]
    eps = {module.get("eps", module.get("variance_epsilon")) for module in modules}
    assert eps - {None} == {config.layer_norm_eps}
    assert config.source_family == model.config.model_type


def with_activation(case: Case, name: str) -> Case:
    """The same with another activation."""
    field = "activation_function" if "encoder_ffn_dim" in case.sizes else "hidden_act"
    if case.part is None:
        return replace(case, sizes={**case.sizes, field: name})
    part = f"{case.part}_config"
    return replace(case, sizes={**case.sizes, part: {**case.sizes[part], field: name}})


@every_case
def test_other_activations_and_every_kind_of_file_are_read(case: Case, tmp_path: Path) -> None:
    other = with_activation(case, "gelu_new")
    x = torch.randn(5, case.expected["hidden_size"])
    model = other.save(tmp_path / "shards", max_shard_size="20KB")
    expected = case.feed_forward(blocks(case, model)[1])(x)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    other.save(tmp_path / "memory", save_original_format=False)
    other.save(tmp_path / "bin")
    for folder in (tmp_path / "shards", tmp_path / "memory", to_bin(tmp_path / "bin")):
        assert torch.equal(read(case, folder, 1)(x), expected)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("deberta", {"layer_norm_eps": 1e-7, "hidden_act": "gelu", "hidden_dropout_prob": 0.1}),
        ("deberta-v2", {"layer_norm_eps": 1e-7, "hidden_act": "gelu"}),
        ("clip_text_model", {"layer_norm_eps": 1e-5, "hidden_act": "quick_gelu", "hidden_dropout_prob": 0.0}),
        ("siglip_text_model", {"layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}),
        ("wav2vec2", {"layer_norm_eps": 1e-5, "norm_order": "post", "activation_dropout_prob": 0.1}),
        ("nomic_bert", {"layer_norm_eps": 1e-12, "hidden_act": "silu"}),
    ],
)
def test_a_short_config_takes_the_familys_own_defaults(name: str, own: dict, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name, **BLOCK}))
    config = FFNConfig.from_pretrained(tmp_path)
    assert {field: getattr(config, field) for field in (*BLOCK, *own)} == {**BLOCK, **own}


@pytest.mark.parametrize(("activation", "ours"), [("swiglu", "silu"), ("geglu", "gelu")])
@pytest.mark.parametrize("width", [48, None])
def test_nomic_bert_with_gpt2s_fields_is_read(activation: str, ours: str, width: int | None, tmp_path: Path) -> None:
    case = CASES["nomic_bert"]
    model = telling_model(transformers.NomicBertModel, transformers.NomicBertConfig(**TEXT, hidden_act=ours))
    model.save_pretrained(tmp_path)
    entries = {
        "model_type": "nomic_bert",
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_inner": width,
        "activation_function": activation,
        "layer_norm_epsilon": 2e-6,
        "resid_pdrop": 0.3,
        "attn_pdrop": 0.2,
        "n_positions": 40,
        "vocab_size": 50,
    }
    (tmp_path / "config.json").write_text(json.dumps(entries))
    x = torch.randn(5, 32)
    assert torch.equal(read(case, tmp_path, 2)(x), model.layers[2].mlp(x))
    config = FFNConfig.from_pretrained(tmp_path)
    assert (config.num_hidden_layers, config.hidden_act, config.layer_norm_eps) == (3, ours, 2e-6)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.2)
    with pytest.raises(ValueError, match="has the layers 0…2"):
        read(case, tmp_path, 3)


# What is refused


@every_case
def test_the_whole_checkpoint_is_refused_saying_what_can_be_read(case: Case, tmp_path: Path) -> None:
    case.config.save_pretrained(tmp_path)
    said = "feed-forward blocks alone can be read, with FeedForward.from_pretrained|use the FFN vision classes"
    for load in (FFNTextModel.from_pretrained, lambda folder: convert(folder, tmp_path / "out")):
        with pytest.raises(ValueError, match=said):
            load(tmp_path)
        if case.part:
            break
    assert not (tmp_path / "out").exists()


def test_an_unknown_family_is_refused_with_both_lists(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    for load in (FFNTextModel.from_pretrained, FFNVisionModel.from_pretrained, FFNConfig.from_pretrained):
        with pytest.raises(
            ValueError, match=r"that it converts: .*bert.*blocks alone: clip, clip_text_model, deberta"
        ):
            load(tmp_path)
    with pytest.raises(ValueError, match=r"blocks alone: clip, clip_text_model, deberta"):
        FeedForward.from_pretrained(tmp_path, layer=0)


@pytest.mark.parametrize("name", ["CLIP text", "Siglip vision"])
@pytest.mark.parametrize("part", [None, "audio"])
def test_which_of_two_encoders_must_be_said(name: str, part: str | None, tmp_path: Path) -> None:
    CASES[name].config.save_pretrained(tmp_path)
    for load in (
        lambda: FeedForward.from_pretrained(tmp_path, 0, part=part),
        lambda: FFNConfig.from_pretrained(tmp_path),
    ):
        with pytest.raises(ValueError, match="holds several encoders; pass part='text' or 'vision'"):
            load()


@pytest.mark.parametrize("name", ["deberta", "CLIP text alone", "whisper"])
def test_a_part_of_a_single_encoder_is_refused(name: str, tmp_path: Path) -> None:
    CASES[name].config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"part='text': .* holds one encoder; leave part out"):
        FeedForward.from_pretrained(tmp_path, 0, part="text")


@pytest.mark.parametrize("native", [False, True])
def test_a_part_of_a_family_that_converts_whole_is_refused(
    save_source: Callable, native: bool, tmp_path: Path
) -> None:
    folder = save_source("BertModel")
    if native:
        FFNTextModel.from_pretrained(folder).save_pretrained(tmp_path / "native")
        folder = tmp_path / "native"
    with pytest.raises(ValueError, match=r"part='text': .* holds one encoder; leave part out"):
        FeedForward.from_pretrained(folder, 0, part="text")


@every_case
def test_a_layer_that_is_not_there_is_refused(case: Case, tmp_path: Path) -> None:
    case.config.save_pretrained(tmp_path)
    last = case.expected["num_hidden_layers"] - 1
    for layer in (-1, last + 1):
        with pytest.raises(ValueError, match=f"layer={layer}: .* has the layers 0…{last}"):
            read(case, tmp_path, layer)
    with pytest.raises(ValueError, match="layer=None: say which layer"):
        FeedForward.from_pretrained(tmp_path, part=case.part)


@every_case
def test_a_block_without_its_tensors_is_refused(case: Case, tmp_path: Path) -> None:
    model = case.save(tmp_path)
    prefix = next(name for name, module in model.named_modules() if module is blocks(case, model)[1])
    number = ".1." if prefix.endswith(".1") else prefix
    tensors = [n for n in read(case, tmp_path, 1).state_dict() if n != "linear_1.weight"]
    assert len(tensors) == (2 if case.model_class == "NomicBertModel" else 3)
    rewrite(tmp_path, lambda found: {n: t for n, t in found.items() if number not in n or not n.endswith("weight")})
    with pytest.raises(ValueError, match="layer 1"):
        read(case, tmp_path, 1)
    read(case, tmp_path, 0)


def change(name: str, to: Callable) -> Callable:
    return lambda tensors: {n: (to(t) if n == f"encoder.{name}" else t) for n, t in tensors.items()}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (drop("layer.1.output.dense.bias"), "layer 1: expected the tensors"),
        (drop("layer.1.intermediate.dense"), "holds no feed-forward block for layer 1"),
        (change("layer.1.output.dense.weight", lambda t: t[:, :5]), "layer 1: expected the tensors"),
        (change("layer.1.intermediate.dense.weight", lambda t: t[0]), "layer 1: linear_1.weight is no matrix"),
        (change("layer.1.intermediate.dense.weight", lambda t: t[0, 0]), "layer 1: linear_1.weight is no matrix"),
        (change("layer.1.output.dense.weight", lambda t: t.int()), "linear_2.weight is of type torch.int32"),
    ],
)
def test_a_faulty_block_is_refused(fault: Callable, said: str, tmp_path: Path) -> None:
    CASES["deberta"].save(tmp_path)
    rewrite(tmp_path, fault)
    with pytest.raises(ValueError, match=said):
        FeedForward.from_pretrained(tmp_path, layer=1)


def test_a_config_of_another_width_than_the_weights_is_refused(tmp_path: Path) -> None:
    CASES["hubert"].save(tmp_path)
    rewrite_config(tmp_path, hidden_size=64)
    with pytest.raises(ValueError, match="layer 0: expected the tensors"):
        FeedForward.from_pretrained(tmp_path, layer=0)
