"""A pushed folder comes back from the Hub, and is what its manifest says or does not come."""

import glob
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi

from ..folders_ffn import is_empty, move_into_place, refuse_unwritable, staging_place
from .client import HubError, PassingError, connect, persist
from .manifest import MANIFEST_NAME, Files, check_manifest, files_of, is_same, listed
from .remote import fetch_manifest, is_whole, tree_of


class Pulled(NamedTuple):
    """What was pulled: the commit's hash, and what its manifest says."""

    commit: str
    files: Files


def pull(repo_id: str, folder: str | os.PathLike, *, revision: str | None = None, token: str | None = None) -> Pulled:
    """Fetch a repository that was pushed with a manifest, as that manifest says.

    It is fetched into a hidden folder, checked, and moved into place. If it breaks off, the same again goes on
    with the files that are there. Files that the manifest does not name stay on the Hub.

    Args:
        repo_id: user/name.
        folder: new, or one that is what its manifest says: that one is replaced.
        revision: a branch, a tag or a commit; None for main.
        token: None for the one that the client is signed in with, if any.

    Raises:
        HubError: (a ValueError) what keeps the pull from succeeding, and what to do.
    """
    refuse_unwritable(folder)
    folder = Path(folder).resolve()
    refuse_to_lose(folder)
    api = connect(repo_id, token, anonymous=True)
    partial = staging_place(folder, "pull")
    doing = f"pulling '{repo_id}'"
    pulled = persist(lambda: fetch(api, repo_id, revision, partial), doing, api)
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    move_into_place(partial, folder, replace=True)
    shutil.rmtree(partial, ignore_errors=True)
    return pulled


def refuse_to_lose(folder: Path) -> None:
    """Refuse a target that is not what a pull or a stage made."""
    if not folder.exists() or is_empty(folder):
        return
    try:
        check_manifest(folder)
    except (FileNotFoundError, ValueError) as error:
        raise HubError(
            f"'{folder}' would be replaced, but it is not as it was pulled or staged ({error}): give another folder"
        ) from error


def fetch(api: HfApi, repo_id: str, revision: str | None, partial: Path) -> Pulled:
    """Fetch what is not there yet, and check all of it."""
    commit = api.model_info(repo_id, revision=revision).sha
    if commit is None:
        raise HubError(f"'{repo_id}' has no commits: nothing was pushed there")
    tree = tree_of(api, repo_id, commit)
    if MANIFEST_NAME not in tree:
        raise HubError(
            f"'{repo_id}' has no {MANIFEST_NAME} to check it against: fetch it with `hf download {repo_id}`"
        )
    files = fetch_manifest(api, repo_id, commit, tree, partial)
    missing = sorted(files.keys() - tree.keys())
    if missing:
        raise HubError(f"'{repo_id}' lacks files that its {MANIFEST_NAME} names ({listed(missing)}): push it again")
    # Whatever an attempt at another commit left.
    for name, path in files_of(partial).items():
        if name not in files:
            path.unlink()
    api.snapshot_download(
        repo_id, revision=commit, local_dir=partial, allow_patterns=[glob.escape(name) for name in files]
    )
    damaged = sorted(name for name in files if not is_whole(tree[name], partial / name))
    for name in damaged:
        (partial / name).unlink(missing_ok=True)
    if damaged:
        raise PassingError(f"of '{repo_id}' arrived damaged: {listed(damaged)}")
    changed = sorted(name for name, entry in files.items() if not is_same(partial / name, entry))
    if changed:
        raise HubError(
            f"'{repo_id}' is not what its {MANIFEST_NAME} says: {listed(changed)} changed on the Hub after the push. "
            f"Push it again, pull a --revision before, or fetch it as it is with `hf download {repo_id}`"
        )
    return Pulled(commit, files)
