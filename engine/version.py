"""The program's version. It stands here and in the changelog; everything else reads it."""

__version__ = "0.1.0"
