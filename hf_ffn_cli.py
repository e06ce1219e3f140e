"""The `hf-ffn` command.

It stands beside the package, for `import hf_ffn` imports torch to register the models with transformers' auto classes,
and help need not wait for that: commands import what they use when they run.
"""

import importlib.util
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

# Modules whose packages have another name.
PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def tasks_by_model_type() -> dict[str, dict[str, str]]:
    """What `hf_ffn.tasks` says, read as a file: to import it would import torch."""
    (package,) = importlib.util.find_spec("hf_ffn").submodule_search_locations  # type: ignore[union-attr, misc]
    return runpy.run_path(str(Path(package) / "tasks.py"))["HEADS"]


TASKS = ", ".join(dict.fromkeys(task for tasks in tasks_by_model_type().values() for task in tasks))

app = typer.Typer(
    name="hf-ffn",
    help="Convert BERT- and ViT-family checkpoints to hf_ffn and back, and prove that nothing changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Source = Annotated[str, typer.Argument(help="A checkpoint: a folder, or a repository id on the Hub.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a repository on the Hub.")]
Family = Annotated[
    str | None, typer.Option(help="Family of an old checkpoint whose config.json has no model_type, where asked for.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.callback()
def common(context: typer.Context, debug: Debug = False) -> None:
    """Options of every command; `main` reads --debug itself, for errors end there."""


@app.command()
def convert(
    source: Source,
    out: Annotated[Path, typer.Argument(help="Folder to write; what stands there stays if anything fails.")],
    task: Annotated[
        str | None,
        typer.Option(help=f"One of {TASKS}. Left out: the checkpoint's own."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16. auto: the checkpoint's own.")] = "auto",
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Prove the conversion before writing.")] = True,
    family: Family = None,
    revision: Revision = None,
) -> None:
    """Convert a checkpoint of another family (BERT, ViT…) to hf_ffn's own format.

    Writes weights, configuration, the code that loads them anywhere, the tokenizer or image processor, and the proof
    as equivalence.json.

    Example: hf-ffn convert google-bert/bert-base-uncased my-encoder
    """
    quiet_progress_bars()
    from hf_ffn import conversion

    where = at(revision)
    try:
        model, report = conversion.convert(source, out, task=task, dtype=dtype, check=check, family=family, **where)
    except conversion.NotEquivalentError as error:
        typer.echo(str(error.report))
        raise
    if report is not None:
        typer.echo(str(report))
    typer.echo(f"{type(model).__name__} ({model.num_parameters():,} parameters) is in {out}")


@app.command()
def verify(
    source: Source,
    model: Annotated[
        str | None, typer.Option(help="Folder of the converted model to compare. Left out: convert now.")
    ] = None,
    dtype: Annotated[list[str], typer.Option(help="Precision to compute in; may be given several times.")] = [  # noqa: B006 - typer reads it, nothing changes it
        "float32"
    ],
    attention: Annotated[list[str], typer.Option(help="Attention back end; may be given several times.")] = [  # noqa: B006
        "eager",
        "sdpa",
    ],
    plot: Annotated[Path | None, typer.Option(help="Save a picture of the error per layer.")] = None,
    json: Annotated[Path | None, typer.Option(help="Save the report as JSON.")] = None,
    family: Family = None,
    revision: Revision = None,
) -> None:
    """Compare a checkpoint with its conversion, layer by layer. Exits with 0 if they are equal, else with 1.

    Example: hf-ffn verify google/vit-base-patch16-224 --dtype float32 --dtype bfloat16
    """
    quiet_progress_bars()
    from hf_ffn import conversion, equivalence
    from hf_ffn.checkpoint_ffn import read_raw_config
    from hf_ffn.digest import model_digest
    from hf_ffn.folders_ffn import refuse_unwritable

    if plot is not None:
        # A package that is missing is found out before the work.
        importlib.import_module("matplotlib.figure")
    for file in (plot, json):
        if file is not None:
            refuse_unwritable(file.parent)
            file.parent.mkdir(parents=True, exist_ok=True)
    where = at(revision)
    converted = conversion.model_class_for(model).from_pretrained(model) if model is not None else None
    report = equivalence.verify(
        source, converted, dtypes=tuple(dtype), attn_implementations=tuple(attention), family=family, **where
    )
    if model is not None and conversion.family_of_config(read_raw_config(model, {})) is None:
        report.model_sha256 = model_digest(model)
    typer.echo(str(report))
    if plot is not None:
        report.plot(plot)
    if json is not None:
        json.write_text(report.to_json() + "\n", encoding="utf-8")
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def export(
    folder: Annotated[str, typer.Argument(help="A model of hf_ffn: a folder, or a repository id on the Hub.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; what stands there stays if anything fails.")],
    family: Annotated[str | None, typer.Option(help="Family to write. Left out: the one it came from.")] = None,
    revision: Revision = None,
) -> None:
    """Write a model of hf_ffn in its original family's format, for that family's own classes.

    Example: hf-ffn export my-encoder back-to-bert
    """
    quiet_progress_bars()
    from hf_ffn import conversion
    from hf_ffn.folders_ffn import refuse_unwritable

    refuse_unwritable(out)
    where = at(revision)
    model = conversion.model_class_for(folder, **where).from_pretrained(folder, **where)
    conversion.export_pretrained(model, out, family=family)
    typer.echo(f"{type(model).__name__} is in {out}, in the format of {family or model.config.source_family}")


@app.command()
def stage(
    model: Annotated[str, typer.Argument(help="A model: a folder (a conversion, a fine-tuning run…), or a Hub id.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; what stands there stays if anything fails.")],
    card: Annotated[
        Path | None,
        typer.Option(
            help="YAML file with what only you can say: license, language, intended_use, limits, base_model…"
        ),
    ] = None,
    repo_id: Annotated[
        str | None, typer.Option(help="Where it will be, as user/name, for the card's examples.")
    ] = None,
    max_shard_size: Annotated[str, typer.Option(help="Weights beyond this size go into several files.")] = "5GB",
    revision: Revision = None,
) -> None:
    """Make a folder to publish, with a card made from facts, and prove it without network before it counts.

    Example: hf-ffn stage my-run ready --card details.yaml --repo-id me/my-encoder
    """
    quiet_progress_bars()
    from dataclasses import replace

    from hf_ffn.hub.details import CardDetails
    from hf_ffn.hub.stage import stage as make_folder

    details = CardDetails.from_yaml(card) if card is not None else CardDetails()
    if repo_id is not None:
        details = replace(details, repo_id=repo_id)
    report = make_folder(model, out, details=details, max_shard_size=max_shard_size, **at(revision))
    typer.echo(str(report))


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="A folder with a manifest, as `hf-ffn stage` writes it.")],
    repo_id: Annotated[str, typer.Argument(help="user/name on the Hub; made if it does not exist.")],
    private: Annotated[bool, typer.Option("--private", help="Make it private; refused if it is public.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, made if missing. Left out: main.")] = None,
    create_pr: Annotated[bool, typer.Option("--create-pr", help="Open a pull request instead.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
) -> None:
    """Push a folder to the Hub: checked before, only what differs, as one commit, compared afterwards.

    Broken off, it goes on where it stopped when run again. The token comes from `hf auth login` or HF_TOKEN.

    Example: hf-ffn push ready me/my-encoder --private
    """
    quiet_progress_bars()
    from hf_ffn.hub import push as pushing

    report = pushing.push(folder, repo_id, private=private, revision=revision, create_pr=create_pr, dry_run=dry_run)
    typer.echo(str(report))


@app.command()
def pull(
    repo_id: Annotated[str, typer.Argument(help="user/name on the Hub.")],
    out: Annotated[Path, typer.Argument(help="Folder to write: new, or pulled before and unchanged since.")],
    revision: Revision = None,
) -> None:
    """Fetch a pushed folder from the Hub, and check it against its manifest.

    Example: hf-ffn pull me/my-encoder my-encoder
    """
    quiet_progress_bars()
    from hf_ffn.hub import pull as pulling

    pulled = pulling.pull(repo_id, out, revision=revision)
    typer.echo(f"{repo_id} at {pulled.commit} is in {out}: {len(pulled.files)} file(s), as its manifest says")


@app.command()
def families() -> None:
    """List the families of checkpoints that convert, with the classes that come along and how equal results are."""
    from hf_ffn.families import FEED_FORWARD_ONLY
    from hf_ffn.families.table import table

    typer.echo(table())
    typer.echo("\nOf these the feed-forward blocks alone:")
    for row in FEED_FORWARD_ONLY:
        part = f", part='{row.part}'" if row.part else ""
        typer.echo(f"{row.model_type}: FeedForward.from_pretrained(source, layer=k{part})")


def at(revision: str | None) -> dict[str, Any]:
    """The keyword that loading takes for a revision, where one was given."""
    return {} if revision is None else {"revision": revision}


def quiet_progress_bars() -> None:
    """Progress bars are for people: leave them out of logs and pipes."""
    if not sys.stderr.isatty():
        from transformers.utils import logging

        logging.disable_progress_bar()


def one_line(error: Exception) -> str:
    """An error for people; of a missing package, what to install."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return " ".join(str(error).split()) or type(error).__name__
    module = error.name.partition(".")[0]
    package = PACKAGES.get(module, module)
    return f"the package '{package}' is missing, and this needs it: pip install {package}"


def run_script(main: Callable[[list[str]], None]) -> None:
    """Run one of `scripts/`; what a user can set right is one line on stderr, and exit status 1."""
    try:
        main(sys.argv[1:])
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {one_line(error)}")


def main() -> None:
    """Run the command; an error is one line on stderr and exit status 1."""
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"hf-ffn: {one_line(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
