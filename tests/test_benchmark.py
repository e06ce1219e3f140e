"""The benchmark: only what computes the same is timed, and every command says so in the same form."""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark  # noqa: E402

from bench import limits, measure, peers  # noqa: E402
from bench.measure import Apart, Contender, Timing, compare, relative_error  # noqa: E402
from bench.ragged import Batch, Groups  # noqa: E402


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rounds of everything, and no more."""
    monkeypatch.setattr(benchmark, "COMMANDS", dict.fromkeys(benchmark.COMMANDS, (0.0, 0.0)))


def constant(value: float, calls: list[str] | None = None, name: str = "") -> Any:
    def run() -> torch.Tensor:
        if calls is not None:
            calls.append(name)
        return torch.full((4,), value)

    return run


def test_what_computes_something_else_is_not_timed() -> None:
    def fails() -> Any:
        raise ModuleNotFoundError("No module named 'peer'")

    calls: list[str] = []
    contenders = [
        Contender("base", lambda: constant(1.0)),
        Contender("same", lambda: constant(1.0005), tolerance=1e-3),
        Contender("other", lambda: constant(1.01, calls, "other"), tolerance=1e-3),
        Contender("another shape", lambda: lambda: torch.ones(5), tolerance=1e9),
        Contender("no number", lambda: constant(float("nan"))),
        Contender("absent", fails),
        Contender("bound", lambda: lambda: None),
    ]
    section = compare("title", contenders, torch.ones(4), Timing(0.0))
    rows = {row.name: row for row in section.rows}
    assert list(rows) == [each.name for each in contenders]
    assert calls == ["other"]
    assert rows["other"].status == "computes something else (error 1.0e-02, allowed 1e-03)"
    for name in ("another shape", "no number"):
        assert rows[name].status.startswith("computes something else")
    assert rows["absent"].status == "not measured (ModuleNotFoundError: No module named 'peer')"
    for name in ("base", "same", "bound"):
        assert rows[name].status == "ok"
        assert rows[name].median_s > 0
    assert all(rows[name].median_s is None for name in ("other", "another shape", "no number", "absent"))
    assert "other          computes something else (error 1.0e-02" in str(section)


def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_ROUNDS", 4)
    calls: list[str] = []
    contenders = [Contender(name, lambda name=name: constant(1.0, calls, name)) for name in "abc"]
    compare("title", contenders, torch.ones(4), Timing(60.0, repeated=0.0))
    assert "".join(calls) == "abc" * 5


def test_short_runs_are_warmed_up_and_their_mean_is_taken() -> None:
    calls: list[float] = []

    def run() -> None:
        calls.append(time.perf_counter())
        time.sleep(0.001 if len(calls) % 2 else 0.005)

    times = measure.interleaved({"run": run}, Timing(0.0, repeated=0.06))
    assert len(times["run"]) == 3
    # Three rounds, each warmed up; 0.06 s have room for some 20 runs of 0.003 s, fewer on a busy machine.
    assert len(calls) > 6 * 2
    assert all(0.003 <= each < 0.06 for each in times["run"])


def test_ratios_are_of_the_same_round() -> None:
    """The machine becomes three times as slow; the ratio stays."""
    section = measure.Section("title", "base")
    section.add_times({"base": [1.0, 2.0, 3.0], "half": [0.5, 1.0, 1.5], "drifting": [1.0, 1.0, 4.5]})
    base, half, drifting = section.rows
    assert (base.ratio, half.ratio, half.spread) == (1.0, 0.5, 0.0)
    assert (half.median_s, drifting.ratio, drifting.spread) == (1.0, 1.0, 0.25)


def test_processor_time_leaves_waiting_out() -> None:
    contenders = [Contender("waits", lambda: lambda: time.sleep(0.02)), Contender("works", lambda: lambda: None)]
    section = compare("title", contenders, None, Timing(0.0, time.process_time))
    assert section.rows[0].median_s < 0.01
    assert compare("title", contenders, None, Timing(0.0)).rows[0].median_s >= 0.02


def test_what_is_read_of_an_output_is_compared_and_not_timed() -> None:
    read: list[str] = []

    def second_half(output: torch.Tensor) -> torch.Tensor:
        read.append("read")
        return output[2:]

    contenders = [Contender("base", lambda: constant(1.0), read=second_half)]
    section = compare("title", contenders, torch.ones(2), Timing(0.0, repeated=0.0))
    assert (section.rows[0].status, section.rows[0].error) == ("ok", 0.0)
    assert read == ["read"]


def process_and_threads(seconds: float) -> Any:
    """For another process: what takes so much processor time, and says where it runs and with how many threads."""

    def run(name: str) -> tuple[str, int, int]:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return name, os.getpid(), torch.get_num_threads()

    return run


@pytest.mark.slow
def test_what_runs_apart_has_a_process_of_its_own_with_as_many_threads_and_is_timed_there() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        apart = Apart(process_and_threads, 0.02)
    finally:
        torch.set_num_threads(threads)
    run = apart.on("name")
    name, process, its_threads = run()
    assert process != os.getpid()
    assert (name, its_threads) == ("name", 3)
    assert measure.repeat(run, Timing(0.0, time.process_time, repeated=0.0)) >= 0.02


def test_a_process_apart_ends_with_what_asked_it() -> None:
    apart = Apart(process_and_threads, 0.0)
    process = apart.process
    del apart
    process.join(60)
    assert process.exitcode == 0


def fails(message: str) -> Any:
    raise ModuleNotFoundError(message)


def test_what_cannot_be_prepared_apart_says_why() -> None:
    contenders = [Contender("base", lambda: constant(1.0)), Contender("peer", lambda: Apart(fails, "No peer"))]
    section = compare("title", contenders, torch.ones(4), Timing(0.0))
    assert section.rows[1].status == "not measured (ModuleNotFoundError: No peer)"


def test_openvino_reports_no_conversion_to_its_makers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would in processes of their own, beside what is measured, wherever it can import what reports."""

    def convert_model(model: torch.nn.Module, example_input: Any) -> str:
        with pytest.raises(ImportError):
            importlib.import_module("openvino_telemetry")
        return "graph"

    monkeypatch.setitem(sys.modules, "openvino_telemetry", ModuleType("openvino_telemetry"))
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(convert_model=convert_model))
    assert peers.openvino_graph(torch.nn.Identity(), ()) == "graph"


