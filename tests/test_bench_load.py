"""The measurement of imports and loading, without the machine's noise: what it calls what, and what it refuses."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers

import hf_ffn
from hf_ffn import FFNTextConfig

from tiny import bert_config

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from bench import load as bench


def test_a_section_gives_ratios_to_its_first_case_of_time_and_processor_time() -> None:
    theirs = {"seconds": 1.0, "cpu_seconds": 2.0}
    taken = [{"seconds": each, "cpu_seconds": 5.0} for each in (4.0, 2.0, 3.0)]
    section = bench.section_of("loading", {"theirs": [theirs] * 3, "ours": taken})
    assert {row.name: row.ratio for row in section.rows} == {"theirs": 1.0, "ours": 3.0}
    assert section.notes == ["the fastest: theirs 1.00, ours 2.00", "processor time: theirs 1.00, ours 2.50"]


def test_a_sample_measures_the_import_in_a_process_of_its_own() -> None:
    statement = "from sys import modules; import time; time.sleep(0.2); assert 'torch' not in modules"
    result = bench.sample(bench.Case("sleep", statement))
    assert result["import package"]["seconds"] < 0.2 <= result["import"]["seconds"]
    assert result["import"]["cpu_seconds"] < result["import"]["seconds"]


@pytest.mark.slow
def test_a_sample_of_loading_tells_mapped_memory_from_memory_that_was_read(save_source: Callable[..., Path]) -> None:
    folder = save_source("BertModel", vocab_size=500_000)
    size = (folder / "model.safetensors").stat().st_size
    result = bench.sample(bench.Case("bert", "from transformers import BertModel", str(folder)))
    assert 0 < result["peak_bytes"] < size / 2
    assert size * 0.9 < result["peak_bytes_once_read"] < size * 1.9
    assert len(result["loads"]) == (bench.LOADS if sys.platform == "linux" else 1)
    assert all(0 < load["seconds"] < 60 for load in result["loads"])


def test_the_cases_are_the_original_and_what_verify_found_equal_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transformers, "TinyConfig", bert_config, raising=False)
    monkeypatch.setitem(bench.MODELS, "tiny", ("BertModel", "TinyConfig", "FFNTextModel"))
    original, converting, converted = bench.load_cases("tiny", tmp_path)
    assert original.folder == converting.folder
    assert type(transformers.AutoConfig.from_pretrained(original.folder)) is transformers.BertConfig
    assert type(transformers.AutoConfig.from_pretrained(converted.folder)) is FFNTextConfig
    assert converting.statement == converted.statement == "from hf_ffn import FFNTextModel"

    monkeypatch.setattr(hf_ffn, "verify", lambda *_: SimpleNamespace(ok=False))
    with pytest.raises(RuntimeError, match="FFNTextModel is not the same as BertModel"):
        bench.load_cases("tiny", tmp_path)
