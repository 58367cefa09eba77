"""A past that was put away: whole, on its own, in RAM or as one file, until its chat is gone on with."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engine.kv.state import Leaf, Rows, State

FORMAT = "greenroom-past-1"
SUFFIX = ".past.safetensors"


class DamagedPast(Exception):
    """The file does not hold what it should; it is to be forgotten."""


@dataclass(frozen=True)
class KeptPast:
    """state: all that the cache held after ``tokens``. checkpoints: states on the way, by rising length, whose growing
    tensors are the first rows of ``state``'s. cuttable: the state can be cut at any token."""

    tokens: tuple[int, ...]
    state: State
    checkpoints: tuple[State, ...]
    cuttable: bool

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + sum(state.nbytes for state in self.checkpoints)

    @property
    def reach(self) -> Reach:
        lengths = [state.length for state in self.checkpoints]
        return Reach(self.tokens, tuple(lengths), self.cuttable)


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tokens a past is of, and to which lengths it can be taken back."""

    tokens: Sequence[int]
    lengths: tuple[int, ...]
    cuttable: bool

    def of(self, prompt: Sequence[int]) -> int:
        """How many of the first tokens of ``prompt``, without its last, need not be read again."""
        return self.below(common_prefix(self.tokens, prompt[:-1]))

    def below(self, length: int) -> int:
        """The most tokens, at most ``length``, that it can be taken back to."""
        if self.cuttable or length >= len(self.tokens):
            return min(length, len(self.tokens))
        return max((there for there in self.lengths if there <= length), default=0)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many numbers two sequences begin with alike."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(differ[0]) if len(differ) else length


# ------------------------------------------------------------------------------------------------- as a file


def write(past: KeptPast, folder: Path, signature: str, chat: str) -> Path:
    """Write ``past`` into ``folder`` under a name of its own, whole or not at all. OSError when the disk takes nothing.

    signature: of the model and of all that changes numbers. chat: the log it belongs to, "" for none.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[int, str] = {}
    trees = [_tree(state, tensors, names) for state in (past.state, *past.checkpoints)]
    numbers = np.asarray(past.tokens, dtype="<i4").tobytes()
    sums = {name: _sum_of(tensor) for name, tensor in tensors.items()}
    metadata = {
        "format": FORMAT,
        "signature": signature,
        "chat": chat,
        "tokens": numbers.hex(),
        "lengths": json.dumps([state.length for state in past.checkpoints]),
        "cuttable": json.dumps(past.cuttable),
        "states": json.dumps(trees),
        "sums": json.dumps(sums),
    }
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
    under_way = path.with_suffix(".part")
    try:
        save_file(tensors, under_way, metadata=metadata)
        under_way.chmod(0o600)
        under_way.replace(path)
    except SafetensorError as error:  # it wraps what the system says
        raise OSError(str(error)) from error
    finally:
        under_way.unlink(missing_ok=True)
    return path


@dataclass(frozen=True, slots=True)
class Label:
    """What a file says of itself without its tensors being read."""

    reach: Reach
    signature: str
    chat: str


def read_label(path: Path) -> Label:
    """Raises DamagedPast; OSError when the file is gone."""
    with _opened(path) as file:
        return _label(file.metadata() or {})


def read(path: Path, signature: str) -> KeptPast:
    """The past in ``path``, in RAM. Raises DamagedPast for one that is cut short, changed, or of other numbers."""
    try:
        with _opened(path) as file:
            metadata = file.metadata() or {}
            label = _label(metadata)
            if label.signature != signature:
                raise DamagedPast("it is of another model")
            sums = json.loads(metadata["sums"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if sums != {name: _sum_of(tensor) for name, tensor in tensors.items()}:
            raise DamagedPast("its numbers have changed")
        states = [_state(tree, tensors) for tree in json.loads(metadata["states"])]
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise DamagedPast(f"{type(error).__name__}: {error}") from error
    return KeptPast(tuple(label.reach.tokens), states[0], tuple(states[1:]), label.reach.cuttable)


def _opened(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(path)
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise DamagedPast(str(error)) from error


def _label(metadata: dict[str, str]) -> Label:
    try:
        if metadata["format"] != FORMAT:
            raise DamagedPast(f"it has the format {metadata['format'][:40]!r}")
        tokens = np.frombuffer(bytes.fromhex(metadata["tokens"]), dtype="<i4").tolist()
        lengths = tuple(int(length) for length in json.loads(metadata["lengths"]))
        reach = Reach(tuple(tokens), lengths, bool(json.loads(metadata["cuttable"])))
        return Label(reach, metadata["signature"], metadata["chat"])
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedPast(f"{type(error).__name__}: {error}") from error


def _sum_of(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy().data) if tensor.numel() else 0


# -------------------------------------------------------------------------------- states as plain data and back


def _tree(state: State, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> dict[str, Any]:
    def plain(leaf: Leaf) -> Any:
        if isinstance(leaf, torch.Tensor):
            name = names.setdefault(id(leaf), f"t{len(names)}")
            tensors[name] = leaf
            return {"tensor": name}
        if isinstance(leaf, Rows):
            return {"rows": [leaf.count, leaf.dim]}
        if isinstance(leaf, dict):
            return {"dict": [[key, plain(item)] for key, item in leaf.items()]}
        if isinstance(leaf, list):
            return {"list": [plain(item) for item in leaf]}
        if isinstance(leaf, torch.dtype):
            return {"dtype": str(leaf).removeprefix("torch.")}
        if isinstance(leaf, torch.device):
            return {"device": str(leaf)}
        return leaf

    layers = [[[name, plain(leaf)] for name, leaf in layer.items()] for layer in state.layers]
    return {"length": state.length, "layers": layers, "own": [[name, plain(leaf)] for name, leaf in state.own.items()]}


def _state(tree: dict[str, Any], tensors: dict[str, torch.Tensor]) -> State:
    def leaf(plain: Any) -> Leaf:
        if not isinstance(plain, dict):
            return plain
        ((kind, value),) = plain.items()
        if kind == "tensor":
            return tensors[value]
        if kind == "rows":
            return Rows(*value)
        if kind == "dict":
            return {key: leaf(item) for key, item in value}
        if kind == "list":
            return [leaf(item) for item in value]
        return getattr(torch, value) if kind == "dtype" else torch.device(value)

    def attributes(pairs: Sequence[Any]) -> dict[str, Leaf]:
        return {str(name): leaf(plain) for name, plain in pairs}

    return State(int(tree["length"]), tuple(map(attributes, tree["layers"])), attributes(tree["own"]))


def files_in(folder: Path) -> Iterator[Path]:
    """Kept pasts in ``folder``, of whatever model; the newest first."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:  # another program took it away
            continue
    yield from (path for _, path in sorted(found, reverse=True))