def test_a_single_round_has_no_spread() -> None:
    section = measure.Section("title", "base")
    section.add_times({"base": [2.0], "half": [1.0]})
    assert (section.rows[1].ratio, section.rows[1].spread) == (0.5, 0.0)


def test_a_baseline_that_fails_is_replaced() -> None:
    section = compare(
        "title",
        [Contender("base", lambda: constant(2.0)), Contender("next", lambda: constant(1.0))],
        torch.ones(4),
        Timing(0.0),
    )
    assert section.baseline == "next"
    assert section.rows[1].ratio == 1.0


def test_bfloat16_is_not_measured_where_the_processor_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    calls: list[str] = []
    contenders = [
        Contender("in half", lambda: constant(1.0, calls, "in half"), precision="bfloat16"),
        Contender("whole", lambda: constant(1.0)),
    ]
    section = compare("title", contenders, torch.ones(4), Timing(0.0))
    assert section.rows[0].status.startswith("not measured (this processor has no instructions for it (avx512_bf16")
    assert section.baseline == "whole"
    assert compare("title", contenders[:1], torch.ones(4), Timing(0.0)).rows[0].median_s is None
    assert calls == []


@pytest.mark.parametrize(("seconds", "turns"), [(0.001, 2), (0.05, 1)])
def test_only_short_runs_are_measured_a_second_time(
    seconds: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rounds; the first turn of a short run is its warm-up, and the second one counts."""
    taken = iter([seconds * factor for factor in range(1, 7)])
    monkeypatch.setattr(measure, "repeat", lambda run, timing: next(taken))
    times = measure.interleaved({"run": lambda: None}, Timing(0.0, pause=0.0, repeated=0.02))
    assert times["run"] == pytest.approx([seconds * turns * each for each in (1, 2, 3)])


def test_errors_are_relative() -> None:
    assert relative_error(torch.tensor([3.0, 4.4]), torch.tensor([3.0, 4.0])) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("count", "shapes"), [(2, [(5, 4), (5, 9)]), (4, [(3, 3), (3, 5), (3, 8), (1, 9)]), (1, [(10, 9)])]
)
def test_sorting_by_length_gives_the_tokens_back_in_their_order(count: int, shapes: list[tuple[int, int]]) -> None:
    batch = Batch([3, 9, 1, 4, 4, 7, 2, 5, 6, 8], vocab_size=50)
    groups = Groups(batch, count)
    states = [group[0][..., None].float() for group in groups.padded]
    assert [tuple(state.shape[:2]) for state in states] == shapes
    assert torch.equal(groups.tokens(states)[:, 0], torch.cat(batch.sequences).float())
    assert torch.equal(batch.ids[batch.real], torch.cat(batch.sequences))


def test_what_was_not_reached_is_said() -> None:
    times = {
        "transformers": [1.0, 2.0, 9.0],
        "hf_ffn, optimised": [0.4, 0.8, 4.5],
        "CTranslate2": [0.5, 1.0, 8.0],
        "OpenVINO, sorted in 2": [],
    }
    table = {
        "title": "encoder, ragged, short",
        "rows": [{"name": name, "times": each} for name, each in times.items()],
    }
    found = limits.check({"ragged": [table], "memory": []})
    assert [(limit.over, limit.at_most, ratio) for limit, ratio in found] == [
        ("transformers", 0.39, 0.4),
        ("CTranslate2", 0.85, 0.8),
        ("OpenVINO, sorted in 2", 0.60, None),
    ]
    _, first, second, third = limits.told(found).splitlines()
    assert first.split()[:4] == ["0.40", "0.39", "NOT", "REACHED"]
    assert second.split()[:3] == ["0.80", "0.85", "ragged,"]
    assert third.split()[:4] == ["–", "0.60", "not", "measured"]


@pytest.mark.parametrize(
    ("command", "least", "ours"),
    [
        ("feed-forward", 4, "hf_ffn, optimize_for_inference"),
        ("ragged", 4, "hf_ffn, optimised, int8"),
        ("ragged-many", 2, "hf_ffn, optimised, int8"),
        ("vision", 1, "hf_ffn, optimised, bfloat16"),
        ("train", 3, "input"),
        ("memory", 1, "hf_ffn, feed_forward_memory='input'"),
        ("growth", 4, "64"),
        pytest.param("load", 2, "hf_ffn, converting the same", marks=pytest.mark.slow),
        pytest.param("accuracy", 1, "hf_ffn, optimised, int8", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("no_time", "bfloat16_anywhere")
def test_every_command_measures_ours_and_writes_what_it_found(
    command: str, least: int, ours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = tmp_path / "pictures"
    benchmark.main([command, "--quick", "--json", str(tmp_path / "found.json"), "--plot", str(pictures)])
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["torch"] == torch.__version__
    assert list(found["sections"]) == [command]
    sections = found["sections"][command]
    assert len(sections) == least
    for section in sections:
        assert section["title"] in printed
        for row in section["rows"]:
            assert set(row) == {"name", "status", "median_s", "ratio", "spread", "error", "value", "times"}
            assert not row["status"].startswith("computes something else"), row
            if row["name"].startswith(("hf_ffn", "transformers", "bound")):
                assert row["status"] == "ok", row
    assert any(ours in row["name"] for section in sections for row in section["rows"])
    for limit in [] if command == "ragged-many" else limits.LIMITS:
        for section in sections:
            if section["title"].endswith(limit.table):
                assert {limit.ours, limit.over} <= {row["name"] for row in section["rows"]}
    picture = {"growth": ["growth.png"], "memory": [], "accuracy": []}.get(command, ["ratios.png"])
    assert [path.name for path in pictures.iterdir()] == picture
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures.iterdir())


@pytest.mark.usefixtures("no_time")
def test_what_is_kept_a_token_is_what_the_configuration_promises(tmp_path: Path) -> None:
    benchmark.main(["memory", "--quick", "--json", str(tmp_path / "found.json")])
    (section,) = json.loads((tmp_path / "found.json").read_text())["sections"]["memory"]
    # 4 bytes for each of hidden_size=64 and intermediate_size=256 numbers
    assert [row["value"] for row in section["rows"]] == ["2,304 bytes", "2,304 bytes", "1,280 bytes", "256 bytes"]
