"""A staged folder is whole, is proven in processes of its own, and takes its place only then."""

import getpass
import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, constants
from model_folder import (
    REPORT,
    TEXT_CLASSES,
    VISION_CLASSES,
    add_fact,
    add_processor,
    add_run,
    weights_folder,
    write_json,
)
from safetensors.torch import save_file
from typer.testing import CliRunner

from hf_ffn import FFNForMaskedLM, convert
from hf_ffn.checkpoint_ffn import AUTO_MAPS
from hf_ffn.conversion import model_class_for
from hf_ffn.hub import isolated as isolated_program
from hf_ffn.hub import stage as staging
from hf_ffn.hub.details import CardDetails
from hf_ffn.hub.manifest import check_manifest, read_manifest
from hf_ffn.hub.stage import StageError, case_of, isolated, stage
from hf_ffn.training.checkpoints import prepare_output_folder
from hf_ffn_cli import app
from hf_ffn_cli import main as hf_ffn_main

from tiny import ffn_model

Save = Callable[..., Path]

# What travels with every model, and what with one of each kind.
CODE = {
    *("attention_ffn.py", "blocks_ffn.py", "checkpoint_ffn.py", "configuration_ffn.py", "configuration_ffn_block.py"),
    "folders_ffn.py",
    *("frugal_ffn.py", "grids_ffn.py", "loading_ffn.py", "modeling_ffn.py", "packing_ffn.py", "positions_ffn.py"),
    *("labels_ffn.py", "registry_ffn.py", "resizing_ffn.py", "ties_ffn.py"),
}
TEXT_CODE = {*CODE, "modeling_ffn_text.py", "embeddings_ffn_text.py", "heads_ffn_text.py"}
VISION_CODE = {*CODE, "modeling_ffn_vision.py", "patches_ffn.py", "pooling_ffn.py"}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks for a connection fails, and the client doesn't know that it is offline."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"something asked for a connection: {args}")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fresh processes are not started, for what is tried before and after them; returns which would have been."""
    started: list[str] = []
    monkeypatch.setattr(staging, "isolated", lambda scratch, how, *command: started.append(how))
    return started


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small text model."""
    weights_folder(tmp_path / "source", "FFNTextModel")
    return tmp_path / "source"


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names_in(folder)}


def texts_of(folder: Path) -> str:
    return "".join(
        (folder / name).read_text() for name in names_in(folder) if not name.endswith((".safetensors", ".png"))
    )


def assert_published_whole(folder: Path) -> None:
    """The folder is what its manifest says, and its configuration leads to its own code alone."""
    assert names_in(folder) == {*check_manifest(folder), "manifest.json"}
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"] == AUTO_MAPS[config["model_type"]]
    assert "--" not in str(config["auto_map"])


def refused(source: Path, out: Path, **kwargs: Any) -> str:
    """Staging fails, leaves what was there, and nothing else; returns why."""
    before = content(out.parent)
    with pytest.raises(StageError) as caught:
        stage(source, out, **kwargs)
    assert content(out.parent) == before
    return str(caught.value)


def test_a_conversion_is_staged_and_proven_without_network(
    save_source: Save, tmp_path: Path, no_network: None
) -> None:
    bert = save_source("BertForMaskedLM")
    add_processor(bert, "FFNForMaskedLM")
    convert(bert, tmp_path / "ours")
    report = stage(tmp_path / "ours", tmp_path / "ready", details=CardDetails(license="mit", language=["en"]))
    folder = tmp_path / "ready"
    assert_published_whole(folder)
    tokenizer = {"tokenizer.json", "tokenizer_config.json"}
    assert set(read_manifest(folder)) == {
        "README.md", "config.json", "equivalence.json", "model.safetensors", *tokenizer, *TEXT_CODE
    }  # fmt: skip
    before, after = (FFNForMaskedLM.from_pretrained(each).state_dict() for each in (tmp_path / "ours", folder))
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert report.files == {name: (folder / name).stat().st_size for name in read_manifest(folder)}
    assert len(report.proven) == 4
    assert report.gaps == ["intended_use", "limits"]
    # Where the original lay is not told, nor taken for its name on the Hub.
    assert str(tmp_path) not in texts_of(folder)
    data = ModelCard.load(folder / "README.md").data.to_dict()
    assert (data["license"], data["pipeline_tag"]) == ("mit", "fill-mask")
    assert "base_model" not in data
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_trained_image_model_is_staged_in_shards_with_its_results(tmp_path: Path, no_network: None) -> None:
    run = tmp_path / "run"
    model = weights_folder(run, "FFNForImageClassification", id2label={0: "zero", 1: "one"}, dtype="bfloat16")
    add_processor(run, "FFNForImageClassification")
    add_run(run, dataset_name="digits", output_dir=str(run), train_dir="/home/somebody/x", learning_rate=0.002)
    (run / "checkpoint-4").mkdir()
    (run / "checkpoint-4" / "optimizer.bin").write_bytes(b"0")
    (run / "worst_mistakes.md").write_text("of nobody's business")
    report = stage(run, tmp_path / "ready", max_shard_size="20KB")
    folder = tmp_path / "ready"
    assert_published_whole(folder)
    shards = set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())
    assert len(shards) > 2
    assert names_in(folder) == {
        "README.md", "config.json", "manifest.json", "model.safetensors.index.json",
        "training_arguments.json",
        "all_results.json", "training_curves.png", "confusion_matrix.png", "preprocessor_config.json", *VISION_CODE,
        *shards,
    }  # fmt: skip
    assert "somebody" not in texts_of(folder)
    assert str(tmp_path) not in texts_of(folder)
    card = (folder / "README.md").read_text()
    assert "| `learning_rate` | `0.002` |" in card
    assert "![Confusion matrix of the evaluation data](confusion_matrix.png)" in card
    assert "language" not in report.gaps
    after = model_class_for(folder).from_pretrained(folder, dtype="auto").state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in model.state_dict().items())


@pytest.mark.slow
def test_an_original_checkpoint_is_converted_on_the_way(save_source: Save, tmp_path: Path, no_network: None) -> None:
    stage(save_source("BertModel"), tmp_path / "ready")
    assert_published_whole(tmp_path / "ready")
    assert model_class_for(tmp_path / "ready").__name__ == "FFNTextModel"


@pytest.mark.slow
def test_an_example_that_fails_keeps_the_folder_back(tmp_path: Path) -> None:
    weights_folder(tmp_path / "source", "FFNTextModel")
    add_processor(tmp_path / "source", "FFNTextModel")
    # More words than the model has places.
    said = refused(tmp_path / "source", tmp_path / "out", details=CardDetails(example="the " * 100))
    assert "does not do what its card says in a fresh process without hf-ffn" in said


@pytest.mark.slow
def test_other_outputs_keep_the_folder_back(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(model: Any) -> dict[str, torch.Tensor]:
        case = case_of(model)
        # The smallest change there is, in one number.
        vectors = case["output.last_hidden_state"].view(torch.int32)
        vectors[0, 0, 0] += 1
        return case

    monkeypatch.setattr(staging, "case_of", changed)
    said = refused(source, tmp_path / "out")
    assert re.search(r"last_hidden_state differs by up to \S+e-\d+ from the model in memory", said)


@pytest.mark.slow
def test_code_that_needs_hf_ffn_keeps_the_folder_back(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(model: Any, folder: Path, **kwargs: Any) -> None:
        saved(model, folder, **kwargs)
        code = folder / "modeling_ffn_text.py"
        code.write_text(code.read_text() + "\nfrom hf_ffn import FeedForward\n")

    saved = staging.FFNPreTrainedModel.save_pretrained
    monkeypatch.setattr(staging.FFNPreTrainedModel, "save_pretrained", save)
    assert "hf_ffn" in refused(source, tmp_path / "out")


def test_both_examples_of_the_card_are_tried(source: Path, tmp_path: Path, unproven: list[str]) -> None:
    stage(source, tmp_path / "out")
    assert unproven == ["without-hf-ffn", "with-hf-ffn"]


def test_a_folder_that_was_staged_before_is_replaced(source: Path, tmp_path: Path, unproven: list[str]) -> None:
    stage(source, tmp_path / "out", max_shard_size="20KB")
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    stage(source, tmp_path / "out")
    assert_published_whole(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("model*.safetensors*")] == ["model.safetensors"]
    assert {path.name for path in tmp_path.iterdir()} == {"source", "out"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"dataset_name": "digits", "lora": "linear_1", "lora_rank": 4, "seed": 0},
        {"dataset_name": "me/words", "dataset_config_name": "de", "model_name_or_path": "me/bert"},
        {"train_file": "/home/somebody/words.csv", "model_name_or_path": "/home/somebody/bert", "max_train_steps": 9},
        {"dataset_name": "/home/somebody/words", "dataset_config_name": "somebody", "mixed_precision": "bf16"},
    ],
)
def test_a_staged_folder_can_be_staged_again_with_the_same_card(
    source: Path, tmp_path: Path, unproven: list[str], arguments: dict[str, Any]
) -> None:
    add_run(source, output_dir="/home/somebody/out", hub_model_id="somebody/x", learning_rate=0.002, **arguments)
    details = CardDetails(repo_id="me/model")
    stage(source, tmp_path / "out", details=details)
    stage(tmp_path / "out", tmp_path / "again", details=details)
    once, twice = content(tmp_path / "out"), content(tmp_path / "again")
    assert b"| `learning_rate` | `0.002` |" in once["README.md"]
    assert once == twice
    assert "somebody" not in texts_of(tmp_path / "out")


def test_a_staged_folder_is_not_taken_for_a_run_that_may_be_written_over(
    source: Path, tmp_path: Path, unproven: list[str]
) -> None:
    add_run(source, learning_rate=0.002)
    stage(source, tmp_path / "out")
    before = content(tmp_path / "out")
    with pytest.raises(ValueError, match="holds no run of hf_ffn"):
        prepare_output_folder(tmp_path / "out", overwrite=True, resume=False)
    assert content(tmp_path / "out") == before


def save_changed(folder: Path, change: Callable[[Any], Any]) -> None:
    """Load a folder's model, change it, and save it over what was there."""
    model = model_class_for(folder).from_pretrained(folder)
    change(model)
    model.save_pretrained(folder)


