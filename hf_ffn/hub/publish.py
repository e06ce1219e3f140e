"""From a model's folder to the Hub in one go: staged, proven and pushed."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transformers.utils import logging

from .client import connect, full_name, persist
from .details import CardDetails
from .push import PushReport, push
from .stage import stage

logger = logging.get_logger(__name__)


def publish(
    source: str | os.PathLike,
    repo_id: str,
    *,
    details: CardDetails | None = None,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    token: str | None = None,
) -> PushReport:
    """Stage a model's folder where nobody sees it, and push what was staged (see `stage` and `push`).

    Args:
        source: a folder or a Hub id; ours, or of a family that converts.
        repo_id: user/name, or a name for one of your own.
        details: what only a person can say, for the card.
        private: make the repository private. Refused where it exists and is public.
        revision: a branch; None for main.
        create_pr: open a pull request instead.
        commit_message: None for a plain one.
        token: None for the one that the client is signed in with.

    Raises:
        StageError: the folder does not do what its card says; nothing left the machine.
        HubError: what keeps the push from succeeding, and what to do.
    """
    # Before the work of staging, for without a token or a name all of it would be in vain.
    api = connect(repo_id, token, anonymous=False)
    repo_id = persist(lambda: full_name(api, repo_id), "asking the Hub who you are", api)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / repo_id.split("/")[-1]
        report = stage(source, folder, details=replace(details or CardDetails(), repo_id=repo_id))
        for each in report.left_out:
            logger.warning(f"left out of what is published: {each}")
        return push(
            folder,
            repo_id,
            private=private,
            revision=revision,
            create_pr=create_pr,
            commit_message=commit_message,
            token=token,
        )


def publisher(
    repo_id: str, *, card: str | None, private: bool, token: str | None
) -> Callable[[Path, str], PushReport]:
    """What a training run calls with its folder and a message to publish the model in it.

    Args:
        repo_id: user/name, or a name for one of your own.
        card: YAML file of `CardDetails`; read now, so that what is wrong with it is known before the training.
        private: make the repository private.
        token: None for the one that the client is signed in with.

    Raises:
        HubError: there is no token, or no repository can have this name.
        ValueError: the YAML file holds what a card does not know.
    """
    details = CardDetails.from_yaml(card) if card is not None else CardDetails()
    connect(repo_id, token, anonymous=False)

    def share(folder: Path, message: str) -> PushReport:
        return publish(folder, repo_id, details=details, private=private, commit_message=message, token=token)

    return share
