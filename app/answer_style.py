"""How answers are to be: system prompt and sampling, from presets, remembered for each model.

What a model has of its own is only what was changed: everything else follows the preset, and the preset "advised"
follows what the model's makers say. So a better default reaches every model that was never touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.settings import Settings
from engine.messages import ModelLoaded, Sampling, Thinking

ADVISED = "advised"
BUILT_IN = (ADVISED, "precise", "balanced", "creative")
MAX_SYSTEM = 100_000  # characters
MAX_NAME = 60
MAX_PRESETS = 200

# field -> lowest and highest value that means something
LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1000),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.5, 2.0),
    "no_repeat_ngram_size": (0, 100),
    "max_tokens": (1, 1_000_000),
    "seed": (0, 2**31 - 1),
    # these have no box: models declare them now and then, and a preset made of such an answer keeps them
    "typical_p": (0.01, 1.0),
    "top_h": (0.0, 1.0),
    "epsilon_cutoff": (0.0, 0.99),
    "eta_cutoff": (0.0, 0.99),
}
WHOLE = ("top_k", "no_repeat_ngram_size", "max_tokens", "seed")  # the others have decimals


@dataclass(frozen=True, slots=True)
class Style:
    """What the next answer is made with."""

    system: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    thinking: bool | None = None  # for a model that has a switch; None: as it does unasked
    languages: tuple[str, str] = ("", "")  # of a text and of its translation, for a model that translates


class AnswerStyle(QObject):
    """The style of the model that is loaded. ``changed`` after every change, whoever made it."""

    changed = Signal()

    def __init__(self, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._model = ""
        self._advised = Sampling()
        self._declared: tuple[str, ...] = ()
        self.rules: tuple[str, ...] = ()  # what the model declares besides, whatever is set here; in words
        self.switch: Thinking = "fixed"  # whether the model's thinking can be switched

    def set_model(self, model: ModelLoaded | None) -> None:
        """Turn to what is remembered for this model; with None, to what holds for new ones."""
        self._model = model.source if model else ""
        self._advised = model.sampling if model else Sampling()
        self._declared = model.declared if model else ()
        self.rules = model.rules if model else ()
        self.switch = model.thinking if model else "fixed"
        self.changed.emit()

    # -------------------------------------------------------------------------------------------- reading

    @property
    def preset(self) -> str:
        """Name of the preset that everything unchanged comes from."""
        name = self._own.get("preset", self._settings.preset)
        return name if isinstance(name, str) and name in self.presets else self._settings.preset

    @property
    def presets(self) -> tuple[str, ...]:
        """All names: the built-in ones, then the user's."""
        return (*BUILT_IN, *(name for name in self._settings.presets if name not in BUILT_IN))

    @property
    def base(self) -> Style:
        """The preset's own values."""
        return self._style_of(self.preset)

    @property
    def style(self) -> Style:
        """The values in use."""
        return _with(self.base, self._own)

    @property
    def declared(self) -> dict[str, float]:
        """What the model itself declares, by field of the sampling."""
        return {field: getattr(self._advised, field) for field in self._declared}

    @property
    def thinking(self) -> bool | None:
        """What to ask of the model's switch; None where nothing was chosen, or it has none."""
        return None if self.switch == "fixed" else self.style.thinking

    @property
    def thinks(self) -> bool:
        """Whether the next answer begins with a thought, as far as the switch says."""
        return self.switch != "off" if self.thinking is None else self.thinking

    def is_changed(self, field: str) -> bool:
        """Whether a field ("system", "temperature", …) differs from its preset."""
        return _value(self.style, field) != _value(self.base, field)

    @property
    def changed_fields(self) -> tuple[str, ...]:
        return tuple(field for field in ("system", *LIMITS) if self.is_changed(field))

    def _style_of(self, preset: str) -> Style:
        most = self._settings.max_tokens
        if preset not in BUILT_IN:
            return _with(Style("", replace(self._advised, max_tokens=most, seed=None)), self._settings.presets[preset])
        own = {
            ADVISED: self._advised,
            "precise": Sampling(temperature=0.0),
            "balanced": Sampling(temperature=0.7, top_p=0.95),
            "creative": Sampling(temperature=1.0, top_p=0.98),
        }[preset]
        if preset != ADVISED or "max_tokens" not in self._declared:
            own = replace(own, max_tokens=most)
        return Style("", own)

    @property
    def _own(self) -> dict[str, Any]:
        styles = self._settings.model_styles
        return styles.get(self._model, styles.get("", {}))  # "": what was set while there was no model

    # ------------------------------------------------------------------------------------------- changing

    def set(self, field: str, value: Any) -> None:
        """Change "system", "thinking", "languages" or a field of the sampling, for this model."""
        own = {name: kept for name, kept in self._own.items() if name != field}
        if value != _value(self.base, field):
            own[field] = value
        self._keep(own)

    def choose(self, preset: str) -> None:
        """Follow another preset; what was changed is forgotten, but what is in no preset: thinking and languages."""
        if preset in self.presets:
            self._follow_preset(preset)

    def reset(self) -> None:
        """Forget everything that this model has of its own: back to what its makers advise."""
        self._follow_preset(ADVISED)

    def switch_thinking(self, on: bool) -> None:
        """Have this model think before it answers, or not."""
        self.set("thinking", None if on == (self.switch != "off") else on)

    def _follow_preset(self, preset: str) -> None:
        stays = {name: value for name, value in self._own.items() if name in ("thinking", "languages")}
        self._keep({"preset": preset, **stays})

    def _keep(self, own: dict[str, Any]) -> None:
        if own != self._own:
            self._settings.model_styles = {**self._settings.model_styles, self._model: own}
            self.changed.emit()

    # -------------------------------------------------------------------------------------------- presets

    def problem_with(self, name: str, instead_of: str = "") -> str:
        """Why a preset cannot have this name, in a sentence; "" when it can."""
        name = name.strip()
        if not name:
            return self.tr("Give the preset a name.")
        if len(name) > MAX_NAME:
            return self.tr("The name is too long: %1 characters at most.").replace("%1", str(MAX_NAME))
        taken = {other.casefold() for other in self.presets if other != instead_of}
        if name.casefold() in taken:
            return self.tr("There is a preset with this name already.")
        if not instead_of and len(self._settings.presets) >= MAX_PRESETS:
            return self.tr("There are %1 presets already; delete one first.").replace("%1", str(MAX_PRESETS))
        return ""

    def save_as(self, name: str) -> None:
        """Make a preset of the values in use, and follow it. The name must be free of problems."""
        name = name.strip()
        style = self.style
        values = {field: _value(style, field) for field in ("system", *LIMITS)}
        self._settings.presets = {**self._settings.presets, name: values}
        self._follow_preset(name)

    def update(self) -> None:
        """Write the values in use into the user's preset that is followed."""
        if self.preset in self._settings.presets:
            self.save_as(self.preset)
            self.changed.emit()

    def rename(self, old: str, new: str) -> None:
        """Give one of the user's presets another name, in its place, for every model that follows it."""
        new = new.strip()
        presets = self._settings.presets
        if old in presets:
            self._settings.presets = {new if name == old else name: values for name, values in presets.items()}
            self._follow(old, new)
            self.changed.emit()

    def delete(self, name: str) -> dict[str, Any]:
        """Remove one of the user's presets, and return what ``restore`` needs. Its values stay in use where they are.

        A model that followed it keeps them as its own changes.
        """
        values = self._settings.presets[name]
        models = {model: own for model, own in self._settings.model_styles.items() if own.get("preset") == name}
        self._settings.presets = {other: kept for other, kept in self._settings.presets.items() if other != name}
        freed = {model: {**values, **own, "preset": ADVISED} for model, own in models.items()}
        self._settings.model_styles = {**self._settings.model_styles, **freed}
        self.changed.emit()
        return {"name": name, "values": values, "models": models}

    def restore(self, deleted: dict[str, Any]) -> None:
        """Take a ``delete`` back."""
        self._settings.presets = {**self._settings.presets, deleted["name"]: deleted["values"]}
        self._settings.model_styles = {**self._settings.model_styles, **deleted["models"]}
        self.changed.emit()

    def _follow(self, old: str, new: str) -> None:
        self._settings.model_styles = {
            model: {**own, "preset": new} if own.get("preset") == old else own
            for model, own in self._settings.model_styles.items()
        }


