"""Fine-tune an image encoder with accelerate, or train one from scratch.

    python scripts/finetune_image.py --output_dir out --dataset_name digits \
        --config_overrides hidden_size=64,num_attention_heads=4,intermediate_size=128,\
image_size=8,patch_size=2,num_channels=1
    accelerate launch scripts/finetune_image.py --output_dir out --train_dir photos \
        --model_name_or_path google/vit-base-patch16-224-in21k

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

    from hf_ffn import FFNForImageClassification, FFNVisionConfig
    from hf_ffn.hub.publish import publisher
    from hf_ffn.image_processor_files import load_image_processor
    from hf_ffn.training.data import load_image_data
    from hf_ffn.training.images import processor_from_scratch
    from hf_ffn.training.run import finetune, labels_of, make_accelerator, make_model, new_config, print_results

    share = None
    if args.push_to_hub:
        repo_id = args.hub_model_id or Path(args.output_dir).resolve().name
        share = publisher(repo_id, card=args.card, private=args.hub_private_repo, token=args.hub_token)
    accelerator = make_accelerator(args)
    source = model_args.model_name_or_path
    where = {} if model_args.revision is None else {"revision": model_args.revision}
    config = FFNVisionConfig.from_pretrained(source, **where) if source else new_config(FFNVisionConfig, model_args)
    processor = load_image_processor(source, config, **where) if source else None
    # The first process prepares the data, and the others find it in the cache.
    with accelerator.main_process_first():
        data = load_image_data(
            data_args,
            processor,
            seed=args.seed,
            num_channels=config.num_channels,
            image_size=config.image_size,
            known_labels=labels_of(config),
        )
    torch.manual_seed(args.seed)
    model = make_model(FFNForImageClassification, FFNVisionConfig, model_args, data)
    # The same pixels as without one, which costs less in training.
    processor = processor or processor_from_scratch(config.num_channels, config.image_size)
    results = finetune(accelerator, model, data, processor, model_args, data_args, args, share)
    if accelerator.is_main_process:
        print_results(results)


if __name__ == "__main__":
    run_script(main)
