"""Checkpoints of a run: written beside and moved into place, found, compared with what is asked, rotated."""

import json
import pickle
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from safetensors import SafetensorError

from ..digest import DIGEST, model_digest
from ..folders_ffn import STAGE_PREFIX, full_disk, give_usual_modes, is_empty, is_left_over, refuse_unwritable

RUN_FILE = "run.json"
STATE_FILE = "progress.json"

# Changing these changes neither the samples of a step nor what is computed from them.
_MAY_CHANGE = {
    "checkpointing_steps",
    "checkpoints_total_limit",
    "dataloader_num_workers",
    "card",
    # Where model and data lie, and how files are read: what was read is compared by its contents.
    "dataset_config_name",
    "dataset_name",
    "delimiter",
    "encoding",
    "field",
    "model_name_or_path",
    "quoting",
    "tokenizer_name",
    "train_dir",
    "train_file",
    "validation_dir",
    "validation_file",
    "hub_model_id",
    "hub_private_repo",
    "hub_strategy",
    "output_dir",
    "overwrite_output_dir",
    "per_device_eval_batch_size",
    "preprocessing_num_workers",
    "push_to_hub",
    "report_to",
    "resume_from_checkpoint",
    "with_tracking",
}


# A run may be made longer.
_MAY_GROW = ("num_train_epochs", "max_train_steps")


@dataclass
class Progress:
    """How far a run is, and what it has seen; stored with every checkpoint.

    Attributes:
        step: optimizer steps done.
        epoch: the epoch under way, from 0.
        step_in_epoch: steps of that epoch done.
        history: loss and learning rate of each step.
        evaluations: loss and metrics of each evaluation.
        best: the evaluation with the best metric so far.
        real_tokens: positions computed for samples, of texts without padding.
        computed_tokens: positions computed in all.
        uniform_tokens: positions that padding every sample to the longest would have computed.
        schedule: state of the learning rate's schedule.
        product_library: which library multiplies, so that another machine goes on with it (see `frugal_ffn`).
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    real_tokens: int = 0
    computed_tokens: int = 0
    uniform_tokens: int = 0
    schedule: dict[str, Any] = field(default_factory=dict)
    product_library: dict[str, bool] = field(default_factory=dict)


def prepare_output_folder(folder: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that holds another run, or anything else, or cannot be written to; clear one to be overwritten.

    Raises:
        ValueError: the folder is in use.
        OSError: nothing can be written there.
    """
    refuse_unwritable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    is_run = (folder / RUN_FILE).exists()
    # In another folder they may be another command's, at work.
    for pattern in (".checkpoint-*", f"{STAGE_PREFIX}*") if is_run else ():
        for partial in folder.glob(pattern):
            shutil.rmtree(partial)
    # A run that was broken off before its record was written has left no model.
    if is_empty(folder) or (resume and (is_run or not (folder / "config.json").exists())):
        return
    if not is_run:
        raise ValueError(f"output_dir '{folder}' is not empty, and holds no run of hf_ffn: choose another folder")
    if not overwrite:
        raise ValueError(
            f"output_dir '{folder}' holds another run: go on with it (--resume_from_checkpoint latest), delete it "
            f"(--overwrite_output_dir), or choose another folder"
        )
    # What is in it, and not itself: it may be a mount, or a link. What says that it is a run goes last.
    for path in sorted(folder.iterdir(), key=lambda path: path.name == RUN_FILE):
        if path.is_dir() and not path.is_symlink() and not is_left_over(path.name):
            shutil.rmtree(path)
        elif not is_left_over(path.name):
            path.unlink()


def check_same_run(folder: Path, facts: dict[str, Any]) -> str | None:
    """Compare a run's facts with those it was begun with, or store them if it begins or is made longer.

    Args:
        folder: the run's output folder.
        facts: arguments, data and number of processes.

    Returns:
        What to say of a run that is made longer; None of others.

    Raises:
        ValueError: naming what changed.
    """
    path = folder / RUN_FILE
    plain = json.loads(json.dumps(facts))
    if not path.exists():
        write_json(path, plain)
        return None
    before = json.loads(path.read_text(encoding="utf-8"))
    before.pop(DIGEST, None)
    changed: list[str] = []
    longer: list[str] = []
    for part in sorted(before.keys() | plain.keys()):
        old, new = before.get(part, {}), plain.get(part, {})
        for name in sorted(old.keys() | new.keys()):
            if name in _MAY_CHANGE or old.get(name) == new.get(name):
                continue
            text = f"{name} was {old.get(name)!r} and is {new.get(name)!r}"
            grows = name in _MAY_GROW and None not in (old.get(name), new.get(name)) and new[name] > old[name]
            (longer if grows else changed).append(text)
    if changed:
        raise ValueError(f"'{folder}' cannot be resumed, for it would be another run: {'; '.join(changed)}")
    if not longer:
        return None
    arguments = before["arguments"] | {name: plain["arguments"][name] for name in _MAY_GROW}
    # Until the longer run ends, its record is of no model.
    write_json(path, {**before, "arguments": arguments})
    return (
        f"{'; '.join(longer)}: the run goes on for these. From here the learning rate is that of a run that was so "
        f"long from the start; the steps before were taken with those of the shorter one"
    )


