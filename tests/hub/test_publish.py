"""Staged and pushed in one go, by the script and at the end of a run."""

from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from scripts_runner import start

from hf_ffn import FFNTextModel
from hf_ffn.hub.client import HubError
from hf_ffn.hub.publish import publisher
from hf_ffn.hub.stage import StageReport

from loopback_hub import TOKEN, Hub
from tiny import bert_config, telling_model


@pytest.mark.slow
def test_the_script_publishes_an_original_checkpoint_with_a_card_that_names_its_repository(
    tmp_path: Path, hub: Hub, environment: dict[str, str]
) -> None:
    from transformers import BertModel

    telling_model(BertModel, bert_config()).save_pretrained(tmp_path / "bert")
    (tmp_path / "card.yaml").write_text("license: mit\n")
    flags = [tmp_path / "bert", "encoder", "--private", "--card", tmp_path / "card.yaml"]
    script = start("push_to_hub.py", tmp_path / "log", *flags, environment=environment).wait()
    assert script.code == 0, script.output
    assert f"{hub.url}/me/encoder" in script.output
    assert TOKEN not in script.output
    repo = hub.repo("me/encoder")
    assert repo.private
    assert len([commit for commit in repo.commits.values() if "model.safetensors" in commit.files]) == 1
    card = ModelCard(repo.files()["README.md"].decode())
    assert card.data.license == "mit"
    assert 'repo = "me/encoder"' in card.text
    # The same again finds nothing to do.
    again = start("push_to_hub.py", tmp_path / "log2", *flags, environment=environment).wait()
    assert again.output.strip().splitlines()[-1].startswith("nothing to do: ")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["nowhere", "me/encoder"], "nowhere"),
        (["nowhere", "a b"], "'a b' cannot be a repository's name"),
        (["nowhere", "me/encoder", "--card", "missing.yaml"], "missing.yaml"),
    ],
)
@pytest.mark.slow
def test_what_is_wrong_is_one_line(
    tmp_path: Path, hub: Hub, environment: dict[str, str], flags: list[str], says: str
) -> None:
    script = start("push_to_hub.py", tmp_path / "log", *flags, environment=environment).wait()
    assert script.code == 1
    assert "Traceback" not in script.output
    last = script.output.strip().splitlines()[-1]
    assert last.startswith("push_to_hub.py: ")
    assert says in last
    assert not hub.repos


def test_a_run_learns_of_a_wrong_card_or_a_missing_token_before_it_begins(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "card.yaml").write_text("licence: mit\n")
    with pytest.raises(ValueError, match="did you mean license"):
        publisher("me/x", card=str(tmp_path / "card.yaml"), private=False, token=None)
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(HubError, match="not signed in"):
        publisher("me/x", card=None, private=False, token=None)


def test_what_a_run_shares_is_staged_under_the_full_name(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, messages: pytest.LogCaptureFixture
) -> None:
    from hf_ffn.hub import publish as publishing
    from hf_ffn.hub.manifest import write_manifest

    staged: list[str | None] = []

    def without_proof(source: Path, out: Path, *, details: publishing.CardDetails) -> StageReport:
        staged.append(details.repo_id)
        FFNTextModel.from_pretrained(source).save_pretrained(out)
        write_manifest(out)
        return StageReport(out, {}, [], [], ["equivalence.json: it is about another model"])

    monkeypatch.setattr(publishing, "stage", without_proof)
    from transformers import BertModel

    telling_model(BertModel, bert_config()).save_pretrained(tmp_path / "bert")
    share = publisher("encoder", card=None, private=False, token=TOKEN)
    report = share(tmp_path / "bert", "Fine-tuned")
    assert staged == ["me/encoder"] == [report.repo_id]
    assert "left out of what is published: equivalence.json: it is about another model" in messages.text
    assert [commit.message for commit in hub.repo("me/encoder").commits.values()][-1] == "Fine-tuned"
