"""The engine thread itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The heavy libraries are imported; commands are answered from here on."""

    program: str  # "greenroom 0.1.0"
    libraries: str  # "torch 2.13.0, transformers 5.24.0"
    device: str  # "CPU, 2 cores" or "NVIDIA GeForce RTX 4070, 12.0 GB"
    cards: tuple[str, ...] = ()  # names of the graphics cards, "cuda:0" first


@dataclass(frozen=True, slots=True)
class Progress:
    """A long task moves on. ``fraction`` None: it is under way but nobody knows how far."""

    task: str  # "Loading SmolLM2 demo"
    detail: str  # "building layer 12 of 30"
    fraction: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A command could not be carried out. ``text`` is one or two sentences for the user; the engine lives on.

    With a request id, that request has ended with it. "log" and "memory" have none: the answer they came up in goes on.
    """

    # "load", "generate", "list", "plan", "count", "look up", "download", "what if", "start", "log", "memory"
    doing: str
    text: str
    request_id: str = ""
    details: str = ""  # traceback of an unexpected fault, for the log file only


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Stop whatever runs, close files and end the thread."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The engine thread has ended, after ShutDown."""
