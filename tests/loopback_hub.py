"""A Hub on this machine that the real huggingface_hub client talks to, and that fails on demand.

In a test `with serve() as hub:`; by hand `python tests/loopback_hub.py --port 8000`, and then in another shell
`HF_ENDPOINT=http://127.0.0.1:8000 HF_TOKEN=hf_loopback HF_HUB_DISABLE_XET=1 python …`. What it knows is in
`loopback_store.py`; here is what it answers over HTTP.
"""

import argparse
import base64
import contextlib
import fnmatch
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from loopback_store import READ_TOKEN, STRANGERS_TOKEN, TOKEN, Account, Fault, File, Hub, RefusedError, Repo

__all__ = ["READ_TOKEN", "STRANGERS_TOKEN", "TOKEN", "Fault", "Hub", "serve"]


class Answer(NamedTuple):
    """An answer that is no error: JSON unless `body` is bytes."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = {}


ROUTES: list[tuple[str, str, Callable[..., Answer]]] = []


def route(method: str, pattern: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Answer requests of this method whose path is this pattern; {repo} stands for kind and name, {} for a part."""
    repo = r"(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"
    expression = pattern.replace("{repo}", repo).replace("{…}", "(.+)").replace("{}", "([^/]+)")

    def register(answer: Callable[..., Answer]) -> Callable[..., Answer]:
        ROUTES.append((method, expression, answer))
        return answer

    return register


class Handler(BaseHTTPRequestHandler):
    """One connection. A route gets the handler, the repository where the path has one, and the path's other parts."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: two would wait for each other
    hub: Hub
    body: bytes

    def do_GET(self) -> None:
        request = f"{self.command} {unquote(self.path)}"
        fault = self.hub.strike(request)
        kind = fault.kind if fault else ""
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length // 2 if kind == "reset" else length)
        if fault is not None and kind == "slow":
            time.sleep(fault.seconds)
        if kind == "reset":
            self.hub.log.append(f"{request} -> reset")
            self.reset()
            return
        try:
            if fault is not None and kind == "status":
                # A careless server that repeats what it was told: no token may get from here to where people look.
                raise RefusedError(fault.status, f"refused {self.headers.get('Authorization')}", None, fault.headers)
            if fault is not None and kind == "page":
                answer = Answer(b"<html>Bad gateway</html>", fault.status, {"Content-Type": "text/html"})
            else:
                with self.hub.lock:
                    answer = self.dispatch()
        except RefusedError as refusal:
            answer = Answer({"error": str(refusal)}, refusal.status, refusal.headers)
        self.hub.log.append(f"{request} -> {answer.status}{' ' + kind if kind else ''}")
        if kind in ("lost", "truncate") and self.command == "PUT":
            self.hub.unheard.add(self.path.rpartition("/")[2])
        if kind == "lost":
            self.reset()
            return
        with contextlib.suppress(ConnectionError):
            self.respond(answer, kind)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def dispatch(self) -> Answer:
        """Find the route, and the repository that it is about."""
        account = self.hub.account(self.headers.get("Authorization"))
        for method, pattern, answer in ROUTES:
            match = re.fullmatch(pattern, urlsplit(self.path).path)
            if match is None or self.command not in method.split("|"):
                continue
            named = match.groupdict()
            rest = [unquote(part) for part in match.groups() if part not in named.values()]
            if "name" in named:
                write = answer.__name__ in ("branch", "tag", "commit", "lfs_batch") and not self.query("create_pr")
                return answer(self, self.hub.find(named["kind"] or "models", named["name"], account, write), *rest)
            return answer(self, account, *rest)
        raise RefusedError(404, f"the loopback Hub has no {self.command} {self.path}")

    def query(self, name: str) -> str | None:
        return parse_qs(urlsplit(self.path).query).get(name, [None])[0]

    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def respond(self, answer: Answer, kind: str) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        headers = {"Content-Length": str(len(body)), **answer.headers}
        if kind == "corrupt" and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if kind == "truncate" else body)
        self.close_connection |= kind == "truncate"

    def reset(self) -> None:
        """Break the connection as a dying machine does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the hub has a log of its own."""


class Server(ThreadingHTTPServer):
    """Closes connections without the farewell that would keep a reset from being one."""

    daemon_threads = True

    def shutdown_request(self, request: Any) -> None:
        self.close_request(request)


@route("GET", "/api/whoami-v2")
def whoami(request: Handler, account: Account | None) -> Answer:
    if account is None:
        raise RefusedError(401, "Invalid username or password.")
    role = "write" if account.writes else "read"
    return Answer({"type": "user", "name": account.name, "orgs": [], "auth": {"accessToken": {"role": role}}})


@route("POST", "/api/repos/create")
def create(request: Handler, account: Account | None) -> Answer:
    asked = request.json()
    private = asked.get("private", False) or asked.get("visibility") == "private"
    kind, repo_id = asked_repo(request, account)
    created = request.hub.create(account, kind, *repo_id.split("/"), private)
    url = f"{request.hub.url}/{'' if kind == 'models' else kind + '/'}{repo_id}"
    return Answer({"url": url}) if created else Answer({"url": url, "error": "You already created this repo"}, 409)


@route("DELETE", "/api/repos/delete")
def delete(request: Handler, account: Account | None) -> Answer:
    key = asked_repo(request, account)
    request.hub.find(*key, account, write=True)
    del request.hub.repos[key]
    return Answer({})


def asked_repo(request: Handler, account: Account | None) -> tuple[str, str]:
    """The kind and the name of the repository that a request's body is about."""
    asked = request.json()
    namespace = asked.get("organization") or (account.name if account else "nobody")
    return (asked.get("type") or "model") + "s", f"{namespace}/{asked['name']}"