# What comes to lie beside facts of another model; each is a way in which that happens.
OTHER_MODELS: dict[str, Callable[[Path, Path], Any]] = {
    "another conversion": lambda folder, other: convert(other, folder, check=False),
    "weights trained further": lambda folder, other: save_changed(
        folder, lambda model: torch.nn.init.zeros_(model.encoder.layers[0].ffn.linear_1.bias)
    ),
    "another activation": lambda folder, other: save_changed(
        folder, lambda model: model.config.update({"hidden_act": "relu"})
    ),
    "facts that were copied": lambda folder, other: [
        weights_folder(folder.with_name("other"), "FFNTextModel", seed=5),
        shutil.copytree(folder.with_name("other"), folder, dirs_exist_ok=True),
    ],
}


@pytest.mark.parametrize("how", OTHER_MODELS)
def test_facts_of_another_model_are_left_out_and_that_is_said(
    save_source: Save, tmp_path: Path, unproven: list[str], how: str
) -> None:
    folder = tmp_path / "ours"
    _, report = convert(save_source("BertModel"), folder)
    assert report is not None
    report.plot(folder / "equivalence.png")
    add_run(folder, learning_rate=0.002)
    names = {"equivalence.json", "equivalence.png", "all_results.json", "training_curves.png", "confusion_matrix.png"}
    stage(folder, tmp_path / "before")
    assert names | {"training_arguments.json"} <= names_in(tmp_path / "before")
    OTHER_MODELS[how](folder, save_source("BertModel", "second", hidden_act="relu"))
    told = stage(folder, tmp_path / "out")
    assert {each.split(": ")[0] for each in told.left_out} == names | {"run.json"}
    assert str(told).count("  left out: equivalence.json: it is about another model") == 1
    assert not (names | {"training_arguments.json"}) & names_in(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for said in ("equivalent", "proof", "0.9375", "0.002", ".png"):
        assert said not in card
    # And what was staged from that has nothing more to leave out.
    assert stage(tmp_path / "out", tmp_path / "again").left_out == []


def test_facts_that_do_not_say_what_they_are_about_are_left_out(
    source: Path, tmp_path: Path, unproven: list[str]
) -> None:
    write_json(source / "equivalence.json", REPORT)
    write_json(source / "all_results.json", {"accuracy": 0.5})
    (source / "reliability.png").write_bytes(b"\x89PNG")
    report = stage(source, tmp_path / "out")
    said = "it does not say which model it is about"
    assert sorted(report.left_out) == [
        f"{name}: {said}" for name in ("all_results.json", "equivalence.json", "reliability.png")
    ]
    assert not {"all_results.json", "equivalence.json", "reliability.png"} & names_in(tmp_path / "out")


@pytest.mark.parametrize("kind", ["somebody's files", "staged and changed", "a file", "the source"])
def test_what_was_not_staged_is_not_replaced(source: Path, tmp_path: Path, unproven: list[str], kind: str) -> None:
    out = tmp_path / "out"
    if kind == "staged and changed":
        stage(source, out)
        (out / "README.md").write_text("written by hand")
    elif kind == "somebody's files":
        out.mkdir()
        (out / "thesis.txt").write_text("ten years of work")
    elif kind == "a file":
        out.write_text("ten years of work")
    else:
        out = source
    before = content(tmp_path)
    with pytest.raises((ValueError, NotADirectoryError), match="folder"):
        stage(source, out)
    assert content(tmp_path) == before


def test_a_proof_that_fails_leaves_what_was_there(
    source: Path, tmp_path: Path, unproven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(scratch: Path, how: str, *command: Any) -> None:
        raise StageError(f"not {how}")

    stage(source, tmp_path / "out")
    monkeypatch.setattr(staging, "isolated", fail)
    assert refused(source, tmp_path / "out", details=CardDetails(limits="others")) == "not without-hf-ffn"
    assert refused(source, tmp_path / "new") == "not without-hf-ffn"


@pytest.mark.parametrize(
    ("details", "says"),
    [
        ({"limits": "The token is hf" + "_" + "aBcD1234" * 4}, "a token of the Hugging Face Hub"),
        ({"intended_use": "The data are in\n/home/somebody/data."}, "a path of this machine ('/home/somebody')"),
        ({"title": "/Users/somebody/x"}, "a path of this machine"),
        ({"limits": "Ask wendeline."}, "your user name ('wendeline')"),
    ],
)
def test_what_is_nobodys_business_keeps_the_folder_back(
    source: Path,
    tmp_path: Path,
    unproven: list[str],
    monkeypatch: pytest.MonkeyPatch,
    details: dict[str, str],
    says: str,
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "wendeline")
    said = refused(source, tmp_path / "out", details=CardDetails(**details))
    assert said.startswith("not fit to be published: README.md, line ")
    assert says in said
    assert unproven == []


def test_names_that_are_on_the_hub_are_public(
    source: Path, tmp_path: Path, unproven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "wendeline")
    for details in (
        CardDetails(repo_id="wendeline/x"),
        CardDetails(repo_id="team/x", base_model="wendeline/y"),
        CardDetails(repo_id="team/x", datasets=["team/y", "wendeline/z"]),
    ):
        stage(source, tmp_path / "out", details=details)
        assert "wendeline" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("modeling_ffn_text.py", "from .missing import x", "imports .missing, which is not in the folder"),
        ("config.json", {"AutoModel": "somebody/x--modeling_ffn_text.FFNTextModel"}, "leads to another repository"),
        ("config.json", {"AutoConfig": "configuration_ffn.FFNTextConfig"}, "auto_map lacks AutoModel"),
    ],
)
def test_code_that_leads_out_keeps_the_folder_back(
    source: Path, tmp_path: Path, unproven: list[str], monkeypatch: pytest.MonkeyPatch, name: str, text: Any, says: str
) -> None:
    def save(model: Any, folder: Path, **kwargs: Any) -> None:
        saved(model, folder, **kwargs)
        path = folder / name
        if name == "config.json":
            path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": text}))
        else:
            path.write_text(path.read_text() + f"\n{text}\n")

    saved = staging.FFNPreTrainedModel.save_pretrained
    monkeypatch.setattr(staging.FFNPreTrainedModel, "save_pretrained", save)
    assert says in refused(source, tmp_path / "out")


