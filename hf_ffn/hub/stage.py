"""A folder to publish: everything that others need, nothing that is nobody's business, and proven before it counts."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ..conversion import copy_companions, model_class_for, refuse_same_folder
from ..digest import DIGEST, model_digest
from ..equivalence import example_inputs
from ..folders_ffn import refuse_unwritable, staged_folder
from ..modeling_ffn import FFNPreTrainedModel
from ..sentence_files import encoder_place
from .card import make_card, public_arguments
from .details import CardDetails, is_repo_id
from .facts import PUBLIC_RECORD, Facts, facts_folder, gather
from .inspection import inspect_folder
from .manifest import write_manifest
from .pull import refuse_to_lose
from .snippets import is_vision, snippet

ISOLATED = Path(__file__).with_name("isolated.py")
# Seconds for a fresh process to import transformers, load and compute, on a slow machine.
TIMEOUT = 600


@dataclass
class StageReport:
    """What was staged, and what was tried.

    Attributes:
        folder: the staged one.
        files: their sizes in bytes, by name.
        proven: what was tried and held, a sentence each.
        gaps: what the card does not say because nobody stated it.
        left_out: what lay beside the model and is not known to be about it, a sentence each.
    """

    folder: Path
    files: dict[str, int]
    proven: list[str]
    gaps: list[str]
    left_out: list[str]

    def __str__(self) -> str:
        lines = [f"{self.folder}: {len(self.files)} files, {sum(self.files.values()):,} bytes"]
        lines += [f"  proven: {each}" for each in self.proven]
        lines += [f"  left out: {each}" for each in self.left_out]
        lines += [f"  gap in the card: {each} (hf-ffn stage --card details.yaml)" for each in self.gaps]
        return "\n".join(lines)


class StageError(ValueError):
    """What keeps a folder from being published."""


def stage(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    details: CardDetails | None = None,
    max_shard_size: int | str = "5GB",
    **hub_kwargs: Any,
) -> StageReport:
    """Make a folder that can be published, and prove it, all without network.

    It holds weights, configuration, code, tokenizer or image processor, the card with its pictures, the results, what
    the card tells of a run's arguments (so that it can be staged again), and a manifest. A proof, results or pictures
    that are about another model than lies beside them now are left out, and the report says so. Before it takes its
    place it is loaded in a fresh process in which hf_ffn cannot be imported and no connection can be made, its outputs
    are compared bit for bit with the model here, the card's examples are run, and its files are looked through for
    imports that lead out of it, tokens, paths and user names.

    Args:
        source: a folder or a Hub id; ours, or of a family that converts.
        out: written beside and moved into place; another folder than `source`.
        details: what only a person can say, for the card.
        max_shard_size: weights beyond this size go into several files.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Raises:
        StageError: something in the folder does not hold; the message names it, and nothing was written.
        ValueError: `source` is no model that loads.
    """
    refuse_same_folder(source, out)
    details = details or CardDetails()
    details = replace(details, repo_id=details.repo_id or stand_in(Path(out)))
    refuse_unwritable(out)
    refuse_to_lose(Path(out))
    hub_kwargs = encoder_place(source, hub_kwargs)
    model = model_class_for(source, **hub_kwargs).from_pretrained(source, dtype="auto", **hub_kwargs).eval()
    with staged_folder(out, replace=True) as folder:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        copy_companions(model, source, folder, readable=True, **hub_kwargs)
        told = facts_folder(source, hub_kwargs)
        facts = gather(folder, told)
        write_facts(facts, told, folder)
        card = make_card(facts, details)
        (folder / "README.md").write_text(str(card), encoding="utf-8")
        proven = prove(folder, model, facts, details)
        files = write_manifest(folder)
    stated = ("license", *(() if is_vision(facts) else ("language",)), "intended_use", "limits")
    gaps = [name for name in stated if not getattr(details, name)]
    sizes = {name: entry["size"] for name, entry in files.items()}
    return StageReport(Path(out), sizes, proven, gaps, [f"{name}: {why}" for name, why in facts.left_out.items()])


def stand_in(out: Path) -> str:
    """A name for a repository of which nobody said where it will be, after the folder's."""
    name = "your-name/" + re.sub(r"[^A-Za-z0-9_.-]+", "-", out.resolve().name).strip("-.")
    return name if is_repo_id(name) else "your-name/your-model"


