"""A conversation's past: its tokens, what every layer keeps of them, and how to go back.

Layers that only append are cut at any token. Windows and recurrent layers cannot be cut: their state is kept at
checkpoints, within a byte budget, and going back restores the nearest one. Knows transformers' caches, no experts.
"""
