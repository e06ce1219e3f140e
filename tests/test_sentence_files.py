"""Folders of sentence-transformers stay such folders: the same vectors and scores, by the library's own classes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_folder import WORDS
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer import modules as parts
from sentence_transformers.sparse_encoder import modules as sparse_parts
from transformers import BertTokenizer

from hf_ffn import FFNForSequenceClassification, FFNTextModel, convert, export_pretrained
from hf_ffn.hub import stage as staging
from hf_ffn.hub.manifest import read_manifest
from hf_ffn.hub.stage import stage
from hf_ffn.training.arguments import ModelArguments
from hf_ffn.training.run import saver, sentence_modules

from tiny import rewrite_config

TEXTS = ["the encoder reads france .", "france ?", "the the encoder encoder reads reads the encoder france ."]
Make = Callable[..., Path]


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging starts no process of its own."""
    monkeypatch.setattr(staging, "isolated", lambda scratch, how, *command: None)


@pytest.fixture
def encoder(save_source: Make, tmp_path: Path) -> Path:
    """A BERT with its tokenizer, as transformers saves them."""
    return with_tokenizer(save_source("BertModel", "encoder"))


def with_tokenizer(folder: Path) -> Path:
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=9).save_pretrained(folder)
    return folder


@pytest.fixture
def save_sentences(encoder: Path, tmp_path: Path) -> Make:
    """Save a sentence-transformers model of these modules behind the encoder."""

    def save(*modules: Any, folder: str = "sentences", **settings: Any) -> Path:
        model = SentenceTransformer(modules=[parts.Transformer(str(encoder)), *modules], **settings)
        model.save(str(tmp_path / folder))
        return tmp_path / folder

    return save


PIPELINES: dict[str, Callable[[], list[Any]]] = {
    "mean": lambda: [parts.Pooling(32, pooling_mode="mean")],
    "cls": lambda: [parts.Pooling(32, pooling_mode="cls")],
    "max, normalised": lambda: [parts.Pooling(32, pooling_mode="max"), parts.Normalize()],
    "cls, dense, normalised": lambda: [
        *(parts.Pooling(32, pooling_mode="cls"), parts.Dense(32, 8), parts.Normalize())
    ],
    "mean, layer norm": lambda: [parts.Pooling(32, pooling_mode="mean"), parts.LayerNorm(32)],
}


def encoded(folder: Path) -> torch.Tensor:
    """What sentence-transformers makes of the texts."""
    model = SentenceTransformer(str(folder), device="cpu")
    return model.encode(TEXTS, convert_to_tensor=True)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_vectors_are_the_originals_after_converting_staging_and_exporting(
    save_sentences: Make, tmp_path: Path, unproven: None, pipeline: str
) -> None:
    torch.manual_seed(0)
    source = save_sentences(*PIPELINES[pipeline]())
    expected = encoded(source)
    convert(source, tmp_path / "ours")
    stage(tmp_path / "ours", tmp_path / "staged")
    export_pretrained(FFNTextModel.from_pretrained(tmp_path / "ours"), tmp_path / "back")
    for name in ("ours", "staged", "back"):
        torch.testing.assert_close(encoded(tmp_path / name), expected, rtol=0, atol=1e-5)


def test_everything_else_that_the_library_reads_is_kept(save_sentences: Make, tmp_path: Path, unproven: None) -> None:
    source = save_sentences(
        *PIPELINES["mean"](), prompts={"query": "france "}, default_prompt_name="query", similarity_fn_name="dot"
    )
    settings = json.loads((source / "sentence_bert_config.json").read_text())
    # As it was written until 2025, under a name that is older still.
    (source / "sentence_bert_config.json").unlink()
    (source / "sentence_roberta_config.json").write_text(json.dumps({"max_seq_length": 5, "do_lower_case": True}))
    (source / "README.md").write_text("of the original")
    convert(source, tmp_path / "ours")
    stage(tmp_path / "ours", tmp_path / "staged")
    before = SentenceTransformer(str(source), device="cpu")
    for name in ("ours", "staged"):
        after = SentenceTransformer(str(tmp_path / name), device="cpu")
        assert (after.prompts, after.default_prompt_name) == (before.prompts, "query")
        assert (after.max_seq_length, after.similarity_fn_name) == (5, "dot")
        shouted = [text.upper() for text in TEXTS]
        expected, found = (model.encode(shouted, convert_to_tensor=True) for model in (before, after))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert settings["transformer_task"] == "feature-extraction"
    assert not (tmp_path / "ours" / "README.md").exists()
    assert "1_Pooling/config.json" in read_manifest(tmp_path / "staged")
    assert "- sentence-transformers" in (tmp_path / "staged" / "README.md").read_text()