def write_facts(facts: Facts, source: Path, folder: Path) -> None:
    """Write the proof, the results and the pictures that are about this model, without where they lay."""
    if facts.equivalence is not None:
        (folder / "equivalence.json").write_text(facts.equivalence.to_json() + "\n", encoding="utf-8")
    if facts.arguments:
        # Of a run's record only what the card is made of, so that it can be made again from this folder.
        record = {"arguments": public_arguments(facts), DIGEST: model_digest(folder)}
        text = json.dumps(record, indent=2, ensure_ascii=False)
        (folder / PUBLIC_RECORD).write_text(text + "\n", encoding="utf-8")
    for name in [*facts.pictures, *(["all_results.json"] if facts.results is not None else [])]:
        shutil.copyfile(source / name, folder / name)


def prove(folder: Path, model: FFNPreTrainedModel, facts: Facts, details: CardDetails) -> list[str]:
    """Try everything that a card promises; returns what held.

    Raises:
        StageError: what did not.
    """
    repo_id = str(details.repo_id)
    named = (repo_id, details.base_model, facts.base_model, facts.converted_from, facts.dataset)
    public_names = {name.split("/")[0] for name in (*named, *(details.datasets or [])) if name}
    complaints = inspect_folder(folder, public_names)
    if complaints:
        raise StageError("not fit to be published: " + "; ".join(complaints))
    card = (folder / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        case = Path(scratch) / "case.safetensors"
        save_file(case_of(model), case)
        for with_hf_ffn in (False, True):
            program = snippet(facts, repo_id, details.example, with_hf_ffn=with_hf_ffn)
            if f"```python\n{program}\n```" not in card:
                raise StageError("the card's example is not the one that was to be tried")
            path = Path(scratch) / "example.py"
            path.write_text(program.replace(json.dumps(repo_id), repr(str(folder))), encoding="utf-8")
            if with_hf_ffn:
                isolated(Path(scratch), "with-hf-ffn", path)
            else:
                isolated(Path(scratch), "without-hf-ffn", path, folder, facts.auto_class, case)
    return [
        "loads in a fresh process without network and without hf_ffn, with bitwise the same outputs",
        "the card's examples run, with hf_ffn and without",
        "the code's imports and the auto classes lead to files of the folder",
        "no tokens, paths or user names in its text files",
    ]


@torch.no_grad()
def case_of(model: FFNPreTrainedModel) -> dict[str, torch.Tensor]:
    """Inputs, and what the model here makes of them."""
    inputs = example_inputs(model, seed=0)
    outputs = model(**inputs)
    tensors = {f"input.{name}": tensor for name, tensor in inputs.items()}
    tensors |= {f"output.{name}": tensor for name, tensor in outputs.items() if isinstance(tensor, torch.Tensor)}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def isolated(scratch: Path, how: str, *command: Any) -> None:
    """Run `isolated.py` in a fresh process, whose code cache is its own.

    Raises:
        StageError: it failed; with the end of what it said.
    """
    environment = {**os.environ, "HF_MODULES_CACHE": str(scratch / "modules"), "HF_HUB_OFFLINE": "1"}
    # Where it finds hf_ffn, whether that is installed or not.
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    environment["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
    # As many as here: matrix products are summed up in the order that the threads give.
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(torch.get_num_threads()))
    where = f"in a fresh process {how.replace('-', ' ', 1)}"
    try:
        result = subprocess.run(
            [sys.executable, "-P", str(ISOLATED), how, *(str(part) for part in command)],
            env=environment,
            cwd=scratch,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise StageError(f"the staged folder was not ready after {TIMEOUT} s {where}") from error
    if result.returncode:
        last = "; ".join(result.stderr.strip().splitlines()[-2:])
        raise StageError(
            f"the staged folder does not do what its card says {where}: {last or f'exit status {result.returncode}'}"
        )
