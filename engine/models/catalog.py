"""Models that could be loaded: the demo, the hub cache, the user's folders; and why one cannot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from engine.errors import GreenroomError, explain
from engine.messages import ModelSummary
from engine.models import demo, hub
from engine.models.folder import PROCESSORS_TEMPLATE, ModelFolder, hub_models, open_folder, resolve

log = logging.getLogger("greenroom.models")


def find_models(folders: Sequence[str] = ()) -> tuple[ModelSummary, ...]:
    """Everything usable or nearly so: the demo first, then the hub cache, then ``folders`` and their subfolders."""
    sources = ["demo", *hub_models()]
    for folder in folders:
        sources.extend(_models_in(folder))
    return tuple(summarize(source) for source in dict.fromkeys(sources))


def _models_in(folder: str) -> list[str]:
    try:
        path = Path(folder).expanduser()
        if (path / "config.json").is_file() or not path.is_dir():
            return [str(path)]
        return sorted(str(entry.parent) for entry in path.glob("*/config.json")) or [str(path)]
    except (OSError, RuntimeError):  # not for us to see, or nobody's home: opening it says so
        return [folder]


def summarize(source: str) -> ModelSummary:
    """What ``source`` is, from config and headers; ``problem`` says why it cannot be used."""
    name = "Greenroom demo" if source == "demo" else Path(source).name
    folder: ModelFolder | None = None
    try:
        if source == "demo" and not demo.is_built():
            return ModelSummary(source, name, built=False)
        folder = open_folder(resolve(source))
        return _summary(source, folder)
    except Exception as error:  # one that nobody foresaw must not hide the other models
        if not isinstance(error, GreenroomError):
            log.exception("%s could not be looked at", source)
        family = folder.family if folder else ""
        return _unusable(source, folder.name if folder else name, explain(error), family)


def _unusable(source: str, name: str, problem: str, family: str) -> ModelSummary:
    try:
        partial = hub.is_partial(source)
    except OSError:
        partial = False
    if not partial:
        return ModelSummary(source, name, problem=problem, family=family)
    return ModelSummary(source, source, problem=f"Its download is not complete. {problem}", family=family, partial=True)


def _summary(source: str, folder: ModelFolder) -> ModelSummary:
    from engine.models.index import build_index  # heavy: transformers
    from engine.models.skeleton import load_config, make_skeleton

    skeleton = make_skeleton(load_config(folder))
    index = build_index(folder, skeleton, skeleton.meta_model())
    dtypes = [ref.dtype for ref in index.tensors]
    return ModelSummary(
        source,
        folder.name,
        family=folder.family,
        layers=len(index.modules),
        experts=max(module.num_experts for module in index.modules),
        top_k=skeleton.top_k,
        dtype={"F32": "float32", "BF16": "bfloat16", "F16": "float16"}.get(max(set(dtypes), key=dtypes.count), "other"),
        total_bytes=index.total_bytes,
        expert_bytes=index.stored_bytes(),
        license=_license(folder.path),
        has_template=_has_template(folder.path),
        notes=folder.notes,
    )


def _license(path: Path) -> str:
    """The ``license:`` line of the model card's front matter, "" when there is none."""
    try:
        with (path / "README.md").open(encoding="utf-8", errors="replace") as card:
            if card.readline().strip() != "---":
                return ""
            for line in card:
                if line.startswith("license:"):
                    return line.partition(":")[2].strip().strip("'\"")
                if line.strip() == "---":
                    break
    except OSError:
        pass
    return ""


def _has_template(path: Path) -> bool:
    if any((path / name).is_file() for name in ("chat_template.jinja", PROCESSORS_TEMPLATE)):
        return True
    try:
        return '"chat_template"' in (path / "tokenizer_config.json").read_text("utf-8")
    except (OSError, ValueError):
        return False
