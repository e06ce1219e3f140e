"""Loading: what is reported, and what is refused so that nothing passes silently."""

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import hf_ffn
from hf_ffn import (
    FeedForward,
    FFNForMaskedLM,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNTextConfig,
    FFNTextModel,
    FFNVisionModel,
    convert,
    verify,
)

from tiny import bert_config, drop, rewrite, rewrite_config, text_inputs, to_bin

Save = Callable[..., Path]


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


@pytest.mark.parametrize("tied", [True, False])
def test_a_base_checkpoint_takes_a_new_masked_language_model_head(save_source: Save, tied: bool) -> None:
    folder = save_source("BertModel", tie_word_embeddings=tied)
    model = FFNForMaskedLM.from_pretrained(folder)
    assert model.loading_report.new == ["lm_head"]
    words = model.model.embeddings.word_embeddings.weight
    assert torch.equal(words, FFNTextModel.from_pretrained(folder).embeddings.word_embeddings.weight)
    assert (model.lm_head.decoder.weight is words) == tied


def test_nothing_is_reported_where_everything_fits(save_source: Save, messages: pytest.LogCaptureFixture) -> None:
    model = FFNForSequenceClassification.from_pretrained(save_source("BertForSequenceClassification"))
    assert str(model.loading_report) == ""
    assert messages.text == ""


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


def test_a_config_that_is_no_json_is_refused(save_source: Save) -> None:
    folder = save_source("BertModel")
    (folder / "config.json").write_text('{"model_type": "bert", ')
    with pytest.raises(ValueError, match=r"config\.json' is not valid JSON \(.*line 1 column 24"):
        FFNTextModel.from_pretrained(folder)


CONFIG_FAULTS = {
    '[{"model_type": "bert"}]': r"holds .*, where a JSON object \{…\} is expected",
    '"bert"': r"holds 'bert', where a JSON object \{…\} is expected",
    "": "is not valid JSON",
    '{"model_type": ["bert"]}': r"model_type=\"\['bert'\]\" must be a name",
    '{"architectures": "BertModel"}': "architectures='BertModel' must be a list of names",
    '{"id2label": ["a", "b"]}': r"id2label=.* must be an object like",
    '{"id2label": {"a": 0}}': r"id2label=.* must be an object like",
    '{"num_labels": "3"}': "num_labels='3' must be a whole number",
    '{"torch_dtype": "flaot32"}': "torch_dtype='flaot32' must be the name of one of torch's types",
}


@pytest.mark.parametrize("read", [FFNTextModel.from_pretrained, FFNTextConfig.from_pretrained, convert, verify])
@pytest.mark.parametrize(("text", "said"), CONFIG_FAULTS.items())
def test_a_damaged_config_is_refused_naming_file_and_entry(
    save_source: Save, tmp_path: Path, text: str, said: str, read: Callable
) -> None:
    folder = save_source("BertModel")
    (folder / "config.json").write_text(text)
    others = (tmp_path / "out",) if read is convert else ()
    with pytest.raises(ValueError, match=rf"config\.json'.* {said}"):
        read(folder, *others)


@pytest.mark.parametrize("native", [False, True])
def test_an_entry_of_the_wrong_type_is_refused_naming_the_checkpoint(
    save_source: Save, tmp_path: Path, native: bool
) -> None:
    folder = save_source("BertModel")
    if native:
        FFNTextModel.from_pretrained(folder).save_pretrained(tmp_path / "native")
        folder = tmp_path / "native"
    rewrite_config(folder, hidden_size="32")
    with pytest.raises(ValueError, match=rf"config.json of '{folder}': .*field 'hidden_size'.*expected int, got str"):
        FFNTextModel.from_pretrained(folder)


INDEX_FAULTS: dict[str, tuple[Callable[[dict], Any], str]] = {
    "no metadata": (lambda index: {"weight_map": index["weight_map"]}, 'no entry metadata, .* "metadata": {} will do'),
    "metadata is none": (lambda index: {**index, "metadata": None}, "metadata='None' is no object"),
    "no weight_map": (lambda index: {"metadata": {}}, "no entry weight_map"),
    "weight_map is a list": (
        lambda index: {**index, "weight_map": [*index["weight_map"]]},
        "weight_map=.* is no object",
    ),
    "a number for a file": (lambda index: {**index, "weight_map": {"a": 1}}, "weight_map names '1' for 'a'"),
    "a list": (lambda index: [index], r"holds .*, where a JSON object \{…\} is expected"),
}


INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json", "model.safetensors.index.fp16.json")


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("fault", INDEX_FAULTS)
def test_a_damaged_index_is_refused_naming_file_and_entry(save_source: Save, name: str, fault: str) -> None:
    folder = save_source("BertModel", save_kwargs={"max_shard_size": "20KB"})
    change, said = INDEX_FAULTS[fault]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    (folder / "model.safetensors.index.json").unlink()
    (folder / name).write_text(json.dumps(change(index)))
    variant = {"variant": "fp16"} if "fp16" in name else {}
    reads: list[Callable] = [FFNTextModel.from_pretrained]
    if not variant:
        reads.append(lambda folder: FeedForward.from_pretrained(folder, 0))
    for read in reads:
        with pytest.raises(ValueError, match=rf"{re.escape(name)}'.* ?{said}"):
            read(folder, **variant)


def test_a_missing_shard_is_refused(save_source: Save) -> None:
    folder = save_source("BertModel", save_kwargs={"max_shard_size": "20KB"})
    next(folder.glob("model-00002-of-*")).unlink()
    with pytest.raises(OSError, match="model-00002-of-"):
        FFNTextModel.from_pretrained(folder)


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


@pytest.mark.parametrize("model_type", ["gpt2", "no_such_family"])
@pytest.mark.parametrize("read", [FFNTextModel.from_pretrained, lambda folder: FeedForward.from_pretrained(folder, 0)])
def test_an_unknown_family_is_refused_naming_the_known(save_source: Save, model_type: str, read: Callable) -> None:
    folder = save_source("BertModel")
    rewrite_config(folder, model_type=model_type)
    with pytest.raises(ValueError, match=r"does not convert\. Families that it converts: ") as error:
        read(folder)
    whole, blocks = (part.partition(": ")[2].split(", ") for part in str(error.value).rstrip(".").split(". ")[1:])
    assert whole == sorted(hf_ffn.registry_ffn.FOREIGN_FAMILIES)
    assert blocks == sorted({row.model_type for row in hf_ffn.families.FEED_FORWARD_ONLY})


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
    rewrite_config(folder, vocab_size=50)
    model = FFNTextModel.from_pretrained(folder, ignore_mismatched_sizes=True)
    assert model.loading_report.new == ["embeddings.word_embeddings.weight ((99, 32) in the checkpoint)"]