@pytest.mark.parametrize("name", ["equivalence.json", "all_results.json", "run.json", "training_arguments.json"])
def test_a_damaged_file_is_named_where_it_lies(source: Path, tmp_path: Path, unproven: list[str], name: str) -> None:
    (source / name).write_text("{")
    with pytest.raises(ValueError, match=r"damaged") as caught:
        stage(source, tmp_path / "out")
    assert str(source / name) in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"source"}


def test_a_source_that_is_no_model_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        stage(tmp_path / "nowhere", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "repo_id"),
    [("ready", "your-name/ready"), (".my model (v2)", "your-name/my-model-v2"), ("a--b", "your-name/your-model")],
)
def test_a_card_whose_repository_is_not_known_has_a_stand_in(
    source: Path, tmp_path: Path, unproven: list[str], folder: str, repo_id: str
) -> None:
    stage(source, tmp_path / folder)
    shown = re.findall(r'^repo = "(.*)"$', (tmp_path / folder / "README.md").read_text(), re.MULTILINE)
    assert shown == [repo_id, repo_id]


def test_a_picture_of_a_proof_that_is_not_there_stays_behind(
    source: Path, tmp_path: Path, unproven: list[str]
) -> None:
    add_fact(source, "equivalence.png")
    add_fact(source, "reliability.png")
    stage(source, tmp_path / "out")
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (tmp_path / "out" / "README.md").read_text())
    assert shown == [path.name for path in (tmp_path / "out").glob("*.png")] == ["reliability.png"]


