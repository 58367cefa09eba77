"""What a model on the Hugging Face hub is made of. Nothing here runs by itself: only when a person asked for it.

Only what a model needs is looked at: safetensors weights, configs, tokenizer files, and the card for its licence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import DownloadError, ModelError
from engine.models.folder import hub_cache_dir
from engine.models.headers import INDEX_NAME, SINGLE_NAME, choose_weights
from engine.models.hub_talk import TIMEOUT_S, Cancel, address, at_once, endpoint, in_words, refuse_offline, stream

MARKER = "greenroom-download.json"  # in a repository's folder while its download is not complete
_SMALL = 50_000_000  # bytes: more than any config, index or tokenizer has

# besides the weights; everything else in a repository is for other programs
_WANTED = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|preprocessor_config"
    r"|chat_template)\.json|tokenizer\.model|spiece\.model|merges\.txt|vocab\.txt|chat_template\.jinja|README\.md"
)
_FILE = re.compile(r"\w[\w.+-]{0,200}")
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """key: the content's hash and the blob's name: SHA-256 of a large file, git's SHA-1 of a small one."""

    name: str
    size: int
    key: str
    large: bool  # kept by the hub outside of git


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub at one commit: the files that Greenroom would fetch, small ones first."""

    name: str
    commit: str
    files: tuple[HubFile, ...]
    license: str = ""
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def weight_files(self) -> tuple[HubFile, ...]:
        return tuple(file for file in self.files if file.name.endswith(".safetensors"))

    @property
    def has_template(self) -> bool:
        """Whether a template is a file of its own; one inside tokenizer_config.json is found after the download."""
        return any(file.name.startswith("chat_template.") for file in self.files)


def repo_folder(name: str) -> Path:
    """Where the cache keeps a model of this name."""
    return hub_cache_dir() / ("models--" + name.replace("/", "--"))


def is_partial(name: str) -> bool:
    """Whether a download of this model was begun here and did not end."""
    return bool(_NAME.fullmatch(name)) and (repo_folder(name) / MARKER).is_file()


def look_up(name: str, cancelled: Cancel = lambda: False) -> HubModel:
    """Ask the hub what a model is made of. Contacts the network. Raises DownloadError, Cancelled when asked to stop."""
    if not _NAME.fullmatch(name):
        raise DownloadError(f"{name[:100]!r} is no name of a model on the hub; write owner/name, as on its page.")
    refuse_offline()
    with in_words(name):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=endpoint())
        info = at_once(lambda: api.model_info(name, files_metadata=True, timeout=TIMEOUT_S), cancelled)
        commit = str(info.sha)
        if not _HASH.fullmatch(commit):
            raise DownloadError(f"The hub names no commit of {name}; try again later.")
        known = _root_files(info.siblings or ())
        config = _read_json(name, commit, known, "config.json", cancelled)
        weights = _weights(name, commit, known, config, cancelled)
        card = info.card_data.to_dict() if info.card_data else {}
    wanted = [file for file in known.values() if _WANTED.fullmatch(file.name)]
    if SINGLE_NAME not in {file.name for file in weights}:  # beside a single file, an index is of another checkpoint
        wanted += [file for name, file in known.items() if name.endswith(".safetensors.index.json")]
    files = tuple(sorted({*wanted, *weights}, key=lambda file: (file.name.endswith(".safetensors"), file.name)))
    licensed = card.get("license")
    return HubModel(name, commit, files, licensed if isinstance(licensed, str) else "", config)


def _root_files(siblings: Iterable[Any]) -> dict[str, HubFile]:
    """Files beside config.json, by name. What has a name or a hash that could lead out of the cache is left out."""
    files = {}
    for sibling in siblings:
        key = str(sibling.lfs.sha256 if sibling.lfs else sibling.blob_id)
        if _FILE.fullmatch(sibling.rfilename) and _HASH.fullmatch(key):
            files[sibling.rfilename] = HubFile(sibling.rfilename, int(sibling.size or 0), key, sibling.lfs is not None)
    return files


def _weights(
    name: str, commit: str, known: dict[str, HubFile], config: dict[str, Any], cancelled: Cancel
) -> list[HubFile]:
    """The files that a load will read, and no others: the same rule decides."""
    try:
        chosen = choose_weights(known, config) or SINGLE_NAME
    except ModelError as error:
        raise DownloadError(str(error)) from error
    if chosen.endswith(".json"):
        listed = _read_json(name, commit, known, chosen, cancelled).get("weight_map")
        parts = sorted({str(part) for part in listed.values()}) if isinstance(listed, dict) else []
        parts = [part for part in parts if part.endswith(".safetensors")]
    else:
        parts = [chosen]
    absent = [part for part in parts if part not in known]
    if absent or not parts:
        raise DownloadError(
            f"{name} has no usable safetensors weights on the hub ({(absent or [INDEX_NAME])[0]} is missing); "
            "choose another version of the model."
        )
    return [known[part] for part in parts]


def _read_json(name: str, commit: str, known: dict[str, HubFile], file: str, cancelled: Cancel) -> dict[str, Any]:
    if file not in known:
        raise DownloadError(f"{name} has no {file} on the hub: it is no model in the Hugging Face layout.")
    if known[file].size > _SMALL:
        raise DownloadError(f"{file} of {name} has {known[file].size:,} bytes, which is no {file}.")
    text = bytearray()
    for chunk in stream(address(name, commit, file), 0, cancelled=cancelled):
        text += chunk
        if len(text) > _SMALL:
            raise DownloadError(f"The hub sends more of {file} than it has; try again later.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DownloadError(f"{file} of {name} is damaged on the hub ({error}).") from error
    if not isinstance(found, dict):
        raise DownloadError(f"{file} of {name} is damaged on the hub.")
    return found
