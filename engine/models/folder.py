"""What a model folder is: find it, and say in a sentence why it cannot be used. Reads text and headers, no tensor."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import GreenroomError, ModelError
from engine.models import demo
from engine.models.headers import DTYPE_BYTES, TensorRef, read_headers, weight_files

PROCESSORS_TEMPLATE = "chat_template.json"  # where processors of models that see kept it; tokenizers do not look there

_PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class ModelFolder:
    """A folder whose weights are all there: its config as written, every tensor's place, and weight files that are no
    part of them."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, TensorRef]
    left_aside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What to call it: the hub's name for a hub snapshot, else the folder's."""
        if self.path == demo.demo_folder():
            return "Greenroom demo"
        parts = self.path.parts
        if len(parts) >= 3 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
            return parts[-3].removeprefix("models--").replace("--", "/")
        return self.path.name

    @property
    def family(self) -> str:
        """transformers' model_type."""
        return str(self.config.get("model_type", ""))

    @property
    def total_bytes(self) -> int:
        return sum(ref.nbytes for ref in self.tensors.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the files, in sentences."""
        if not self.left_aside:
            return ()
        used = sorted({ref.file.name for ref in self.tensors.values()})
        weights = used[0] if len(used) == 1 else f"{used[0]} and {len(used) - 1} more"
        others = ", ".join(self.left_aside[:3])
        more = f" and {len(self.left_aside) - 3} more" if len(self.left_aside) > 3 else ""
        return (f"The folder has more than one set of weights. Used: {weights}; left aside: {others}{more}.",)

    @property
    def signature(self) -> str:
        """16 hex digits that change when the config, or any tensor's name, shape, place or file size does."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for name in sorted(self.tensors):
            ref = self.tensors[name]
            digest.update(f"{name} {ref.file.name} {ref.offset} {ref.nbytes} {ref.dtype} {ref.shape}\n".encode())
        return digest.hexdigest()[:16]


def resolve(source: str) -> Path:
    """The folder that ``source`` means: "demo", a path, or the name of a model in the hub cache.

    Raises ModelError when there is no such folder, with what to do.
    """
    if not source.strip():
        raise ModelError("No model was named; choose a folder, or a model in the hub cache.")
    try:
        return _resolve(source)
    except GreenroomError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # no permission, no such ~user, a name that cannot be a path
        raise ModelError(
            f"{source[:200]} cannot be opened: {getattr(error, 'strerror', None) or str(error).rstrip('.')}."
        ) from error


def _resolve(source: str) -> Path:
    if source == "demo":
        if not demo.is_built():
            raise ModelError("The demo model is not built yet; run `python -m engine demo` once.")
        return demo.demo_folder()
    path = Path(source).expanduser()
    if path.is_dir():
        return path.resolve() if not _is_snapshot(path) else path
    if path.is_file():
        raise ModelError(f"{source} is a file; choose the folder that holds config.json and the safetensors files.")
    snapshot = _hub_snapshot(source)
    if snapshot:
        return snapshot
    raise ModelError(
        f"There is no folder {source}, and no model of that name in the hub cache. Check how it is written; a model on "
        "the hub must be downloaded first, in the window or with `hf download`."
    )


def open_folder(path: Path) -> ModelFolder:
    """Read config and headers, and check that this is a model Greenroom could run.

    Raises ModelError with one sentence: no model, only pickle weights, packed weights, missing or cut-short files.
    """
    try:
        return _open_folder(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error


def _open_folder(path: Path) -> ModelFolder:
    config_file = path / "config.json"
    if not config_file.is_file():
        raise ModelError(f"{path} is no model: it has no config.json. Choose a folder in the Hugging Face layout.")
    try:
        config = json.loads(config_file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"config.json in {path} is damaged ({error}); download it again.") from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise ModelError(f"config.json in {path} names no model_type, so its architecture is unknown.")
    refuse_packed(config)
    if (path / "adapter_config.json").is_file():  # transformers would load another model and change it by this one
        raise ModelError(
            "The folder holds an adapter (adapter_config.json), which is a change to another model. Merge the two, or "
            "choose the model itself."
        )
    weights = weight_files(path, config)
    tensors = read_headers(weights.files)
    if not tensors:
        _refuse_without_safetensors(path)
    packed = sorted({ref.dtype for ref in tensors.values() if _is_packed(ref)})
    if packed:
        raise ModelError(
            f"The weights are packed ({', '.join(packed)}), which Greenroom does not run yet. "
            "Choose a bfloat16, float16 or float32 version of the model."
        )
    return ModelFolder(path, config, tensors, weights.left_aside)


def _is_packed(ref: TensorRef) -> bool:
    """True for numbers that mean nothing without a scale kept elsewhere."""
    if ref.dtype not in DTYPE_BYTES or ref.dtype.startswith("F8_"):
        return True
    return ref.dtype[0] in "IU" and ref.name.endswith("weight")


def refuse_packed(config: dict[str, Any]) -> None:
    """Raise ModelError when the config says that the weights are quantised."""
    quantization = next(
        (part["quantization_config"] for part in parts_of(config) if part.get("quantization_config")), None
    )
    if quantization:
        method = quantization.get("quant_method", "an unknown method") if isinstance(quantization, dict) else "yes"
        raise ModelError(
            f"The weights are quantised ({method}), which Greenroom does not run yet. "
            "Choose a bfloat16, float16 or float32 version of the model."
        )


def parts_of(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A config and the configs in it, outer ones first: of text, vision, several models in one."""
    yield config
    inner = [part for name, part in config.items() if name.endswith("_config") and isinstance(part, dict)]
    for part in sorted(inner, key=lambda part: part is not config.get("text_config")):  # the text's first
        yield from parts_of(part)


def _refuse_without_safetensors(path: Path) -> None:
    pickles = sorted(file.name for pattern in _PICKLE_PATTERNS for file in path.glob(pattern))
    if pickles:
        raise ModelError(
            f"The folder has only pickle weights ({pickles[0]}), and loading a pickle can run any code inside it. "
            "Choose a safetensors version of the model."
        )
    if any(path.glob("*.gguf")):
        raise ModelError("The folder has only GGUF weights; Greenroom reads safetensors. Choose the original model.")
    raise ModelError(f"{path} has a config.json but no safetensors weights. The download seems incomplete.")


# ------------------------------------------------------------------------------------------- the hub cache


def hub_cache_dir() -> Path:
    """Where huggingface_hub keeps its downloads; follows HF_HUB_CACHE and HF_HOME as it does."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def hub_models() -> list[str]:
    """Names of the models in the hub cache, "owner/name"; none where it cannot be looked into."""
    try:
        cache = hub_cache_dir()
        if not cache.is_dir():
            return []
    except (OSError, RuntimeError):
        return []
    names = sorted(entry.name for entry in cache.glob("models--*") if _has_snapshots(entry))
    return [name.removeprefix("models--").replace("--", "/") for name in names]


def _has_snapshots(repo: Path) -> bool:
    try:
        return (repo / "snapshots").is_dir()
    except OSError:  # somebody else's: listed, and opening it says what is wrong
        return True


def _hub_snapshot(name: str) -> Path | None:
    repo = hub_cache_dir() / ("models--" + name.replace("/", "--"))
    main = repo / "refs" / "main"
    if main.is_file():
        snapshot = repo / "snapshots" / main.read_text("utf-8").strip()  # nothing, after a crash while it was written
        if snapshot.is_dir() and _is_snapshot(snapshot):
            return snapshot
    snapshots = sorted(repo.glob("snapshots/*"), key=lambda entry: entry.stat().st_mtime)
    return snapshots[-1] if snapshots else None


def _is_snapshot(path: Path) -> bool:
    return path.parent.name == "snapshots"