def drop_later(folder: Path, step: int) -> list[str]:
    """Remove the checkpoints after a step from which a run goes on anew; returns their names.

    They would pass for its own: a run that was made longer takes other steps.
    """
    later = [path for path in checkpoints_in(folder) if int(path.name.partition("-")[2]) > step]
    for path in later:
        # Out of sight before it is taken apart, so that no half of it is found.
        shutil.rmtree(path.rename(folder / f".{path.name}.old"))
    return [path.name for path in later]


def record_model(folder: Path) -> str:
    """Say in a run's record which model the run has come to, which lies beside it; returns the model's digest."""
    path, digest = folder / RUN_FILE, model_digest(folder)
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), DIGEST: digest})
    return digest


def write_json(path: Path, content: Any) -> None:
    """Write a file beside, and move it into place."""
    beside = path.with_name(f".{path.name}.partial")
    beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def checkpoints_in(folder: Path) -> list[Path]:
    """A run's checkpoints, oldest first."""
    found = [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def find_checkpoint(folder: Path, wanted: str) -> Path | None:
    """The checkpoint to go on from.

    Args:
        folder: the run's output folder.
        wanted: a folder, or "latest".

    Returns:
        None where the latest is wanted and the run had not come to its first.

    Raises:
        ValueError: the folder is no checkpoint, or another run's.
    """
    if wanted == "latest":
        found = checkpoints_in(folder)
        return found[-1] if found else None
    path = Path(wanted)
    if not (path / STATE_FILE).exists():
        raise ValueError(f"resume_from_checkpoint '{wanted}' is not a checkpoint of hf_ffn (it holds no {STATE_FILE})")
    if path.resolve().parent != folder.resolve():
        raise ValueError(
            f"resume_from_checkpoint '{wanted}' is another run's, not one of output_dir '{folder}': name that run's "
            f"folder as output_dir"
        )
    return path


def save_checkpoint(accelerator: Accelerator, folder: Path, progress: Progress, keep: int | None) -> Path:
    """Save everything that the run needs to go on, and drop the oldest beyond `keep`.

    Every process must call it. The folder appears when it is whole: killed at any moment, a run has only whole ones.

    Raises:
        OSError: no space is left; the checkpoints that were there still are.
    """
    target = folder / f"checkpoint-{progress.step}"
    if target.exists():
        return target
    stage = folder / f".{target.name}"
    if accelerator.is_main_process:
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
    accelerator.wait_for_everyone()
    try:
        accelerator.save_state(str(stage))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            write_json(stage / STATE_FILE, asdict(progress))
            give_usual_modes(stage)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(stage, ignore_errors=True)
        clear = full_disk(error, folder)
        if clear is None:
            raise
        raise clear from error
    if accelerator.is_main_process:
        stage.rename(target)
        for old in checkpoints_in(folder)[: -keep if keep else 0]:
            # Out of sight before it is taken apart, so that no half of it is found.
            gone = old.rename(folder / f".{old.name}.old")
            shutil.rmtree(gone)
    accelerator.wait_for_everyone()
    return target


def load_checkpoint(accelerator: Accelerator, checkpoint: Path) -> Progress:
    """Restore model and optimizer, and return how far the run was.

    Raises:
        ValueError: a file is missing, damaged, or holds something else than numbers.
    """
    # What accelerate stores for others than models and optimizers it reads back as pickles that may run code; so the
    # schedule's state is in the JSON file.
    try:
        progress = Progress(**json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8")))
        accelerator.load_state(str(checkpoint))
    except (
        OSError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
        pickle.UnpicklingError,
        SafetensorError,
    ) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"checkpoint '{checkpoint}' cannot be read ({what}): delete that folder, and resume from the one before it"
        ) from error
    return progress