@route("POST", "/api/validate-yaml")
def validate_yaml(request: Handler, account: Account | None) -> Answer:
    return Answer({"errors": [], "warnings": []})


@route("GET", "/api/{repo}")
def info(request: Handler, repo: Repo, revision: str = "main") -> Answer:
    commit = repo.at(revision)
    siblings = [{"rfilename": path} for path in commit.files]
    return Answer({"id": repo.id, "sha": commit.sha, "private": repo.private, "siblings": siblings, "tags": []})


@route("GET", "/api/{repo}/revision/{}")
def info_at(request: Handler, repo: Repo, revision: str) -> Answer:
    return info(request, repo, revision)


@route("GET", "/api/{repo}/tree/{}")
def tree(request: Handler, repo: Repo, revision: str) -> Answer:
    entries = [entry(path, file) for path, file in sorted(repo.at(revision).files.items())]
    page, size = int(request.query("cursor") or 0), 4
    more = f'<{request.hub.url}{urlsplit(request.path).path}?recursive=true&cursor={page + 1}>; rel="next"'
    headers = {"Link": more} if len(entries) > (page + 1) * size else {}
    return Answer(entries[page * size : (page + 1) * size], headers=headers)


@route("POST", "/api/{repo}/paths-info/{}")
def paths_info(request: Handler, repo: Repo, revision: str) -> Answer:
    paths = parse_qs(request.body.decode()).get("paths", [])
    return Answer([entry(path, file) for path, file in repo.at(revision).files.items() if path in paths])


def entry(path: str, file: File) -> dict[str, Any]:
    """A file as the tree lists it."""
    listed = {"type": "file", "path": path, "size": len(file.content), "oid": file.oid}
    lfs = {"oid": file.sha256, "size": len(file.content), "pointerSize": len(file.pointer)}
    return {**listed, "lfs": lfs} if file.lfs else listed


@route("POST", "/api/{repo}/preupload/{}")
def preupload(request: Handler, repo: Repo, revision: str) -> Answer:
    held = repo.at(revision).files
    files, sent = [], request.json()
    ignored = sent.get("gitIgnore") or (held[".gitignore"].content.decode() if ".gitignore" in held else "")
    for asked in sent["files"]:
        binary = asked["path"].endswith((".safetensors", ".bin")) or b"\0" in base64.b64decode(asked["sample"])
        oid = held[asked["path"]].etag if asked["path"] in held else None
        mode = "lfs" if binary else "regular"
        ignore = any(fnmatch.fnmatch(asked["path"], pattern) for pattern in ignored.splitlines())
        files.append({"path": asked["path"], "uploadMode": mode, "shouldIgnore": ignore, "oid": oid})
    return Answer({"files": files})


@route("POST", r"/(?:(?P<kind>datasets)/)?(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch")
def lfs_batch(request: Handler, repo: Repo) -> Answer:
    kind = "datasets" if urlsplit(request.path).path.startswith("/datasets/") else "models"
    objects = []
    for asked in request.json()["objects"]:
        upload = {"href": f"{request.hub.url}/lfs/{kind}/{repo.id}/{asked['oid']}"}
        request.hub.unheard.discard(asked["oid"])
        objects.append({**asked, **({} if asked["oid"] in repo.lfs else {"actions": {"upload": upload}})})
    return Answer({"transfer": "basic", "objects": objects})


