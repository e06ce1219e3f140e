"""Talking to the Hub through its own client: what can pass is tried again, what cannot is told in one clear error."""

import contextlib
import errno
import importlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from huggingface_hub import HfApi, get_session, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RevisionNotFoundError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import logging

logger = logging.get_logger(__name__)
Result = TypeVar("Result")

# Attempts in all. The client makes up to six of its own of some requests within each.
ATTEMPTS = 6
# Seconds: the first wait, which doubles, and the longest one. The Hub counts requests in windows of 300.
FIRST_WAIT, LONGEST_WAIT = 1.0, 360.0
# Seconds without a byte after which a connection counts as dead. The client itself would wait for ever.
TIMEOUT = 120.0

# The client is built on httpx or on its successor, by version; both name their errors alike.
httpx: Any = importlib.import_module(HfHubHTTPError.__bases__[0].__module__)
NETWORK_ERRORS = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)
PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524}
# The branch moved between reading and committing: read again.
CONFLICT_STATUS = {409, 412}


class HubError(ValueError):
    """What keeps a push or a pull from succeeding, and what to do about it."""


class PassingError(HubError):
    """What may be gone at the next attempt."""


def connect(repo_id: str, token: str | None, *, anonymous: bool) -> HfApi:
    """The client for a repository, after what can be checked without it.

    Args:
        anonymous: nothing is written, so that it goes without a token.

    Raises:
        HubError: no repository can have this name, or the token is missing or none.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise HubError(f"'{repo_id}' cannot be a repository's name ({error}): give it as user/name") from error
    token = (token or get_token() or "").strip()
    if not token and not anonymous:
        raise HubError("not signed in to the Hub: run `hf auth login`, or set HF_TOKEN to a token that may write")
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise HubError("the token has characters that no token has: copy it again from the Hub's settings")
    return HfApi(token=token or None)


def full_name(api: HfApi, repo_id: str) -> str:
    """A repository's name with its owner: whoever is signed in, where only the name was given."""
    return repo_id if "/" in repo_id else f"{api.whoami()['name']}/{repo_id}"


def persist(attempt: Callable[[], Result], doing: str, api: HfApi) -> Result:
    """Attempt something until it succeeds, as long as what goes wrong can pass.

    Waits twice as long after each failure, or as long as the Hub asks for.

    Args:
        doing: what it is, for messages, as in "pushing to 'me/x'".
        api: whose token is kept out of all messages, those of the client's own errors included.

    Raises:
        HubError: what cannot pass, or has not.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            with bounded_waits():
                return attempt()
        except Exception as error:
            redact(error, api.token)
            asked = asked_wait(error)
            if not can_pass(error):
                clear = explained(error, doing)
                if clear is None:
                    raise
                raise clear from error
            if number == ATTEMPTS or (asked or 0) > LONGEST_WAIT:
                later = f"in {asked:.0f} s" if asked else "later"
                raise HubError(
                    f"{doing} failed {number} times, last for: {reason_of(error)}. What has arrived is kept: run the "
                    f"same again {later}, and it goes on"
                ) from error
            wait = asked or FIRST_WAIT * 2 ** (number - 1) * random.uniform(0.75, 1.25)
            logger.warning(f"{doing}: {reason_of(error)}; attempt {number + 1} of {ATTEMPTS} in {wait:.0f} s")
            time.sleep(wait)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def bounded_waits() -> Iterator[None]:
    """Within this context the client waits at most `TIMEOUT` for a byte, unless its user set another limit."""
    session = get_session()
    before = session.timeout
    if before.read is None:
        session.timeout = TIMEOUT
    try:
        yield
    finally:
        session.timeout = before


def chain_of(error: BaseException) -> list[BaseException]:
    """An error, and those that it came from, nearest first."""
    chain: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop(0)
        if current is not None and current not in chain:
            chain.append(current)
            pending += [current.__cause__, None if current.__suppress_context__ else current.__context__]
    return chain


def response_of(error: BaseException) -> Any | None:
    """The Hub's answer that an error is about; the client wraps some errors in others."""
    return next((link.response for link in chain_of(error) if isinstance(link, HfHubHTTPError)), None)


def can_pass(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, HubError):
        return isinstance(error, PassingError)
    response = response_of(error)
    if response is not None:
        return response.status_code in PASSING_STATUS | CONFLICT_STATUS
    # No JSON: a gateway's page in place of the Hub's answer. An OSError without a number: a file came too short.
    return any(
        isinstance(link, (*NETWORK_ERRORS, json.JSONDecodeError)) or (type(link) is OSError and link.errno is None)
        for link in chain_of(error)
    )


def asked_wait(error: BaseException) -> float | None:
    """How many seconds the Hub asks to wait: `Retry-After`, a number or a date."""
    response = response_of(error)
    value = "" if response is None else response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return None


def reason_of(error: BaseException) -> str:
    """What went wrong, on one line."""
    response = response_of(error)
    if response is not None:
        told = next(link.server_message for link in chain_of(error) if isinstance(link, HfHubHTTPError))
        return f"the Hub answers {response.status_code}" + (f" ({' '.join(told.split())})" if told else "")
    link = next((link for link in chain_of(error) if isinstance(link, NETWORK_ERRORS)), error)
    said = " ".join(str(link).split())
    return said if isinstance(link, HubError) else f"{type(link).__name__}{': ' + said if said else ''}"


def explained(error: Exception, doing: str) -> HubError | None:
    """The error for people: what to do about what cannot pass. None where the error is clear as it is."""
    if isinstance(error, HubError):
        return None
    if any(isinstance(link, OfflineModeIsEnabled) for link in chain_of(error)):
        return HubError(f"{doing} needs the network, but HF_HUB_OFFLINE is set: unset it")
    if any(isinstance(link, OSError) and link.errno == errno.ENOSPC for link in chain_of(error)):
        return HubError(f"{doing}: no space is left on this disk: free some, and run the same again to go on")
    response = response_of(error)
    if response is None:
        return None
    advice = {
        400: "what it says is wrong must be changed",
        401: "it does not know this token: run `hf auth login`, or set HF_TOKEN to one of its settings page",
        402: "the account's storage is full or unpaid",
        403: "the token may not do this: use one that may write here, a repository of your own, or --create-pr",
        404: "there is no such repository, or the token may not see it: check its name",
        413: "a file or the commit is too large for it: save with a smaller max_shard_size",
        507: "the account's storage is full",
    }
    if any(isinstance(link, RevisionNotFoundError) for link in chain_of(error)):
        advice[404] = "the repository has no such branch, tag or commit: check --revision"
    what = advice.get(response.status_code, "it did not do what was asked")
    return HubError(f"{doing}: {reason_of(error)}: {what}")


def redact(error: BaseException, token: str | bool | None) -> None:
    """Take tokens out of an error's messages, and of those that it came from: a traceback shows them all."""
    for link in chain_of(error):
        link.args = tuple(without_tokens(arg, token) if isinstance(arg, str) else arg for arg in link.args)
        if isinstance(link, HfHubHTTPError) and link.server_message:
            link.server_message = without_tokens(link.server_message, token)


def without_tokens(text: str, token: str | bool | None) -> str:
    """A text without the token in use, nor anything that looks like one."""
    if isinstance(token, str):
        text = text.replace(token, "***")
    return re.sub(r"\bhf_[A-Za-z0-9]{30,}", "***", text)
