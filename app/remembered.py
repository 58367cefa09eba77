"""How each model was loaded the last time: the start of the next load, in the picker and when the program starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from app.dialogs.budget import AUTO, slots_of
from engine.messages import (
    COMPUTE_ON_MISS,
    KEEP_PAST,
    POLICIES,
    PRECISIONS,
    PREDICTORS,
    PREFETCH,
    READ_MODES,
    LoadModel,
)

if TYPE_CHECKING:
    from app.settings import Settings

_NAMES: dict[str, Mapping[Any, str]] = {
    "policy": POLICIES,
    "predictor": PREDICTORS,
    "prefetch": PREFETCH,
    "reads": READ_MODES,
    "dtype": PRECISIONS,
    "compute_on_miss": COMPUTE_ON_MISS,
    "keep_past": KEEP_PAST,
}
_USED = "used"


def preferred(settings: Settings, source: str) -> LoadModel:
    """A model that nobody chose anything for: as the preferences say."""
    return LoadModel(
        source,
        policy=settings.last_policy,
        threads=int(settings.threads),
        predictor=settings.predictor,
        prefetch=settings.prefetch,  # type: ignore[arg-type]
        reads=settings.reads,  # type: ignore[arg-type]
        keep_past=settings.keep_past,
    )


def remembered(settings: Settings, source: str) -> LoadModel:
    """How ``source`` was loaded the last time; what was not chosen for it is as the preferences say."""
    stored: dict[str, Any] = chosen_for(settings, source)
    if source not in settings.model_loads and source == settings.last_source:  # of a version that kept only the last
        stored = {
            "experts": settings.last_experts,
            "context": int(settings.last_context),
            "device": settings.last_device,
            "dtype": settings.last_dtype,
        }
    return replace(preferred(settings, source), **stored)


def chosen_for(settings: Settings, source: str) -> dict[str, Any]:
    """The options that were chosen for this model; what is stored and means nothing is left out."""
    plain, stored = asdict(LoadModel(source)), settings.model_loads.get(source, {})
    return {name: value for name, value in stored.items() if _means_something(plain, name, value)}


def _means_something(plain: dict[str, Any], name: str, value: Any) -> bool:
    if name in _NAMES:
        return isinstance(value, str) and value in _NAMES[name]
    if name == "experts":
        return isinstance(value, str) and (value == AUTO or slots_of(value, 100, 1) is not None)
    known = name in plain and name != "source" and type(value) is type(plain[name])
    return known and (not isinstance(value, int) or value >= 0)


def choose(settings: Settings, command: LoadModel) -> None:
    """Keep what ``command`` has otherwise than the preferences say: a later change of these holds for the rest."""
    plain = asdict(preferred(settings, command.source))
    differs: dict[str, Any] = {name: value for name, value in asdict(command).items() if value != plain[name]}
    used = settings.model_loads.get(command.source, {}).get(_USED)
    if used is not None:
        differs[_USED] = used
    settings.model_loads = {**settings.model_loads, command.source: differs}


def remember(settings: Settings, command: LoadModel) -> None:
    """``command`` was carried out just now."""
    choose(settings, command)
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    loads = settings.model_loads
    settings.model_loads = {**loads, command.source: loads[command.source] | {_USED: when}}


def follow_preferences(settings: Settings, source: str) -> None:
    """Forget what was chosen for this model where the preferences have a say."""
    asked = {"policy", "threads", "predictor", "prefetch", "reads", "keep_past"}
    kept = {name: value for name, value in settings.model_loads.get(source, {}).items() if name not in asked}
    settings.model_loads = {**settings.model_loads, source: kept}


def last_used(settings: Settings, source: str) -> datetime | None:
    """When ``source`` was last loaded; None: never, or nobody knows."""
    try:
        return datetime.fromisoformat(settings.model_loads.get(source, {}).get(_USED, ""))
    except (TypeError, ValueError):
        return None
