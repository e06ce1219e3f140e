"""Vocabularies, segments and tasks that grow or shrink as a checkpoint loads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_ffn import FFNForMaskedLM, FFNForSequenceClassification, FFNTextModel, export_pretrained

from families import ROWS, Row
from families.rows import source_class
from tiny import rewrite_config, telling_model

Save = Callable[..., Path]
MASKED_LM = [row for row in {row.name: row for row in reversed(ROWS)}.values() if "FFNForMaskedLM" in row.family.heads]

EMBEDDINGS = "model.embeddings.word_embeddings.weight"


def save(row: Row, theirs: str, folder: Path, **overrides: Any) -> None:
    """Save a telling model of a family."""
    config = row.source_config(theirs)
    for name, value in overrides.items():
        setattr(config, name, value)
    telling_model(source_class(theirs), config).save_pretrained(folder)


def test_padding_may_be_added_at_the_end(save_source: Save) -> None:
    folder = save_source("BertModel")
    before = FFNTextModel.from_pretrained(folder)
    size = before.config.vocab_size
    model = FFNTextModel.from_pretrained(folder, vocab_size=size + 1, pad_token_id=size)
    table = model.get_input_embeddings()
    assert (model.config.pad_token_id, table.padding_idx, len(table.weight)) == (size, size, size + 1)
    assert torch.equal(table.weight[:size], before.get_input_embeddings().weight)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("field", ["vocab_size", "type_vocab_size"])
def test_a_size_that_mends_a_stale_configuration_is_loaded_as_the_file_has_it(
    save_source: Save, tmp_path: Path, field: str, native: bool
) -> None:
    folder = save_source("BertForMaskedLM", type_vocab_size=3)
    before = FFNForMaskedLM.from_pretrained(folder)
    if native:
        folder = tmp_path / "native"
        before.save_pretrained(folder)
    size = getattr(before.config, field)
    rewrite_config(folder, **{field: size - 1})
    model = FFNForMaskedLM.from_pretrained(folder, **{field: size})
    assert getattr(model.config, field) == size
    for name, tensor in before.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("change", [-9, 7])
@pytest.mark.parametrize("row", MASKED_LM, ids=str)
def test_a_vocabulary_keeps_its_first_rows(tmp_path: Path, row: Row, change: int, tied: bool) -> None:
    theirs = row.family.heads["FFNForMaskedLM"]
    save(row, theirs, tmp_path / "source", tie_word_embeddings=tied)
    before = FFNForMaskedLM.from_pretrained(tmp_path / "source")
    old = before.config.vocab_size
    model = FFNForMaskedLM.from_pretrained(tmp_path / "source", vocab_size=old + change)
    size, kept = old + change, min(old, old + change)
    tensors, expected = model.state_dict(), before.state_dict()
    for name, tensor in expected.items():
        if tensor.shape[:1] == (old,):
            assert tensors[name].shape[0] == size, name
            assert torch.equal(tensors[name][:kept], tensor[:kept]), name
            if change > 0 and name.endswith("word_embeddings.weight"):
                torch.testing.assert_close(tensors[name][old:], tensor.mean(0).expand(change, -1), atol=1e-3, rtol=0)
        else:
            assert torch.equal(tensors[name], tensor), name
    assert model.config.vocab_size == model.get_output_embeddings().out_features == size
    addresses = {tensors[name].data_ptr() for name in ("lm_head.decoder.weight", EMBEDDINGS)}
    assert len(addresses) == (1 if tied else 2)
    assert f"vocab_size={size}: the checkpoint's" in str(model.loading_report)
    assert model.loading_report.new == []

    ids = {"input_ids": torch.arange(3, 15).view(2, 6)}
    with torch.no_grad():
        found, wanted = (each.eval()(**ids, unpad="never").logits[..., :kept] for each in (model, before))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    model.save_pretrained(tmp_path / "native")
    again = FFNForMaskedLM.from_pretrained(tmp_path / "native", attn_implementation="eager")
    export_pretrained(again, tmp_path / "back")
    back = source_class(theirs).from_pretrained(tmp_path / "back", attn_implementation="eager")
    with torch.no_grad():
        assert torch.equal(back.eval()(**ids).logits, again.eval()(**ids, unpad="never").logits)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("old", "new"), [(2, 3), (1, 2), (2, 1)])
def test_segments_keep_their_first_rows(save_source: Save, tmp_path: Path, native: bool, old: int, new: int) -> None:
    folder = save_source("BertForSequenceClassification", type_vocab_size=old)
    before = FFNForSequenceClassification.from_pretrained(folder)
    if native:
        before.save_pretrained(tmp_path / "native")
        folder = tmp_path / "native"
    model = FFNForSequenceClassification.from_pretrained(folder, type_vocab_size=new)
    table, kept = model.model.embeddings.token_type_embeddings, min(old, new)
    first = before.model.embeddings.token_type_embeddings.weight
    assert table.num_embeddings == len(table.weight) == model.config.type_vocab_size == new
    assert torch.equal(table.weight[:kept], first[:kept])
    assert torch.equal(table.weight[kept:], first.mean(0).expand(new - kept, -1))
    assert f"type_vocab_size={new}" in str(model.loading_report)
    assert model.loading_report.new == []


def test_tasks_keep_their_first_rows(tmp_path: Path) -> None:
    row = next(row for row in ROWS if str(row) == "ernie-with-tasks")
    save(row, "ErnieModel", tmp_path)
    before = FFNTextModel.from_pretrained(tmp_path).embeddings.task_type_embeddings.weight
    model = FFNTextModel.from_pretrained(tmp_path, task_type_vocab_size=8)
    assert torch.equal(model.embeddings.task_type_embeddings.weight[:5], before)
    assert len(model.embeddings.task_type_embeddings.weight) == 8


def test_a_number_of_tasks_without_a_table_changes_nothing(save_source: Save) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder, task_type_vocab_size=8)
    assert (model.config.task_type_vocab_size, model.loading_report.notes) == (8, [])


@pytest.mark.parametrize(("theirs", "size"), [("DistilBertModel", 2), ("BertModel", 0)])
def test_segments_neither_begin_nor_end_as_a_checkpoint_loads(tmp_path: Path, theirs: str, size: int) -> None:
    save(next(row for row in ROWS if theirs in dict.fromkeys(row.family.heads.values())), theirs, tmp_path)
    with pytest.raises(ValueError, match=f"type_vocab_size={size}: .*can grow or shrink, but not begin or end"):
        FFNTextModel.from_pretrained(tmp_path, type_vocab_size=size)


def test_the_padding_token_stays_in_the_vocabulary(tmp_path: Path) -> None:
    row = next(row for row in ROWS if str(row) == "roberta-other-padding")
    save(row, "RobertaModel", tmp_path)
    with pytest.raises(ValueError, match="pad_token_id=3 lies outside the vocabulary of vocab_size=2"):
        FFNTextModel.from_pretrained(tmp_path, vocab_size=2)
    model = FFNTextModel.from_pretrained(tmp_path, vocab_size=120)
    assert model.embeddings.word_embeddings.padding_idx == 3
    assert torch.equal(
        model.embeddings.word_embeddings.weight[3],
        FFNTextModel.from_pretrained(tmp_path).embeddings.word_embeddings.weight[3],
    )


def test_tables_positions_and_labels_change_together(save_source: Save) -> None:
    folder = save_source("BertForSequenceClassification", num_labels=3)
    wanted = {"vocab_size": 110, "type_vocab_size": 3, "max_position_embeddings": 60, "num_labels": 4}
    model = FFNForSequenceClassification.from_pretrained(folder, **wanted)
    assert {name: getattr(model.config, name) for name in wanted} == wanted
    assert all(name in str(model.loading_report) for name in wanted if name != "num_labels")
    with torch.no_grad():
        assert model.eval()(torch.tensor([[109] * 50])).logits.shape == (1, 4)