def test_weights_of_a_module_that_are_a_pickle_become_safetensors(save_sentences: Make, tmp_path: Path) -> None:
    source = save_sentences(*PIPELINES["cls, dense, normalised"]())
    expected = encoded(source)
    weights = source / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    convert(source, tmp_path / "ours")
    assert not list((tmp_path / "ours").rglob("*.bin"))
    torch.testing.assert_close(encoded(tmp_path / "ours"), expected, rtol=0, atol=1e-5)


def test_an_encoder_that_lies_in_a_folder_of_its_own_is_found(save_sentences: Make, tmp_path: Path) -> None:
    source = save_sentences(*PIPELINES["cls"]())
    expected = encoded(source)
    (source / "0_Transformer").mkdir()
    for path in [path for path in source.iterdir() if path.is_file()]:
        if path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(source / "0_Transformer" / path.name)
    modules = json.loads((source / "modules.json").read_text())
    (source / "modules.json").write_text(json.dumps([{**modules[0], "path": "0_Transformer"}, *modules[1:]]))
    _, report = convert(source, tmp_path / "ours")
    assert report is not None
    torch.testing.assert_close(encoded(tmp_path / "ours"), expected, rtol=0, atol=1e-5)
    with pytest.raises(FileNotFoundError, match="the encoder is in its folder '0_Transformer'"):
        FFNTextModel.from_pretrained(source)
    # The same as a folder within another checkpoint's, which is what subfolder= is for
    convert(tmp_path, tmp_path / "within", subfolder=source.name)
    torch.testing.assert_close(encoded(tmp_path / "within"), expected, rtol=0, atol=1e-5)


def test_a_folder_within_another_keeps_its_modules(save_sentences: Make, tmp_path: Path) -> None:
    expected = encoded(save_sentences(*PIPELINES["cls"](), folder="all/bge"))
    convert(tmp_path / "all", tmp_path / "ours", subfolder="bge")
    torch.testing.assert_close(encoded(tmp_path / "ours"), expected, rtol=0, atol=1e-5)


def test_the_class_that_an_encoder_was_pretrained_with_is_not_its_own(
    save_sentences: Make, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    source = save_sentences(*PIPELINES["mean"]())
    rewrite_config(source, architectures=["BertForMaskedLM"])
    model, _ = convert(source, tmp_path / "ours")
    assert type(model) is FFNTextModel
    assert "newly made" not in messages.text
    torch.testing.assert_close(encoded(tmp_path / "ours"), encoded(source), rtol=0, atol=1e-5)


def test_a_sparse_encoder_keeps_its_head_and_its_pooling(save_source: Make, tmp_path: Path) -> None:
    folder = with_tokenizer(save_source("BertForMaskedLM", "mlm"))
    model = SparseEncoder(modules=[sparse_parts.MLMTransformer(str(folder)), sparse_parts.SpladePooling("max")])
    model.save(str(tmp_path / "sparse"))
    convert(tmp_path / "sparse", tmp_path / "ours")
    before, after = (SparseEncoder(str(tmp_path / name), device="cpu") for name in ("sparse", "ours"))
    expected, found = (each.encode(TEXTS, convert_to_sparse_tensor=False) for each in (before, after))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


# ---- cross encoders ------------------------------------------------------------------------------------------

PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[0])]


