"""Fine-tuning with accelerate: what `scripts/finetune_text.py` and `scripts/finetune_image.py` are built from."""
