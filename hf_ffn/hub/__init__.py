"""Sharing: a model's card, its staged folder, and the way to the Hub and back."""
