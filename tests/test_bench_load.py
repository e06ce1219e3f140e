"""The measurement of imports and loading, without the machine's noise: what it calls what, and what it refuses."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import transformers

import hf_ffn
from hf_ffn import FFNTextConfig

from tiny import bert_config


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/bench_load.py as a module."""
    path = Path(__file__).parent.parent / "scripts" / "bench_load.py"
    spec = importlib.util.spec_from_file_location("bench_load", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_load", module)
    spec.loader.exec_module(module)
    return module


def test_rows_hold_medians_spread_and_ratios_to_the_first_of_their_group(bench: ModuleType) -> None:
    cases = [bench.Case("load", "theirs", ""), bench.Case("load", "ours", ""), bench.Case("import", "alone", "")]
    seconds = [(1.0, 3.0, 7.0), (2.0, 5.0, 7.0), (9.0, 6.0, 7.0)]
    theirs, ours, alone = bench.rows(cases, [[{"seconds": each} for each in taken] for taken in seconds])
    assert (theirs["seconds"], theirs["fastest"], theirs["slowest"]) == (2.0, 1.0, 9.0)
    assert theirs["ratios"] == alone["ratios"] == {"seconds": 1.0, "fastest": 1.0, "slowest": 1.0}
    assert (ours["group"], ours["case"], ours["seconds"]) == ("load", "ours", 5.0)
    assert ours["ratios"] == {"seconds": 2.5, "fastest": 3.0, "slowest": 6 / 9}


def test_a_sample_measures_the_import_in_a_process_of_its_own(bench: ModuleType) -> None:
    statement = "import sys, time; time.sleep(0.2); assert 'torch' not in sys.modules"
    result = bench.sample(bench.Case("import", "sleep", statement))
    assert result["seconds"] >= 0.2
    assert result["cpu_seconds"] < result["seconds"]


def test_a_sample_of_loading_tells_mapped_memory_from_memory_that_was_read(
    bench: ModuleType, save_source: Callable[..., Path]
) -> None:
    folder = save_source("BertModel", vocab_size=500_000)
    size = (folder / "model.safetensors").stat().st_size
    result = bench.sample(bench.Case("load", "bert", "from transformers import BertModel as Model", str(folder)))
    assert 0 < result["peak_bytes"] < size / 2
    assert size * 0.9 < result["peak_bytes_once_read"] < size * 1.9
    assert result["seconds"] > 0


def test_the_cases_are_the_original_and_what_verify_found_equal_to_it(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transformers, "TinyConfig", bert_config, raising=False)
    monkeypatch.setitem(bench.MODELS, "tiny", ("BertModel", "TinyConfig", "FFNTextModel"))
    original, converting, converted = bench.load_cases("tiny", tmp_path)
    assert original.folder == converting.folder
    assert type(transformers.AutoConfig.from_pretrained(original.folder)) is transformers.BertConfig
    assert type(transformers.AutoConfig.from_pretrained(converted.folder)) is FFNTextConfig
    assert converting.statement == converted.statement == "from hf_ffn import FFNTextModel as Model"

    monkeypatch.setattr(hf_ffn, "verify", lambda *_: SimpleNamespace(ok=False))
    with pytest.raises(RuntimeError, match="FFNTextModel is not the same as BertModel"):
        bench.load_cases("tiny", tmp_path)