@pytest.mark.parametrize("class_name", [*TEXT_CLASSES, *VISION_CLASSES])
def test_the_case_to_compare_has_all_inputs_and_outputs(tmp_path: Path, class_name: str) -> None:
    model = ffn_model(class_name).to(torch.bfloat16)
    case = case_of(model)
    save_file(case, tmp_path / "case.safetensors")
    inputs = {name.removeprefix("input."): t for name, t in case.items() if name.startswith("input.")}
    with torch.no_grad():
        outputs = model(**inputs)
    assert {name for name in case if name.startswith("output.")} == {f"output.{name}" for name in outputs}
    assert all(torch.equal(case[f"output.{name}"], tensor) for name, tensor in outputs.items())
    assert all(t.isfinite().all() for t in case.values())


@pytest.fixture
def case(source: Path, tmp_path: Path) -> tuple[Path, Path, dict[str, torch.Tensor]]:
    """A model's folder, and where its case is to be written, and the case."""
    model = model_class_for(source).from_pretrained(source)
    return source, tmp_path / "case.safetensors", case_of(model)


def test_the_same_outputs_pass_the_comparison(case: tuple[Path, Path, dict[str, torch.Tensor]]) -> None:
    folder, path, tensors = case
    save_file(tensors, path)
    isolated_program.load(str(folder), "AutoModel", str(path))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda case: case["output.pooler_output"][0].add_(1.0), "pooler_output differs by up to 1.0"),
        (lambda case: case.update({"output.more": torch.ones(1)}), "more is not among its outputs"),
    ],
)
def test_other_outputs_do_not(
    case: tuple[Path, Path, dict[str, torch.Tensor]], change: Callable[[dict], Any], says: str
) -> None:
    folder, path, tensors = case
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(SystemExit) as caught:
        isolated_program.load(str(folder), "AutoModel", str(path))
    assert says in str(caught.value.code)