@route("PUT", "/lfs/{}/([^/]+/[^/]+)/{}")
def lfs_put(request: Handler, account: Account | None, kind: str, repo_id: str, oid: str) -> Answer:
    hub, repo = request.hub, request.hub.repos[kind, repo_id]
    hub.received[oid] += len(request.body)
    if oid in repo.lfs and oid not in hub.unheard:
        hub.resent.append(oid)
    if hashlib.sha256(request.body).hexdigest() != oid:
        raise RefusedError(400, "The object does not match its hash")
    repo.lfs[oid] = request.body
    return Answer({})


@route("POST", "/api/{repo}/commit/{}")
def commit(request: Handler, repo: Repo, revision: str) -> Answer:
    lines = [json.loads(line) for line in request.body.splitlines()]
    by = request.hub.account(request.headers.get("Authorization")) if request.query("create_pr") else None
    if request.query("create_pr") and (by is None or not by.writes):
        raise RefusedError(403, "This token cannot open pull requests")
    return Answer(request.hub.commit(repo, revision, lines, by))


@route("POST", "/api/{repo}/branch/{}")
def branch(request: Handler, repo: Repo, name: str) -> Answer:
    if name in repo.branches:
        raise RefusedError(409, f"Reference already exists: {name}")
    repo.branches[name] = repo.at(request.json().get("startingPoint") or "main").sha
    return Answer({})


@route("POST", "/api/{repo}/tag/{}")
def tag(request: Handler, repo: Repo, revision: str) -> Answer:
    name = request.json()["tag"]
    if name in repo.tags:
        raise RefusedError(409, f"Tag already exists: {name}")
    repo.tags[name] = repo.at(revision).sha
    return Answer({})


@route("GET", "/api/{repo}/refs")
def refs(request: Handler, repo: Repo) -> Answer:
    def listed(kind: str, found: dict[str, str]) -> list[dict[str, str]]:
        return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": sha} for name, sha in found.items()]

    branches = {name: sha for name, sha in repo.branches.items() if name not in repo.pulls}
    answer = {"branches": listed("heads", branches), "tags": listed("tags", repo.tags), "converts": []}
    pulls = [{"name": ref, "ref": ref, "targetCommit": repo.branches[ref]} for ref in repo.pulls]
    return Answer({**answer, "pullRequests": pulls} if request.query("include_prs") else answer)


@route("GET", "/api/{repo}/discussions")
def discussions(request: Handler, repo: Repo) -> Answer:
    common = {"status": "open", "isPullRequest": True, "createdAt": "2024-01-01T00:00:00.000Z"}
    listed = [{**common, **pull, "repo": {"name": repo.id, "type": "model"}} for pull in repo.pulls.values()]
    return Answer({"discussions": listed, "count": len(listed), "start": 0})


# Repositories of the Hub's first years have no owner in their names.
@route("GET|HEAD", "/(?:(?P<kind>datasets)/)?(?P<name>[^/]+(?:/[^/]+)?)/resolve/{}/{…}")
def resolve(request: Handler, repo: Repo, revision: str, path: str) -> Answer:
    commit = repo.at(revision)
    if path not in commit.files:
        raise RefusedError(404, f"Entry not found: {path}", "EntryNotFound", {"X-Repo-Commit": commit.sha})
    file = commit.files[path]
    headers = {"X-Repo-Commit": commit.sha, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
    wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or "")
    if wanted is None:
        return Answer(file.content, headers=headers)
    start, size = int(wanted[1]), len(file.content)
    return Answer(file.content[start:], 206, {**headers, "Content-Range": f"bytes {start}-{size - 1}/{size}"})


@contextlib.contextmanager
def serve(port: int = 0) -> Iterator[Hub]:
    """A Hub that listens on this machine, for as long as the context lasts."""
    hub = Hub()
    server = Server(("127.0.0.1", port), type("BoundHandler", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    """Serve until interrupted; print where, and the token that may write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    with serve(parser.parse_args().port) as hub, contextlib.suppress(KeyboardInterrupt):
        print(f"{hub.url} (HF_TOKEN={TOKEN})", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
