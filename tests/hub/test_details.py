"""What a person states of a model is read as it was meant, or refused in one line that says what to do."""

from pathlib import Path

import pytest
import yaml

from hf_ffn.hub.details import RELATIONS, CardDetails

WHOLE = {
    "title": "My encoder",
    "repo_id": "me/my-encoder",
    "license": "apache-2.0",
    "language": ["en", "de"],
    "base_model": "google-bert/bert-base-uncased",
    "base_model_relation": "finetune",
    "datasets": ["stanfordnlp/imdb"],
    "tags": ["prose"],
    "intended_use": "Finding like sentences.",
    "limits": "English and German only.",
    "example": 'Zwölf Boxkämpfer: "jagen" Viktor.\nÜber den Deich.',
}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "details.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    """The error of reading it, which fits on the screen."""
    with pytest.raises(ValueError, match=r".") as caught:
        CardDetails.from_yaml(path)
    return str(caught.value)


def test_every_entry_is_read(tmp_path: Path) -> None:
    details = CardDetails.from_yaml(write(tmp_path, yaml.safe_dump(WHOLE, allow_unicode=True)))
    assert vars(details) == WHOLE


def test_nothing_stated_is_nothing_known(tmp_path: Path) -> None:
    assert vars(CardDetails.from_yaml(write(tmp_path, ""))) == vars(CardDetails())
    assert CardDetails().tags == []


def test_one_word_is_a_list_of_one(tmp_path: Path) -> None:
    details = CardDetails.from_yaml(write(tmp_path, "language: en\ndatasets: me/texts\ntags: prose"))
    assert (details.language, details.datasets, details.tags) == (["en"], ["me/texts"], ["prose"])


@pytest.mark.parametrize("nothing", ["", "''", "'  '", "[]", "[ '' ]", "null"])
@pytest.mark.parametrize("name", ["language", "datasets"])
def test_an_entry_left_empty_is_not_known(tmp_path: Path, name: str, nothing: str) -> None:
    assert getattr(CardDetails.from_yaml(write(tmp_path, f"{name}: {nothing}")), name) is None
    assert CardDetails.from_yaml(write(tmp_path, f"tags: {nothing}")).tags == []


@pytest.mark.parametrize("nothing", ["", "''", "'  '"])
@pytest.mark.parametrize("name", ["title", "repo_id", "license", "base_model", "intended_use", "limits", "example"])
def test_a_text_left_empty_is_not_known(tmp_path: Path, name: str, nothing: str) -> None:
    assert getattr(CardDetails.from_yaml(write(tmp_path, f"{name}: {nothing}")), name) is None


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_hubs_relations_are_taken(relation: str) -> None:
    assert CardDetails(base_model_relation=relation).base_model_relation == relation


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("license: 2.0", "license must be text, not 2.0 (put it in quotes)"),
        ("limits: [a, b]", "limits must be text, not ['a', 'b']"),
        ("intended_use: {for: prose}", "intended_use must be text"),
        ("language: {en: 1}", "language must be a list of words, not {'en': 1}"),
        # YAML's Norway problem: a bare no is false.
        ("language: no", "language must be a list of words, not False (put them in quotes)"),
        ("language: [en, no]", "language must be a list of words, not ['en', False] (put them in quotes)"),
        ("datasets: [1]", "datasets must be a list of words"),
        ("tags: 7", "tags must be a list of words"),
        ("base_model_relation: finetuned", "'finetuned' must be one of finetune, adapter, quantized, merge"),
        ("base_model_relation: [finetune]", "must be one of"),
        ("base_model: /home/me/bert", "base_model '/home/me/bert' cannot be on the Hub: give user/name"),
        ("datasets: [me/texts, ./texts]", "datasets './texts' cannot be on the Hub"),
        ("repo_id: my encoder", "repo_id 'my encoder' cannot be on the Hub"),
        ("licence: mit", "has the entry 'licence', which a card does not know; did you mean license?"),
        ("colour: red", "has the entry 'colour', which a card does not know; known: title, repo_id, license"),
        ("1: red", "has the entry '1'"),
        ("- license: mit", "must hold entries such as `license: apache-2.0`"),
        ("[]", "must hold entries such as"),
        ("mit", "must hold entries such as"),
        ("license: [mit", "is not YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    assert says in refusal(write(tmp_path, text))


@pytest.mark.parametrize("text", ["licence: mit", "license: [mit", "- a"])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    assert str(path) in refusal(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "details.yaml"
    path.write_bytes(b"\xff\xfe\x00license")
    assert "is not YAML" in refusal(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        CardDetails.from_yaml(tmp_path / "nowhere.yaml")
