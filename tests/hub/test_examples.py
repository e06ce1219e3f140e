"""The `hf-ffn` commands of the README and of the help texts, one after the other, with a Hub on this machine."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hf_ffn_cli import app

from loopback_hub import Hub
from shown_commands import commands, words_of

# What each command needs comes before it.
ORDER = ("families", "convert", "verify", "export", "stage", "push", "pull")


@pytest.mark.slow
def test_the_commands_that_are_shown_run_one_after_the_other(
    hub: Hub, save_source: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert, vit = save_source("BertModel", "bert"), save_source("ViTModel", "vit")
    (tmp_path / "details.yaml").write_text("license: apache-2.0\nlimits: Not tried on other languages.\n")
    monkeypatch.chdir(tmp_path)
    # What the Hub has, and what a run has left, which is staged.
    places = {"google-bert/bert-base-uncased": bert, "google/vit-base-patch16-224": vit, "out": bert, "my-run": bert}
    shown = [words_of(each)[1:] for each in commands() if each.startswith("hf-ffn")]
    # Where words in capitals stand for what one has, it is no command yet.
    shown = [words for words in shown if not any(word.isupper() for word in words)]
    for command, *rest in sorted(shown, key=lambda words: ORDER.index(words[0])):
        words = [str(places.get(word, word)) for word in rest]
        if command == "pull" and Path(words[1]).exists():
            words[1] += "-again"
        result = CliRunner().invoke(app, [command, *words])
        assert result.exit_code == 0, (command, words, result.output, result.exception)
    assert {words[0] for words in shown} == set(ORDER)
