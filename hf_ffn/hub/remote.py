"""What the Hub holds, compared with what a manifest says."""

import hashlib
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, RepoFile
from huggingface_hub.utils.sha import git_hash

from .client import HubError, PassingError
from .manifest import MANIFEST_NAME, Files, read_manifest, sha256_of

# What the Hub holds at one commit, by path.
Tree = dict[str, RepoFile]


def tree_of(api: HfApi, repo_id: str, commit: str) -> Tree:
    """The files of a commit."""
    listed = api.list_repo_tree(repo_id, recursive=True, revision=commit)
    return {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}


def with_manifest(folder: Path, files: Files) -> Files:
    """What a manifest says, and the manifest itself."""
    path = folder / MANIFEST_NAME
    return {**files, MANIFEST_NAME: {"size": path.stat().st_size, "sha256": sha256_of(path)}}


def differences(folder: Path, files: Files, tree: Tree) -> list[str]:
    """The files that the Hub does not hold as the manifest says."""
    return [name for name, entry in files.items() if not holds(tree.get(name), folder / name, entry)]


def holds(remote: RepoFile | None, path: Path, entry: dict[str, Any]) -> bool:
    """Whether the Hub's file is the one of the manifest.

    Raises:
        HubError: the local file is no longer what the manifest says.
    """
    if remote is None or remote.size != entry["size"]:
        return False
    if remote.lfs is not None:
        return remote.lfs.sha256 == entry["sha256"]
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise HubError(f"'{path}' changed while it was compared with the Hub: stage the folder again")
    return remote.blob_id == git_hash(content)


def is_whole(remote: RepoFile, path: Path) -> bool:
    """Whether a file that was fetched is what the Hub holds."""
    if not path.is_file() or path.stat().st_size != remote.size:
        return False
    if remote.lfs is not None:
        return remote.lfs.sha256 == sha256_of(path)
    return remote.blob_id == git_hash(path.read_bytes())


def fetch_manifest(api: HfApi, repo_id: str, commit: str, tree: Tree, folder: Path) -> Files:
    """Fetch a commit's manifest into a folder, and read it.

    Raises:
        PassingError: it arrived damaged.
        ValueError: it is none, see `read_manifest`.
    """
    path = folder / MANIFEST_NAME
    api.hf_hub_download(repo_id, MANIFEST_NAME, revision=commit, local_dir=folder)
    if not is_whole(tree[MANIFEST_NAME], path):
        path.unlink()
        raise PassingError(f"{MANIFEST_NAME} of '{repo_id}' arrived damaged")
    return read_manifest(folder)
