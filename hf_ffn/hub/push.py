"""A folder with a manifest goes to the Hub: checked, only what differs, as one commit, and compared afterwards."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo
from huggingface_hub.errors import RepositoryNotFoundError

from .client import HubError, connect, full_name, persist
from .manifest import MANIFEST_NAME, Files, check_manifest, listed
from .remote import Tree, differences, fetch_manifest, tree_of, with_manifest

# In place of the repository's .gitignore, which would keep files out of the commit without a word.
NOTHING_IGNORED = "# nothing: the manifest says what is pushed\n"

# Files up to this size (bytes) are read once, and sent as they were when they were checked. The Hub takes larger ones
# by their hash only.
IN_MEMORY = 10 * 2**20


@dataclass
class PushReport:
    """What a push did, or would do.

    Attributes:
        repo_id: the repository, as user/name.
        url: where to look at it.
        commit: the hash of the commit that holds the folder; None where a dry run would make one.
        sent: the files that the Hub did not hold. deleted: those of the push before that are no longer there.
        size: of the files sent, in bytes.
        dry_run: whether nothing was done.
    """

    repo_id: str
    url: str
    commit: str | None
    sent: list[str]
    deleted: list[str]
    size: int
    dry_run: bool = False

    def __str__(self) -> str:
        if not self.sent and not self.deleted:
            return f"nothing to do: {self.url} holds this already (commit {self.commit})"
        done = "would send" if self.dry_run else "sent"
        lines = [f"{done} {len(self.sent)} file(s) of {self.size:,} bytes in all: {listed(self.sent, 20)}"]
        if self.deleted:
            lines.append(f"{'would delete' if self.dry_run else 'deleted'}: {listed(self.deleted, 20)}")
        lines.append(self.url if self.dry_run else f"{self.url} (commit {self.commit})")
        return "\n".join(lines)


def push(
    folder: str | os.PathLike,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    dry_run: bool = False,
    commit_message: str | None = None,
    token: str | None = None,
) -> PushReport:
    """Push a folder with a manifest as one commit, of only what the Hub does not hold.

    Nothing leaves the machine if the folder differs from its manifest. What can pass is tried again, and a push that
    broke off goes on where it stopped when it is run again: readers see all of the commit or nothing. Files of the
    push before that the manifest no longer names are deleted; what others added stays. Afterwards the Hub's files are
    compared with the manifest.

    Args:
        folder: with a `manifest.json`, as `hf-ffn stage` writes it.
        repo_id: user/name, or a name for one of your own; made where it is missing.
        private: make it private. Refused where it exists and is public.
        revision: a branch, made where it is missing; None for main.
        create_pr: open a pull request to main instead. The repository must exist.
        dry_run: look, and change nothing.
        commit_message: None for a plain one.
        token: None for the one that the client is signed in with.

    Raises:
        ValueError: the folder differs from its manifest.
        HubError: (a ValueError) what keeps the push from succeeding, and what to do.
    """
    folder = Path(folder)
    files = with_manifest(folder, check_manifest(folder))
    if create_pr and revision not in (None, "main"):
        raise HubError(f"a pull request goes to main: leave out the revision '{revision}', or push to it without one")
    api = connect(repo_id, token, anonymous=dry_run)
    job = Job(api, folder, files, repo_id, private, revision or "main", create_pr, dry_run, set(), set())
    message = commit_message or "Upload with hf_ffn"
    return persist(lambda: job.attempt(message), f"pushing to '{repo_id}'", api)


@dataclass
class Job:
    """A push over all its attempts. `sent` and `deleted` gather what they changed."""

    api: HfApi
    folder: Path
    files: Files
    repo_id: str
    private: bool
    revision: str
    create_pr: bool
    dry_run: bool
    sent: set[str]
    deleted: set[str]

    def attempt(self, message: str) -> PushReport:
        """Look at what the Hub holds, and commit what differs.

        Each attempt looks anew: after a broken connection only the Hub knows whether the last one succeeded.
        """
        self.repo_id = full_name(self.api, self.repo_id)
        head = self.head()
        tree = tree_of(self.api, self.repo_id, head) if head else {}
        new = differences(self.folder, self.files, tree)
        gone = self.gone(head, tree) if head and MANIFEST_NAME in new else []
        if self.dry_run:
            self.sent, self.deleted = set(new), set(gone)
            return self.report(None if new else head)
        if not new:
            return self.report(head)
        if self.create_pr and (pull_request := self.open_pull_request(message)):
            return pull_request
        self.sent.update(new)
        self.deleted.update(gone)
        commit = self.api.create_commit(
            self.repo_id,
            [*self.additions(new), *map(CommitOperationDelete, gone)],
            commit_message=message,
            revision=self.revision,
            create_pr=self.create_pr,
            parent_commit=head,
        )
        left = differences(self.folder, self.files, tree_of(self.api, self.repo_id, commit.oid))
        if left:
            raise HubError(
                f"{commit.commit_url} was made, but is not what was sent: {listed(left)} differ. Push again"
            )
        return self.report(commit.oid, commit.pr_url)

    def additions(self, names: list[str]) -> list[CommitOperationAdd]:
        """The files to send; the large ones are sent by now, where no reader sees them."""
        first: dict[str, CommitOperationAdd] = {}
        copies = []
        for name in names:
            path, digest = self.folder / name, self.files[name]["sha256"]
            if self.files[name]["size"] > IN_MEMORY:
                addition = CommitOperationAdd(name, path)
                # The manifest's, and not the file's of now: the Hub refuses a file that changed since.
                addition.upload_info.sha256 = bytes.fromhex(digest)
            else:
                addition = CommitOperationAdd(name, path.read_bytes())
                if addition.upload_info.sha256.hex() != digest:
                    raise HubError(f"'{path}' changed since it was compared with the manifest: stage the folder again")
            if first.setdefault(digest, addition) is not addition:
                copies.append(addition)
        # Together, the client would send the same content once for each of its names.
        for additions in (list(first.values()), copies):
            if additions:
                self.api.preupload_lfs_files(
                    self.repo_id,
                    additions,
                    revision=self.revision,
                    create_pr=self.create_pr,
                    free_memory=False,
                    gitignore_content=NOTHING_IGNORED,
                )
        return [*first.values(), *copies]

    def head(self) -> str | None:
        """The commit to build on; the repository and the branch are made where they are missing.

        Returns:
            Its hash; None for a dry run on a repository that does not exist.
        """
        found = self.repo_info()
        if found is None:
            if self.create_pr:
                raise HubError(f"there is no '{self.repo_id}' to ask for changes of: push without --create-pr")
            if self.dry_run:
                return None
            # Not private: whatever is the namespace's default.
            self.api.create_repo(self.repo_id, private=self.private or None, exist_ok=True)
            found = self.api.model_info(self.repo_id)
        if self.private and not found.private:
            raise HubError(
                f"'{self.repo_id}' exists and is public, so --private cannot hold: make it private in its settings, "
                f"push to another, or leave out --private"
            )
        if self.revision == "main":
            return found.sha
        refs = self.api.list_repo_refs(self.repo_id, include_pull_requests=True)
        heads = {branch.name: branch.target_commit for branch in refs.branches}
        heads |= {asked.ref: asked.target_commit for asked in refs.pull_requests or []}
        if self.revision in {tag.name for tag in refs.tags}:
            raise HubError(f"'{self.revision}' is a tag of '{self.repo_id}', and tags stay: give a branch")
        if self.revision not in heads and not self.dry_run:
            self.api.create_branch(self.repo_id, branch=self.revision, exist_ok=True)
        return heads.get(self.revision, found.sha)

    def repo_info(self) -> ModelInfo | None:
        """What the Hub says of the repository; None where there is none."""
        try:
            return self.api.model_info(self.repo_id)
        except RepositoryNotFoundError as error:
            # The Hub says 401 of what an unknown caller may not know of.
            if error.response.status_code != 404:
                raise
            return None

    def gone(self, head: str, tree: Tree) -> list[str]:
        """Files that the push before brought, by its manifest, and that this one does not."""
        if MANIFEST_NAME not in tree:
            return []
        with tempfile.TemporaryDirectory() as folder:
            try:
                before = fetch_manifest(self.api, self.repo_id, head, tree, Path(folder))
            except HubError:
                raise
            except ValueError:
                # A manifest.json of somebody else's, or edited: nothing says what is ours to delete.
                return []
        return sorted((before.keys() & tree.keys()) - self.files.keys())

    def open_pull_request(self, title: str) -> PushReport | None:
        """An open pull request that holds this folder: an answer may have been lost, or it is asked for twice."""
        for asked in self.api.get_repo_discussions(
            self.repo_id, discussion_type="pull_request", discussion_status="open"
        ):
            if asked.title != title or asked.git_reference is None:
                continue
            commit = self.api.model_info(self.repo_id, revision=asked.git_reference).sha
            if commit and not differences(self.folder, self.files, tree_of(self.api, self.repo_id, commit)):
                return self.report(commit, asked.url)
        return None

    def report(self, commit: str | None, url: str | None = None) -> PushReport:
        """What was done so far."""
        branch = "" if self.revision == "main" else f"/tree/{quote(self.revision, safe='')}"
        size = sum(self.files[name]["size"] for name in self.sent)
        url = url or f"{self.api.endpoint}/{self.repo_id}{branch}"
        return PushReport(self.repo_id, url, commit, sorted(self.sent), sorted(self.deleted), size, self.dry_run)
