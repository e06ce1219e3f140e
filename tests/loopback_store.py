"""What the loopback Hub knows: repositories, commits, accounts, and what is to go wrong.

Everything is in memory. Commits are all or nothing, and the client is never trusted: an object must match its hash, a
commit its parent and the objects that it names.
"""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TOKEN, READ_TOKEN, STRANGERS_TOKEN = "hf_loopback", "hf_loopbackreadonly", "hf_loopbackstranger"
GITATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


class Account(NamedTuple):
    """Who a token belongs to, and whether it may write."""

    name: str
    writes: bool = True


@dataclass
class Fault:
    """What goes wrong with one or more requests.

    kind: "status" (refused with that status, nothing done), "reset" (the connection breaks in the middle of the
        request's body, nothing done), "lost" (done, but the connection breaks instead of an answer), "slow" (done
        after `seconds`), "corrupt" (a byte of the answer is another), "truncate" (the answer stops half way) or
        "page" (a gateway's page of that status instead of an answer, nothing done).
    at: the how-manieth of the requests whose "METHOD path" has `where` (a regular expression) in it; from 1.
    times: how many requests from there on.
    """

    kind: str
    at: int = 1
    where: str = ""
    times: int = 1
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.2
    seen: int = 0

    def strikes(self, request: str) -> bool:
        """Whether this request is struck; counts it."""
        if re.search(self.where, request) is None:
            return False
        self.seen += 1
        return self.at <= self.seen < self.at + self.times


class File(NamedTuple):
    """A file of a commit."""

    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        """What git itself stores of an LFS file."""
        lines = (
            "version https://git-lfs.github.com/spec/v1",
            f"oid sha256:{self.sha256}",
            f"size {len(self.content)}",
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @property
    def oid(self) -> str:
        stored = self.pointer if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


class Commit(NamedTuple):
    """The whole tree at one moment."""

    sha: str
    parent: str | None
    files: dict[str, File]
    message: str


@dataclass
class Repo:
    """A repository: commits by hash, references by name, LFS objects by hash."""

    id: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: dict[str, dict[str, Any]] = field(default_factory=dict)
    lfs: dict[str, bytes] = field(default_factory=dict)

    def add(self, parent: str | None, files: dict[str, File], message: str) -> str:
        """Store a commit; returns its hash."""
        tree = {path: file.oid for path, file in sorted(files.items())}
        sha = hashlib.sha1(json.dumps([len(self.commits), parent, tree, message]).encode()).hexdigest()
        self.commits[sha] = Commit(sha, parent, files, message)
        return sha

    def at(self, revision: str) -> Commit:
        """The commit that a branch, a tag, a pull request or a hash names."""
        sha = self.branches.get(revision) or self.tags.get(revision) or revision
        if sha not in self.commits:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[sha]

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """What a reader sees."""
        return {path: file.content for path, file in self.at(revision).files.items()}


class RefusedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(headers or {})}


class Hub:
    """Everything that the Hub knows, what it was asked (`log`), and what is to go wrong (`faults`)."""

    def __init__(self) -> None:
        self.url = ""
        self.repos: dict[tuple[str, str], Repo] = {}
        self.accounts = {
            TOKEN: Account("me"),
            READ_TOKEN: Account("me", writes=False),
            STRANGERS_TOKEN: Account("stranger"),
        }
        self.faults: list[Fault] = []
        self.log: list[str] = []
        # Bytes by path or LFS hash that arrived; what arrived though it was here and the client could know it.
        self.received: Counter[str] = Counter()
        self.resent: list[str] = []
        self.unheard: set[str] = set()
        self.lock = threading.RLock()

    def repo(self, repo_id: str, kind: str = "models") -> Repo:
        """A repository by its name."""
        return self.repos[kind, repo_id]

    def strike(self, request: str) -> Fault | None:
        """The fault that befalls this request."""
        with self.lock:
            return next((fault for fault in [f for f in self.faults if f.strikes(request)]), None)

    def account(self, authorization: str | None) -> Account | None:
        """Who asks; None for anyone."""
        token = (authorization or "").removeprefix("Bearer ")
        if token and token not in self.accounts:
            raise RefusedError(401, "Invalid credentials in Authorization header")
        return self.accounts.get(token)

    def find(self, kind: str, repo_id: str, account: Account | None, write: bool = False) -> Repo:
        """A repository, if this account may read or write it."""
        repo = self.repos.get((kind, repo_id))
        mine = account is not None and account.name == repo_id.split("/")[0]
        if repo is None or (repo.private and not mine):
            raise RefusedError(404 if account else 401, "Repository not found", "RepoNotFound")
        if write and account is None:
            raise RefusedError(401, "Invalid username or password.")
        if write and not (mine and account is not None and account.writes):
            raise RefusedError(403, f"You don't have the rights to write to {repo_id}")
        return repo

    def create(self, account: Account | None, kind: str, namespace: str, name: str, private: bool) -> bool:
        """Make a repository with the first commit that the Hub makes; False if it was there."""
        if account is None:
            raise RefusedError(401, "Invalid username or password.")
        if not account.writes or namespace != account.name:
            raise RefusedError(403, f"You don't have the rights to create a model under the namespace {namespace}")
        key = (kind, f"{namespace}/{name}")
        if key in self.repos:
            return False
        repo = self.repos[key] = Repo(key[1], private)
        repo.branches["main"] = repo.add(None, {".gitattributes": File(GITATTRIBUTES, False)}, "initial commit")
        return True

    def commit(self, repo: Repo, revision: str, lines: list[dict], pull_request_by: Account | None) -> dict[str, Any]:
        """Apply a commit's lines, all or nothing."""
        if revision not in repo.branches:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        head = repo.at(revision)
        header = lines[0]["value"]
        files = dict(head.files)
        for line in lines[1:]:
            value = line["value"]
            path = value["path"]
            if line["key"] == "file":
                files[path] = File(base64.b64decode(value["content"]), False)
                self.received[path] += len(files[path].content)
                if head.files.get(path) == files[path]:
                    self.resent.append(path)
            elif line["key"] == "lfsFile":
                if value["oid"] not in repo.lfs:
                    raise RefusedError(400, f"LFS object {value['oid']} of {path} does not exist")
                files[path] = File(repo.lfs[value["oid"]], True)
            elif line["key"] == "deletedFile":
                if files.pop(path, None) is None:
                    raise RefusedError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            elif line["key"] == "deletedFolder":
                files = {name: file for name, file in files.items() if not name.startswith(path)}
        if header.get("parentCommit") not in (None, head.sha):
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        sha = repo.add(head.sha, files, header["summary"])
        answer = {"success": True, "commitOid": sha, "commitUrl": f"{self.url}/{repo.id}/commit/{sha}"}
        if pull_request_by is None:
            repo.branches[revision] = sha
            return answer
        number = len(repo.pulls) + 1
        ref = f"refs/pr/{number}"
        repo.branches[ref] = sha
        repo.pulls[ref] = {"num": number, "title": header["summary"], "author": {"name": pull_request_by.name}}
        return {**answer, "pullRequestUrl": f"{self.url}/{repo.id}/discussions/{number}"}