def in_words(style: AnswerStyle) -> tuple[str, str]:
    """The style in a word or two ("balanced, changed"), and in full."""
    names = {
        ADVISED: style.tr("as advised"),
        "precise": style.tr("precise"),
        "balanced": style.tr("balanced"),
        "creative": style.tr("creative"),
    }
    name = names.get(style.preset, style.preset)
    name = name if len(name) <= 20 else f"{name[:19]}…"
    sampling = style.style.sampling
    facts = [style.tr("temperature %1").replace("%1", f"{sampling.temperature:g}")]
    if sampling.temperature > 0:
        facts.append(style.tr("top-p %1").replace("%1", f"{sampling.top_p:g}"))
        facts += [style.tr("top-k %1").replace("%1", str(sampling.top_k))] if sampling.top_k else []
        facts += [style.tr("min-p %1").replace("%1", f"{sampling.min_p:g}")] if sampling.min_p else []
    repeats = sampling.no_repeat_ngram_size
    facts += [style.tr("no %1 tokens twice").replace("%1", str(repeats))] if repeats else []
    facts.append(style.tr("at most %1 tokens").replace("%1", f"{sampling.max_tokens:,}"))
    details = [", ".join(facts)]
    if style.style.system.strip():
        details.append(style.tr("with a system prompt"))
    changed = style.tr("%1, changed").replace("%1", name) if style.changed_fields else name
    return changed, "; ".join(details)


