"""Fine-tune a text encoder with accelerate: classification, regression, sentence pairs, tokens.

    python scripts/finetune_text.py --output_dir out --dataset_name docstrings \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2
    accelerate launch scripts/finetune_text.py run.yaml --learning_rate 1e-4

`--help` lists the arguments; a YAML file may hold them. Interrupted, the run goes on with
`--resume_from_checkpoint latest` as if nothing had happened.
"""

from pathlib import Path

from hf_ffn.training.arguments import parse
from hf_ffn_cli import run_script


def main(arguments: list[str]) -> None:
    """Parse, load, train, report."""
    model_args, data_args, args = parse(arguments)
    # Only now what takes seconds to import, or may be missing.
    import torch
    from transformers import AutoTokenizer

    from hf_ffn import FFNForSequenceClassification, FFNForTokenClassification, FFNTextConfig
    from hf_ffn.hub.publish import publisher
    from hf_ffn.training.data import load_text_data
    from hf_ffn.training.run import finetune, labels_of, make_accelerator, make_model, new_config, print_results

    source = model_args.tokenizer_name or model_args.model_name_or_path
    if source is None:
        raise ValueError("a new text model needs a tokenizer: pass --tokenizer_name, or --model_name_or_path")
    share = None
    if args.push_to_hub:
        repo_id = args.hub_model_id or Path(args.output_dir).resolve().name
        share = publisher(repo_id, card=args.card, private=args.hub_private_repo, token=args.hub_token)
    accelerator = make_accelerator(args)
    # A revision is one of the checkpoint's, which a tokenizer of another name does not have.
    pinned = {"revision": model_args.revision} if model_args.revision and not model_args.tokenizer_name else {}
    tokenizer = AutoTokenizer.from_pretrained(source, **pinned)
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    known_labels: list[str] = []
    if model_args.model_name_or_path:
        revision = model_args.revision or "main"
        config = FFNTextConfig.from_pretrained(model_args.model_name_or_path, revision=revision)
        known_labels = labels_of(config)
    else:
        config = new_config(FFNTextConfig, model_args, **sizes)
    known = {"known_labels": known_labels, "longest": config.longest_sequence}
    # The first process prepares the data, and the others find it in the cache.
    with accelerator.main_process_first():
        data = load_text_data(data_args, tokenizer, seed=args.seed, **known)
    is_tokens = data.task == "token-classification"
    model_class = FFNForTokenClassification if is_tokens else FFNForSequenceClassification
    torch.manual_seed(args.seed)
    model = make_model(model_class, FFNTextConfig, model_args, data, **sizes)
    results = finetune(accelerator, model, data, tokenizer, model_args, data_args, args, share)
    if accelerator.is_main_process:
        print_results(results)


if __name__ == "__main__":
    run_script(main)
