"""Prompt -> prefill -> decode -> text, with one conversation's KV cache kept between turns."""