def declared_in_words(style: AnswerStyle) -> str:
    """What of the values is the model's own, in a sentence; "" when it declares nothing."""
    names = {
        "temperature": style.tr("temperature"),
        "top_p": style.tr("top-p"),
        "top_k": style.tr("top-k"),
        "min_p": style.tr("min-p"),
        "typical_p": style.tr("typical-p"),
        "top_h": style.tr("top-h"),
        "epsilon_cutoff": style.tr("epsilon cutoff"),
        "eta_cutoff": style.tr("eta cutoff"),
        "repetition_penalty": style.tr("repetition penalty"),
        "no_repeat_ngram_size": style.tr("no repeats of"),
        "max_tokens": style.tr("longest answer"),
    }
    declared = style.declared
    facts = [f"{words}\u00a0{declared[name]:,}" for name, words in names.items() if name in declared]
    said = ", ".join((*facts, *style.rules))
    return style.tr("Declared by the model: %1.").replace("%1", said) if said else ""


def _value(style: Style, field: str) -> Any:
    return getattr(style if field in ("system", "thinking", "languages") else style.sampling, field)


def _with(style: Style, values: dict[str, Any]) -> Style:
    """The style with these values, as far as they mean something: a settings file may say anything."""
    good = {field: values[field] for field in LIMITS if field in values and _means_something(field, values[field])}
    system = values.get("system", style.system)
    if not isinstance(system, str) or len(system) > MAX_SYSTEM:
        system = style.system
    if "max_tokens" in good:  # said of the answer, it replaces what the model says of prompt and answer together
        good["max_length"] = 0
    thinking = values.get("thinking", style.thinking)
    languages = values.get("languages", style.languages)  # a list, as settings hold it
    if not (isinstance(languages, list | tuple) and len(languages) == 2 and all(isinstance(c, str) for c in languages)):
        languages = style.languages
    switched = thinking if isinstance(thinking, bool) else None
    return Style(system, replace(style.sampling, **good), switched, (languages[0], languages[1]))


def _means_something(field: str, value: Any) -> bool:
    if field == "seed" and value is None:
        return True
    kind = int if field in WHOLE else int | float
    if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
        return False
    low, high = LIMITS[field]
    return low <= value <= high
