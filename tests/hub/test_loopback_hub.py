"""The loopback Hub answers the real client as the Hub does, and fails when told to."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

import loopback_hub
from loopback_hub import READ_TOKEN, STRANGERS_TOKEN, Fault, Hub

FILES = {
    "config.json": b'{"a": 1}',
    "model.safetensors": bytes(range(256)) * 40,
    "README.md": b"---\nlicense: mit\n---\n",
    "code.py": b"1\n",
    "pictures/loss.png": b"\x89PNG\0" * 9,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
    return tmp_path / "folder"


def status_of(call: pytest.ExceptionInfo[HfHubHTTPError]) -> int:
    return call.value.response.status_code


@pytest.mark.parametrize("repo_type", ["model", "dataset"])
def test_what_is_uploaded_comes_back(api: HfApi, folder: Path, tmp_path: Path, repo_type: str) -> None:
    assert api.create_repo("x", repo_type=repo_type).repo_id == "me/x"
    commit = api.upload_folder(repo_id="me/x", folder_path=folder, repo_type=repo_type)
    there = {"repo_id": "me/x", "repo_type": repo_type}
    assert api.repo_info(**there).sha == commit.oid
    snapshot = Path(api.snapshot_download(**there, cache_dir=tmp_path / "cache"))
    assert {name: (snapshot / name).read_bytes() for name in FILES} == FILES
    one = api.hf_hub_download("me/x", "code.py", repo_type=repo_type, cache_dir=tmp_path / "other")
    assert Path(one).read_bytes() == FILES["code.py"]
    listed = {file.path: file for file in api.list_repo_tree(**there, recursive=True)}
    assert set(listed) == {*FILES, ".gitattributes"}
    assert listed["model.safetensors"].lfs.sha256 == hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    assert listed["code.py"].blob_id == "d00491fd7e5bb6fa28c517a0bb32b8b506539d4d"  # as `git hash-object` says
    (paths_info,) = api.get_paths_info(paths=["config.json"], **there)
    assert paths_info.size == len(FILES["config.json"])


def test_objects_that_are_here_are_not_asked_for_again(api: HfApi, hub: Hub, folder: Path) -> None:
    api.create_repo("x")
    api.upload_folder(repo_id="me/x", folder_path=folder)
    api.upload_file(
        repo_id="me/x", path_or_fileobj=folder / "model.safetensors", path_in_repo="again.safetensors", revision="main"
    )
    assert hub.received[hashlib.sha256(FILES["model.safetensors"]).hexdigest()] == len(FILES["model.safetensors"])
    assert hub.repo("me/x").files()["again.safetensors"] == FILES["model.safetensors"]
    assert hub.resent == []


def test_branches_tags_pull_requests_and_deletions(api: HfApi, hub: Hub, folder: Path) -> None:
    api.create_repo("x")
    first = api.upload_folder(repo_id="me/x", folder_path=folder)
    api.create_branch("me/x", branch="draft")
    api.create_tag("me/x", tag="v1")
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_tag("me/x", tag="v1")
    api.create_commit("me/x", [CommitOperationDelete("code.py")], commit_message="less", revision="draft")
    change = [CommitOperationAdd("code.py", b"2\n")]
    asked = api.create_commit("me/x", change, commit_message="more", create_pr=True)
    refs = api.list_repo_refs("me/x")
    assert {branch.name for branch in refs.branches} == {"main", "draft"}
    assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v1", first.oid)]
    assert asked.pr_num == 1
    (pull_request,) = api.get_repo_discussions("me/x", discussion_type="pull_request")
    assert (pull_request.title, pull_request.author, pull_request.git_reference) == ("more", "me", "refs/pr/1")
    repo = hub.repo("me/x")
    assert repo.files("refs/pr/1")["code.py"] == b"2\n"
    assert repo.files() == repo.files("v1")
    assert "code.py" not in repo.files("draft")
    api.delete_repo("me/x")
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("me/x")


def test_a_commit_is_whole_and_on_its_parent_or_is_none(api: HfApi, hub: Hub) -> None:
    api.create_repo("x")
    start = api.repo_info("me/x").sha
    change = [CommitOperationAdd("a.txt", b"1")]
    api.create_commit("me/x", change, commit_message="a", parent_commit=start)
    with pytest.raises(HfHubHTTPError) as call:
        api.create_commit("me/x", [CommitOperationAdd("b.txt", b"2")], commit_message="b", parent_commit=start)
    assert status_of(call) == 412
    unsent = CommitOperationAdd("w.safetensors", b"3")
    unsent._upload_mode, unsent._is_uploaded, unsent._should_ignore = "lfs", True, False
    both = [CommitOperationAdd("c.txt", b"4"), unsent]
    with pytest.raises(HfHubHTTPError, match="does not exist"):
        api.create_commit("me/x", both, commit_message="c")
    assert set(hub.repo("me/x").files()) == {".gitattributes", "a.txt"}


def test_who_may_do_what(api: HfApi, hub: Hub) -> None:
    api.create_repo("x")
    api.create_repo("secret", private=True)
    change = [CommitOperationAdd("a.txt", b"1")]
    for token, status in ((READ_TOKEN, 403), (STRANGERS_TOKEN, 403), ("hf_wrong", 401), (False, 401)):
        with pytest.raises(HfHubHTTPError) as call:
            api.create_commit("me/x", change, commit_message="a", token=token)
        assert status_of(call) == status, token
    with pytest.raises(HfHubHTTPError) as call:
        api.create_repo("me/y", token=STRANGERS_TOKEN)
    assert status_of(call) == 403
    assert api.repo_info("me/x", token=STRANGERS_TOKEN).private is False
    assert api.repo_info("me/secret").private is True
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("me/secret", token=STRANGERS_TOKEN)
    assert api.whoami()["name"] == "me"
    pull_request = api.create_commit("me/x", change, commit_message="a", token=STRANGERS_TOKEN, create_pr=True)
    assert pull_request.pr_num == 1


def test_what_is_missing_has_the_error_that_says_what(api: HfApi, tmp_path: Path) -> None:
    api.create_repo("x")
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("me/nothing")
    with pytest.raises(RevisionNotFoundError):
        api.repo_info("me/x", revision="nothing")
    with pytest.raises(RemoteEntryNotFoundError):
        api.hf_hub_download("me/x", "nothing", cache_dir=tmp_path)


def test_an_interrupted_download_goes_on_and_a_corrupted_one_is_another(
    api: HfApi, hub: Hub, folder: Path, tmp_path: Path
) -> None:
    api.create_repo("x")
    api.upload_folder(repo_id="me/x", folder_path=folder)
    hub.faults = [Fault("truncate", where="GET.*safetensors"), Fault("corrupt", at=3, where="GET.*safetensors")]
    whole = api.hf_hub_download("me/x", "model.safetensors", cache_dir=tmp_path / "a")
    assert Path(whole).read_bytes() == FILES["model.safetensors"]
    other = api.hf_hub_download("me/x", "model.safetensors", cache_dir=tmp_path / "b")
    assert Path(other).read_bytes() != FILES["model.safetensors"]


def test_faults_strike_the_requests_that_they_name(api: HfApi, hub: Hub, folder: Path) -> None:
    hub.faults = [
        Fault("status", status=429, headers={"Retry-After": "0"}, where="preupload"),
        Fault("reset", where="PUT", times=2),
        Fault("slow", seconds=0.3, where="validate-yaml"),
    ]
    api.create_repo("x")
    start = time.monotonic()
    api.upload_folder(repo_id="me/x", folder_path=folder)
    assert time.monotonic() - start > 0.3
    assert FILES.items() <= hub.repo("me/x").files().items()
    assert sum("preupload" in line for line in hub.log) == 2
    assert sum(line.endswith("-> reset") for line in hub.log) == 2
    assert hub.received[hashlib.sha256(FILES["model.safetensors"]).hexdigest()] == len(FILES["model.safetensors"])
    hub.faults = [Fault("lost", where="commit")]
    with pytest.raises(Exception, match=r"disconnect|reset"):
        api.create_commit("me/x", [CommitOperationAdd("late.txt", b"1")], commit_message="late")
    assert "late.txt" in hub.repo("me/x").files()


def test_it_serves_from_the_command_line(hub: Hub) -> None:
    command = [sys.executable, loopback_hub.__file__, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        assert url != hub.url
        try:
            assert HfApi(endpoint=url, token=loopback_hub.TOKEN).create_repo("x").repo_id == "me/x"
        finally:
            process.terminate()
