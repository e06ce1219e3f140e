"""A push is whole, sends nothing twice, and says what to do where it cannot succeed."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from hf_ffn.hub import client
from hf_ffn.hub import push as pushing
from hf_ffn.hub.client import HubError
from hf_ffn.hub.manifest import MANIFEST_NAME
from hf_ffn.hub.push import push

from loopback_hub import READ_TOKEN, STRANGERS_TOKEN, TOKEN, Fault, Hub

Staged = Callable[..., Path]

FILES = {
    "config.json": b'{"a": 1}',
    "model-1.safetensors": b"\0\1" * 5000,
    "model-2.safetensors": b"\0\2" * 5000,
    "README.md": b"---\nlicense: mit\n---\n",
    "pictures/loss.png": b"\x89PNG\0" * 9,
}


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pushed(hub: Hub, revision: str = "main", repo_id: str = "me/x") -> dict[str, bytes]:
    """What a reader of the Hub sees, without what the Hub itself puts there."""
    files = hub.repo(repo_id).files(revision)
    del files[".gitattributes"]
    return files


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_new_repository_gets_the_folder_in_one_commit(hub: Hub, staged: Staged) -> None:
    folder = staged(FILES)
    report = push(folder, "me/x")
    assert pushed(hub) == content(folder)
    repo = hub.repo("me/x")
    assert len(repo.commits) == 2
    assert not repo.private
    assert report.commit == repo.branches["main"]
    assert report.url == f"{hub.url}/me/x"
    assert report.sent == sorted([*FILES, MANIFEST_NAME])
    assert report.size == sum(len(data) for data in content(folder).values())
    assert report.url in str(report)
    assert report.commit in str(report)


def test_the_same_folder_again_makes_no_commit_and_sends_nothing(hub: Hub, staged: Staged) -> None:
    first = push(staged(FILES), "me/x")
    received = dict(hub.received)
    hub.log.clear()
    again = push(staged(FILES), "me/x")
    assert (again.commit, again.sent, again.deleted) == (first.commit, [], [])
    assert "nothing to do" in str(again)
    assert hub.received == received
    assert all(line.startswith("GET ") for line in hub.log)


def test_only_what_differs_is_sent(hub: Hub, staged: Staged) -> None:
    push(staged(FILES), "me/x")
    changed = {**FILES, "model-2.safetensors": b"\0\3" * 5000, "new.txt": b"new"}
    hub.received.clear()
    folder = staged(changed)
    report = push(folder, "me/x")
    manifest = (folder / MANIFEST_NAME).read_bytes()
    assert report.sent == [MANIFEST_NAME, "model-2.safetensors", "new.txt"]
    assert hub.received == {MANIFEST_NAME: len(manifest), "new.txt": 3, sha256(b"\0\3" * 5000): 10000}
    assert pushed(hub) == content(folder)


def test_the_repositorys_gitignore_keeps_nothing_out(hub: Hub, api: HfApi, staged: Staged) -> None:
    api.create_repo("x")
    api.upload_file(repo_id="me/x", path_or_fileobj=b"*.png\n*.safetensors\n*.md\n", path_in_repo=".gitignore")
    folder = staged({**FILES, "copy.safetensors": FILES["model-1.safetensors"]})
    push(folder, "me/x")
    assert content(folder).items() <= pushed(hub).items()


def test_a_commit_that_is_not_what_was_sent_is_told(hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.commit

    def forget(repo: Any, revision: str, lines: list[dict[str, Any]], by: Any) -> dict[str, Any]:
        return commit(repo, revision, [line for line in lines if line["value"].get("path") != "config.json"], by)

    monkeypatch.setattr(hub, "commit", forget)
    with pytest.raises(HubError, match=r"not what was sent: config\.json"):
        push(staged(FILES), "me/x")


def test_the_same_content_under_two_names_is_sent_once(hub: Hub, staged: Staged) -> None:
    weights = b"\0\1" * 5000
    folder = staged({"a.safetensors": weights, "b.safetensors": weights, "c.safetensors": b"\0\2"})
    push(folder, "me/x")
    assert hub.received[sha256(weights)] == 10000
    assert pushed(hub) == content(folder)


def test_what_the_push_before_brought_goes_and_what_others_added_stays(hub: Hub, api: HfApi, staged: Staged) -> None:
    push(staged(FILES), "me/x")
    api.upload_file(repo_id="me/x", path_or_fileobj=b"by hand", path_in_repo="notes/by-hand.txt")
    less = {name: data for name, data in FILES.items() if name not in ("model-2.safetensors", "pictures/loss.png")}
    report = push(staged(less), "me/x")
    assert report.deleted == ["model-2.safetensors", "pictures/loss.png"]
    assert pushed(hub).keys() == {*less, MANIFEST_NAME, "notes/by-hand.txt"}
    assert ".gitattributes" in hub.repo("me/x").files()
    assert len(hub.repo("me/x").commits) == 4


def test_somebody_elses_manifest_json_deletes_nothing(hub: Hub, api: HfApi, staged: Staged) -> None:
    api.create_repo("x")
    api.upload_file(repo_id="me/x", path_or_fileobj=b'{"files": {"a.txt": 1}}', path_in_repo=MANIFEST_NAME)
    api.upload_file(repo_id="me/x", path_or_fileobj=b"a", path_in_repo="a.txt")
    assert push(staged(FILES), "me/x").deleted == []
    assert "a.txt" in pushed(hub)


def test_a_folder_that_differs_from_its_manifest_does_not_leave_the_machine(hub: Hub, staged: Staged) -> None:
    folder = staged(FILES)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json: changed"):
        push(folder, "me/x")
    assert hub.log == []


def test_a_dry_run_says_what_would_be_and_changes_nothing(hub: Hub, staged: Staged) -> None:
    new = push(staged(FILES), "me/x", dry_run=True)
    assert (len(new.sent), new.commit, hub.repos) == (6, None, {})
    assert "would send 6 file(s)" in str(new)
    push(staged(FILES), "me/x")
    hub.log.clear()
    less = push(staged({"config.json": b"{}"}), "me/x", dry_run=True, revision="draft")
    assert less.sent == ["config.json", MANIFEST_NAME]
    assert less.deleted == ["README.md", "model-1.safetensors", "model-2.safetensors", "pictures/loss.png"]
    assert "would delete" in str(less)
    assert all(line.startswith(("GET ", "HEAD ")) for line in hub.log)


def test_private_is_made_private_and_refused_where_it_is_public(hub: Hub, staged: Staged) -> None:
    push(staged(FILES), "me/x", private=True)
    assert hub.repo("me/x").private
    push(staged({**FILES, "config.json": b"{}"}), "me/x", private=True)
    hub.repo("me/x").private = False
    before = hub.repo("me/x").files()
    with pytest.raises(HubError, match="is public"):
        push(staged(FILES), "me/x", private=True)
    assert hub.repo("me/x").files() == before


def test_a_branch_is_made_and_pushed_to(hub: Hub, api: HfApi, staged: Staged) -> None:
    folder = staged(FILES)
    report = push(folder, "me/x", revision="v2/draft")
    assert pushed(hub, "v2/draft") == content(folder)
    assert pushed(hub) == {}
    assert report.url == f"{hub.url}/me/x/tree/v2%2Fdraft"
    assert push(folder, "me/x", revision="v2/draft").sent == []
    push(staged({**FILES, "config.json": b"{}"}), "me/x", revision="v2/draft")
    assert pushed(hub, "v2/draft")["config.json"] == b"{}"
    api.create_tag("me/x", tag="v1")
    with pytest.raises(HubError, match="'v1' is a tag"):
        push(folder, "me/x", revision="v1")


def test_a_pull_request_leaves_main_and_is_opened_once(hub: Hub, staged: Staged) -> None:
    push(staged(FILES), "me/x")
    folder = staged({**FILES, "config.json": b"{}"})
    report = push(folder, "me/x", create_pr=True, token=STRANGERS_TOKEN)
    assert report.url == f"{hub.url}/me/x/discussions/1"
    assert pushed(hub, "refs/pr/1") == content(folder)
    assert pushed(hub)["config.json"] == FILES["config.json"]
    again = push(folder, "me/x", create_pr=True, token=STRANGERS_TOKEN)
    assert (again.url, again.commit, again.sent) == (report.url, report.commit, [])
    assert len(hub.repo("me/x").pulls) == 1
    more = staged({**FILES, "config.json": b"[]"})
    push(more, "me/x", revision="refs/pr/1")
    assert pushed(hub, "refs/pr/1") == content(more)
    push(staged({**FILES, "config.json": b"{}"}), "me/x", create_pr=True)
    assert len(hub.repo("me/x").pulls) == 2
    push(folder, "me/x", create_pr=True, commit_message="Asked for in other words")
    assert hub.repo("me/x").pulls["refs/pr/3"]["title"] == "Asked for in other words"


def test_a_pull_request_whose_answer_was_lost_is_not_opened_again(hub: Hub, staged: Staged) -> None:
    push(staged(FILES), "me/x")
    hub.faults = [Fault("lost", where="/commit/")]
    report = push(staged({**FILES, "config.json": b"{}"}), "me/x", create_pr=True)
    assert report.url == f"{hub.url}/me/x/discussions/1"
    assert report.sent == ["config.json", MANIFEST_NAME]
    assert len(hub.repo("me/x").pulls) == 1


def test_a_commit_whose_answer_was_lost_is_not_made_again(hub: Hub, staged: Staged) -> None:
    folder = staged(FILES)
    hub.faults = [Fault("lost", where="/commit/")]
    report = push(folder, "me/x")
    assert len(hub.repo("me/x").commits) == 2
    assert (report.commit, len(report.sent)) == (hub.repo("me/x").branches["main"], 6)
    assert hub.resent == []


@pytest.mark.parametrize(
    ("fault", "requests"),
    [
        (Fault("status", status=500, where="create"), "repos/create"),
        (Fault("reset", where="create"), "repos/create"),
        (Fault("lost", where="create"), "repos/create"),
        (Fault("status", status=429, where="/commit/", headers={"Retry-After": "2"}), "/commit/"),
        (Fault("reset", where="GET.*/tree/", at=2), "/tree/"),
        (Fault("status", status=503, where="preupload", times=7), "preupload"),
        (Fault("reset", where="PUT", times=7), "PUT"),
        (Fault("truncate", where="validate-yaml"), "validate-yaml"),
        (Fault("page", status=502, where="validate-yaml"), "validate-yaml"),
        (Fault("status", status=409, where="/commit/"), "/commit/"),
    ],
)
def test_what_can_pass_is_tried_again(hub: Hub, staged: Staged, fault: Fault, requests: str) -> None:
    hub.faults = [fault]
    folder = staged(FILES)
    push(folder, "me/x")
    assert pushed(hub) == content(folder)
    assert len(hub.repo("me/x").commits) == 2
    assert sum(requests in line for line in hub.log) > (fault.times if fault.kind != "lost" else 0)
    assert hub.resent == []


def test_the_wait_doubles_or_is_what_the_hub_asks_for(
    hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client.time, "sleep", waits.append)
    hub.faults = [
        Fault("status", status=502, where="/commit/", times=3),
        Fault("status", status=429, where="/commit/", at=4, headers={"Retry-After": "7"}),
    ]
    push(staged(FILES), "me/x")
    assert [0.7 < waits[0] < 1.3, 1.4 < waits[1] < 2.6, 2.9 < waits[2] < 5.1, waits[3]] == [True, True, True, 7]


def test_it_gives_up_after_some_attempts_and_goes_on_when_run_again(hub: Hub, staged: Staged) -> None:
    folder = staged(FILES)
    hub.faults = [Fault("status", status=503, where="/commit/", times=1000)]
    with pytest.raises(HubError, match=r"failed 6 times.*503.*goes on") as raised:
        push(folder, "me/x")
    assert "\n" not in str(raised.value)
    assert pushed(hub) == {}
    hub.faults = []
    before = dict(hub.received)
    push(folder, "me/x")
    assert pushed(hub) == content(folder)
    assert all(hub.received[name] == size for name, size in before.items() if len(name) == 64)
    assert hub.resent == []


def test_a_hub_that_asks_for_an_hour_is_not_waited_for(hub: Hub, staged: Staged) -> None:
    hub.faults = [Fault("status", status=429, where="/commit/", headers={"Retry-After": "3600"})]
    with pytest.raises(HubError, match="again in 3600 s"):
        push(staged(FILES), "me/x")


def test_a_dead_connection_is_not_waited_for_for_ever(
    hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 0.2)
    hub.faults = [Fault("slow", seconds=60, where="/commit/", times=100), Fault("slow", seconds=60, where="PUT")]
    with pytest.raises(HubError, match="ReadTimeout"):
        push(staged(FILES), "me/x")
    assert pushed(hub) == {}


def test_a_dead_hub_is_told(hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HfApi", lambda token: HfApi(endpoint="http://127.0.0.1:9", token=token))
    with pytest.raises(HubError, match="failed 6 times, last for: ConnectError"):
        push(staged(FILES), "me/x")


@pytest.mark.parametrize(
    ("status", "where", "says"),
    [
        (400, "/commit/", "must be changed"),
        (402, "PUT", "storage"),
        (403, "/commit/", "may not do this"),
        (413, "/commit/", "max_shard_size"),
        (413, "PUT", "max_shard_size"),
        (507, "PUT", "storage"),
    ],
)
def test_what_cannot_pass_is_one_clear_error_at_once(
    hub: Hub, staged: Staged, status: int, where: str, says: str
) -> None:
    hub.faults = [Fault("status", status=status, where=where)]
    with pytest.raises(HubError, match=says) as raised:
        push(staged(FILES), "me/x")
    assert str(status) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert sum("/commit/" in line for line in hub.log) == (where == "/commit/")
    assert pushed(hub) == {}


@pytest.mark.parametrize(
    ("token", "repo_id", "options", "says"),
    [
        ("hf_wrong", "me/x", {}, "does not know this token"),
        (READ_TOKEN, "me/x", {}, "may not do this"),
        (READ_TOKEN, "me/new", {}, "may not do this"),
        (STRANGERS_TOKEN, "me/x", {}, "may not do this"),
        (STRANGERS_TOKEN, "me/secret", {}, "may not do this"),
        (TOKEN, "me/nothing", {"create_pr": True}, "there is no 'me/nothing'"),
        (TOKEN, "me/x", {"create_pr": True, "revision": "v2"}, "goes to main"),
        ("hf_with\nbreak", "me/x", {}, "no token has"),
        (TOKEN, "me/x/y", {}, "cannot be a repository's name"),
        (TOKEN, "me/a--b", {}, "cannot be a repository's name"),
        (TOKEN, "", {}, "cannot be a repository's name"),
    ],
)
def test_who_may_not_or_asks_for_what_cannot_be_is_told(
    hub: Hub, api: HfApi, staged: Staged, token: str, repo_id: str, options: dict[str, Any], says: str
) -> None:
    api.create_repo("x")
    api.create_repo("secret", private=True)
    with pytest.raises(HubError, match=says) as raised:
        push(staged(FILES), repo_id, token=token, **options)
    assert token == TOKEN or token not in str(raised.value)
    assert set(hub.repos) == {("models", "me/x"), ("models", "me/secret")}
    assert pushed(hub) == pushed(hub, repo_id="me/secret") == {}


def test_without_a_token_it_says_how_to_sign_in(hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    push(staged(FILES), "me/x", private=True)
    hub.log.clear()
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="not signed in"):
        push(staged(FILES), "me/x")
    assert hub.log == []
    with pytest.raises(HubError, match=r"401.*hf auth login"):
        push(staged(FILES), "me/x", dry_run=True)
    hub.repo("me/x").private = False
    assert push(staged(FILES), "me/x", dry_run=True).sent == []


def test_offline_it_says_so_at_once(hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        push(staged(FILES), "me/x")


def test_a_name_alone_is_one_of_the_users_own(hub: Hub, staged: Staged) -> None:
    assert push(staged(FILES), "x").repo_id == "me/x"
    assert push(staged(FILES), "me/x").sent == []


@pytest.mark.parametrize(
    ("in_memory", "name", "when", "says"),
    [
        (0, "model-1.safetensors", "list_repo_tree", "does not match its hash"),
        (10**7, "config.json", "list_repo_tree", "changed since"),
        (10**7, "config.json", "create_commit", "changed while"),
    ],
)
def test_a_file_that_changes_under_way_is_not_passed_off_as_pushed(
    hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch, in_memory: int, name: str, when: str, says: str
) -> None:
    folder = staged(FILES)
    right = content(folder)
    unchanged = getattr(HfApi, when)

    def change_first(self: HfApi, *args: Any, **kwargs: Any) -> Any:
        (folder / name).write_bytes(FILES[name][::-1])
        return unchanged(self, *args, **kwargs)

    monkeypatch.setattr(pushing, "IN_MEMORY", in_memory)
    monkeypatch.setattr(HfApi, when, change_first)
    with pytest.raises(HubError, match=says):
        push(folder, "me/x")
    assert pushed(hub) == (right if when == "create_commit" else {})


def test_large_files_go_as_small_ones_do(hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "IN_MEMORY", 0)
    folder = staged(FILES)
    push(folder, "me/x")
    assert pushed(hub) == content(folder)


def test_two_pushes_at_once_end_with_one_of_them_whole(hub: Hub, staged: Staged) -> None:
    push(staged(FILES), "me/x")
    one = staged({**FILES, "config.json": b'{"by": "one"}', "one.txt": b"1", "model-1.safetensors": b"\0\5" * 9}, "1")
    two = staged({**FILES, "config.json": b'{"by": "two"}', "two.txt": b"2", "model-2.safetensors": b"\0\6" * 9}, "2")
    hub.faults = [Fault("slow", seconds=0.3, where="/commit/")]
    pushes = [threading.Thread(target=push, args=(folder, "me/x")) for folder in (one, two)]
    for thread in pushes:
        thread.start()
    for thread in pushes:
        thread.join()
    assert pushed(hub) in (content(one), content(two))
    assert len(hub.repo("me/x").commits) == 4
    for commit in hub.repo("me/x").commits.values():
        files = {name: file.content for name, file in commit.files.items() if name != ".gitattributes"}
        assert files in ({}, {**FILES, MANIFEST_NAME: files.get(MANIFEST_NAME)}, content(one), content(two))
