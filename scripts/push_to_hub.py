"""Publish a model: stage its folder, prove it, and push it to the Hub as one commit.

    python scripts/push_to_hub.py my-run me/my-encoder --card details.yaml --private

Broken off, the same command goes on where it stopped. To look at the folder before it leaves the machine, use
`hf-ffn stage` and `hf-ffn push` instead, which do the same in two steps. The token comes from `hf auth login` or
HF_TOKEN. `details.yaml` holds what only you can say:

    license: apache-2.0
    language: en
    intended_use: Sentence embeddings of English prose.
    limits: Not tried on other languages.
"""

import argparse

from hf_ffn_cli import run_script


def main(arguments: list[str]) -> None:
    """Parse, stage, push, and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "model", help="a folder (a conversion, a fine-tuning run, an original checkpoint), or a Hub id"
    )
    parser.add_argument("repo_id", help="user/name; made where it is missing")
    parser.add_argument("--card", help="YAML file with what only you can say of the model")
    parser.add_argument("--private", action="store_true", help="make the repository private")
    parser.add_argument("--revision", help="branch to push to; left out: main")
    parser.add_argument("--create-pr", action="store_true", help="open a pull request instead")
    args = parser.parse_args(arguments)
    from hf_ffn.hub.details import CardDetails
    from hf_ffn.hub.publish import publish

    details = CardDetails.from_yaml(args.card) if args.card else None
    where = {"private": args.private, "revision": args.revision, "create_pr": args.create_pr}
    print(publish(args.model, args.repo_id, details=details, **where))


if __name__ == "__main__":
    run_script(main)