def test_hf_ffn_looks_as_if_it_were_not_installed() -> None:
    finder = isolated_program.WithoutHfFfn()
    for name in ("hf_ffn", "hf_ffn.hub.stage"):
        with pytest.raises(ModuleNotFoundError, match="hf_ffn"):
            finder.find_spec(name)
    assert finder.find_spec("hf_ffn_text") is None
    assert finder.find_spec("torch") is None


def write(tmp_path: Path, program: str) -> Path:
    path = tmp_path / "example.py"
    path.write_text(program)
    return path


def test_an_example_finds_hf_ffn_and_nothing_of_where_it_was_called_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    program = f"""
import importlib.util, os, sys
assert __name__ == "__main__"
assert importlib.util.find_spec("hf_ffn")
assert not importlib.util.find_spec("manifest"), "the folder of isolated.py is searched"
assert os.environ["HF_HUB_OFFLINE"] == "1"
assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "3"
assert os.environ["HF_MODULES_CACHE"] == os.path.join({str(tmp_path)!r}, "modules")
assert "" not in sys.path
"""
    isolated(tmp_path, "with-hf-ffn", write(tmp_path, program))


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('no such weights')", "no such weights"),
        ("import sys; sys.exit(3)", "exit status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit status -9"),
        ("def (:", "SyntaxError"),
        ("import sys; sys.stderr.buffer.write(b'\\xff wrong'); sys.exit(1)", "wrong"),
    ],
)
def test_an_example_that_fails_is_told_with_its_reason(tmp_path: Path, program: str, says: str) -> None:
    with pytest.raises(StageError, match="fresh process with hf-ffn") as caught:
        isolated(tmp_path, "with-hf-ffn", write(tmp_path, program))
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "call",
    [
        "s.connect(('127.0.0.1', 9))",
        "s.connect_ex(('127.0.0.1', 9))",
        "socket.create_connection(('localhost', 9))",
        "socket.getaddrinfo('localhost', 9)",
        "socket.gethostbyname('localhost')",
        "socket.gethostbyaddr('127.0.0.1')",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('127.0.0.1', 9))",
        "s.bind(('127.0.0.1', 0))",
        "__import__('urllib.request').request.urlopen('http://127.0.0.1:9')",
    ],
)
def test_no_connection_leaves_the_fresh_process(tmp_path: Path, call: str) -> None:
    program = write(tmp_path, f"import socket\ns = socket.socket()\n{call}\n")
    with pytest.raises(StageError, match="must load without network, and something asked for socket"):
        isolated(tmp_path, "with-hf-ffn", program)


