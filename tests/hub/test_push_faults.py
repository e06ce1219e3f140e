"""Whatever goes wrong on the way, a push ends with all of its commit or with nothing, and again completes."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hf_ffn.hub.client import HubError
from hf_ffn.hub.push import push

from loopback_hub import Fault, Hub

Staged = Callable[..., Path]

STATUSES = (401, 403, 408, 409, 412, 413, 429, 500, 502, 503, 504)
PLACES = (
    "",
    "",
    "PUT",
    "/commit/",
    "batch",
    "/tree/",
    "preupload",
    "GET",
    "POST",
    "create|branch|resolve|discussions",
)


def random_files(chance: random.Random) -> dict[str, bytes]:
    """A few files of both kinds, some of which are the same from one folder to the next."""
    names = chance.sample(
        ["a.safetensors", "b.safetensors", "c.safetensors", "a.json", "b.py", "d/e.txt", "README.md"], 5
    )
    return {name: (b"\0" if name.endswith("s") else b"") + b"%d" % chance.randrange(3) * 2000 for name in names}


def random_fault(chance: random.Random) -> Fault:
    """Something that goes wrong; once, a few times, or for long."""
    return Fault(
        chance.choice(["status", "status", "reset", "lost", "truncate"]),
        at=chance.randint(1, 6),
        where=chance.choice(PLACES),
        times=chance.choice([1, 1, 2, 3, 8, 60]),
        status=chance.choice(STATUSES),
        headers=chance.choice([{}, {"Retry-After": "0"}, {"Retry-After": "1"}]),
    )


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def files_at(hub: Hub, revision: str) -> dict[str, bytes]:
    """What a reader of a revision sees, without what the Hub itself put there."""
    return {name: data for name, data in hub.repo("me/x").files(revision).items() if name != ".gitattributes"}


def seen(hub: Hub) -> list[dict[str, bytes]]:
    """What any reader can see, at any commit; the first one is of the Hub's making."""
    return [files_at(hub, commit) for repo in hub.repos.values() for commit in repo.commits]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_a_push_is_whole_or_nothing_and_again_completes(hub: Hub, staged: Staged, seed: int) -> None:
    chance = random.Random(seed)
    wholes: list[dict[str, bytes]] = [{}]
    if chance.random() < 0.6:
        folder = staged(random_files(chance))
        push(folder, "me/x")
        wholes.append(content(folder))
    create_pr = len(wholes) == 2 and chance.random() < 0.3
    branch = "main" if create_pr else chance.choice(["main", "main", "v2"])
    folder = staged(random_files(chance))
    new = content(folder)
    hub.faults = [random_fault(chance) for _ in range(chance.randint(1, 6))]

    with contextlib.suppress(HubError):
        push(folder, "me/x", revision=branch, create_pr=create_pr)
    assert all(files in [*wholes, new] for files in seen(hub))
    assert hub.resent == []

    hub.faults = []
    report = push(folder, "me/x", revision=branch, create_pr=create_pr)
    assert report.commit is not None
    assert files_at(hub, report.commit) == new
    assert all(files in [*wholes, new] for files in seen(hub))
    assert len(seen(hub)) == len(wholes) + (new not in wholes)
    assert len(hub.repo("me/x").pulls) == (create_pr and new not in wholes)
    assert hub.resent == []
    if not create_pr:
        assert files_at(hub, branch) == new