def old(source: Path) -> Path:
    """Without modules, and with the activation in config.json, as until version 4."""
    rewrite_config(source, sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh")
    return source


def newer(source: Path) -> Path:
    """Without modules, and with the activation in config.json, as in versions 4 and 5."""
    scoring = {"activation_fn": "torch.nn.modules.activation.Tanh", "version": "5.0.0"}
    rewrite_config(source, sentence_transformers=scoring)
    return source


def newest(source: Path) -> Path:
    """As it is saved today."""
    CrossEncoder(str(source), activation_fn=torch.nn.Tanh(), max_length=8).save(str(source.with_name("newest")))
    return source.with_name("newest")


@pytest.fixture(params=[old, newer, newest])
def cross_encoder(save_source: Make, request: pytest.FixtureRequest) -> Path:
    """A cross encoder with an activation that is not the default, in each form that there was."""
    return request.param(with_tokenizer(save_source("BertForSequenceClassification", "cross", num_labels=1)))


def scores(folder: Path) -> torch.Tensor:
    """A cross encoder's scores; all are in (-1, 1), as the hyperbolic tangent makes them."""
    model = CrossEncoder(str(folder), device="cpu")
    assert isinstance(model.activation_fn, torch.nn.Tanh)
    return model.predict(PAIRS, convert_to_tensor=True)


def test_a_cross_encoder_keeps_its_activation(cross_encoder: Path, tmp_path: Path, unproven: None) -> None:
    expected = scores(cross_encoder)
    convert(cross_encoder, tmp_path / "ours")
    stage(tmp_path / "ours", tmp_path / "staged")
    export_pretrained(FFNForSequenceClassification.from_pretrained(tmp_path / "staged"), tmp_path / "back")
    for name in ("ours", "staged", "back"):
        torch.testing.assert_close(scores(tmp_path / name), expected, rtol=0, atol=1e-5)
    before, after = (json.loads((place / "config.json").read_text()) for place in (cross_encoder, tmp_path / "back"))
    assert before == after


class Alone:
    """Stands for an accelerator of a single process."""

    is_main_process = True

    def unwrap_model(self, model: Any, **kwargs: Any) -> Any:
        return model

    def get_state_dict(self, model: Any) -> Any:
        return model.state_dict()


def save_as_a_run_does(model: Any, source: Path, folder: Path) -> None:
    """Save a model as a fine-tuning from that source does."""
    accelerator: Any = Alone()
    kept = sentence_modules(model, ModelArguments(model_name_or_path=str(source)))
    saver(accelerator, folder, BertTokenizer.from_pretrained(source), kept)(model, "")


def test_a_cross_encoder_that_is_trained_further_stays_one(cross_encoder: Path, tmp_path: Path) -> None:
    convert(cross_encoder, tmp_path / "ours")
    for source in (cross_encoder, tmp_path / "ours"):
        model = FFNForSequenceClassification.from_pretrained(source, num_labels=1)
        torch.nn.init.zeros_(model.classifier.weight)
        torch.nn.init.constant_(model.classifier.bias, 0.5)
        save_as_a_run_does(model, source, tmp_path / "run")
        torch.testing.assert_close(scores(tmp_path / "run"), torch.full((2,), 0.5).tanh())


def test_another_head_is_not_scored_as_the_old_one(
    cross_encoder: Path, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    model = FFNForSequenceClassification.from_pretrained(cross_encoder, id2label={0: "no", 1: "maybe", 2: "yes"})
    save_as_a_run_does(model, cross_encoder, tmp_path / "run")
    assert not isinstance(CrossEncoder(str(tmp_path / "run"), device="cpu").activation_fn, torch.nn.Tanh)
    assert not (tmp_path / "run" / "modules.json").exists()
    assert ("the head that they are for was made anew" in messages.text) == (cross_encoder.name == "newest")


# ---- what does not fit stays behind, and is named ------------------------------------------------------------


def test_a_classifier_does_not_take_over_the_pooling_of_the_encoder_it_was_made_from(
    save_sentences: Make, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    source = save_sentences(*PIPELINES["mean"]())
    model = FFNForSequenceClassification.from_pretrained(source, id2label={0: "bad", 1: "good"})
    save_as_a_run_does(model, source, tmp_path / "run")
    convert(source, tmp_path / "ours", task="sequence-classification", check=False)
    export_pretrained(model, tmp_path / "back")
    for name in ("run", "ours", "back"):
        assert not [path for path in (tmp_path / name).rglob("*") if path.name in ("modules.json", "1_Pooling")]
    said = "its modules.json stays behind: they are for a FFNTextModel, and this is a FFNForSequenceClassification"
    assert messages.text.count(said) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"type": "custom_st.Transformer"}, "custom_st.Transformer is code of somebody's own"),
        ({"type": "sentence_transformers.models.CLIPModel"}, "CLIPModel is no encoder that hf_ffn can take the place"),
        (None, "of 1_Pooling there is no file"),
    ],
)
def test_modules_that_cannot_be_kept_do_not_stop_the_weights(
    save_sentences: Make, tmp_path: Path, messages: pytest.LogCaptureFixture, change: dict[str, str] | None, says: str
) -> None:
    source = save_sentences(*PIPELINES["mean"]())
    modules = json.loads((source / "modules.json").read_text())
    if change is None:
        (source / "1_Pooling" / "config.json").unlink()
    else:
        (source / "modules.json").write_text(json.dumps([{**modules[0], **change}, *modules[1:]]))
    convert(source, tmp_path / "ours", check=False)
    assert (tmp_path / "ours" / "model.safetensors").exists()
    assert not (tmp_path / "ours" / "modules.json").exists()
    assert says in messages.text


@pytest.mark.parametrize(
    "content",
    ["{", "{}", "[]", "[1]", '[{"type": "a"}]', '[{"type": "a", "path": "../x"}]', '[{"type": "a", "path": "/x"}]'],
)
def test_a_damaged_list_of_modules_is_named(encoder: Path, tmp_path: Path, content: str) -> None:
    (encoder / "modules.json").write_text(content)
    with pytest.raises(ValueError, match=r"modules\.json' (is damaged|does not list modules)"):
        convert(encoder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_what_an_earlier_conversion_left_beside_is_named(
    save_sentences: Make, save_source: Make, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    convert(save_sentences(*PIPELINES["cls"]()), tmp_path / "ours")
    convert(save_source("BertModel", "bare"), tmp_path / "ours", check=False)
    assert "keeps from before: config_sentence_transformers.json, modules.json, " in messages.text
    assert "tokenizer.json" in messages.text
    messages.clear()
    convert(save_sentences(*PIPELINES["max, normalised"](), folder="other"), tmp_path / "ours", check=False)
    assert "keeps from before" not in messages.text