def test_an_example_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "TIMEOUT", 1)
    with pytest.raises(StageError, match="not ready after 1 s in a fresh process with hf-ffn"):
        isolated(tmp_path, "with-hf-ffn", write(tmp_path, "import time; time.sleep(60)"))


def test_the_command_prints_what_was_staged_and_what_is_missing(
    source: Path, tmp_path: Path, unproven: list[str]
) -> None:
    card = tmp_path / "details.yaml"
    card.write_text("license: mit\nlimits: English only.\n")
    out = tmp_path / "out"
    arguments = ["stage", str(source), str(out), "--card", str(card), "--repo-id", "me/x", "--max-shard-size", "20KB"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    size = sum(entry["size"] for entry in read_manifest(out).values())
    assert f"{out}: {len(read_manifest(out))} files, {size:,} bytes" in lines
    assert len([line for line in lines if line.startswith("  proven: ")]) == 4
    gaps = [line.split()[4] for line in lines if line.startswith("  gap in the card: ")]
    assert gaps == ["language", "intended_use"]
    assert 'repo = "me/x"' in (out / "README.md").read_text()
    assert "license: mit" in (out / "README.md").read_text()
    assert len(list(out.glob("model-*.safetensors"))) > 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["{source}", "{tmp}/out", "--card", "{tmp}/nowhere.yaml"], "nowhere.yaml"),
        (["{source}", "{tmp}/out", "--card", "{tmp}/wrong.yaml"], "did you mean license?"),
        (["{source}", "{tmp}/out", "--card", "{tmp}/broken.yaml"], "is not YAML"),
        (["{source}", "{tmp}/out", "--repo-id", "my model"], "repo_id 'my model' cannot be on the Hub"),
        (["{source}", "{tmp}/out", "--max-shard-size", "lots"], "lots"),
        (["{source}", "{source}"], "write to another folder"),
        (["{source}", "{tmp}/out", "--card", "{tmp}/token.yaml"], "not fit to be published: README.md, line "),
        (["{tmp}/nowhere", "{tmp}/out"], "there is no folder"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(
    source: Path,
    tmp_path: Path,
    unproven: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    says: str,
) -> None:
    (tmp_path / "wrong.yaml").write_text("licence: mit")
    (tmp_path / "broken.yaml").write_text("license: [mit")
    (tmp_path / "token.yaml").write_text("limits: hf" + "_" + "aBcD1234" * 4)
    arguments = [flag.format(source=source, tmp=tmp_path) for flag in flags]
    monkeypatch.setattr("sys.argv", ["hf-ffn", "stage", *arguments])
    with pytest.raises(SystemExit) as caught:
        hf_ffn_main()
    assert caught.value.code == 1
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert last.startswith("hf-ffn: ")
    assert says in last
    assert "aBcD1234" not in last
    assert not (tmp_path / "out").exists()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
