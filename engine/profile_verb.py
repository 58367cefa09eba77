"""``python -m engine profile MODEL show|export|import|clear``: what was learnt about a model, looked at and moved."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from engine.errors import OptionError
from engine.prediction.profile import (
    Profile,
    clear_profile,
    export_profile,
    import_profile,
    profile_path,
    read_profile,
)


def add_profile_verb(subparsers: Any, model_help: str = "") -> None:
    """Add the verb to ``argparse``'s subparsers. model_help: what a model may be called."""
    profile = subparsers.add_parser(
        "profile",
        help="what was learnt about a model's experts: show, export, import or clear it",
        description="What was learnt about a model's experts while it ran: past requests, and fitted predictors.",
    )
    profile.add_argument("model", help=model_help)
    deeds = profile.add_subparsers(required=True, metavar="show|export|import|clear")
    for name, deed, explained in (
        ("show", _show, "print what is known"),
        ("export", _export, "copy it to a file, for another machine"),
        ("import", _import, "take over a file exported elsewhere; it must be of the same model"),
        ("clear", _clear, "forget it"),
    ):
        parser = deeds.add_parser(name, help=explained, description=explained.capitalize() + ".")
        if name in ("export", "import"):
            parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--json", action="store_true", help="print a JSON object")
        parser.set_defaults(verb=deed)


def _signature(options: argparse.Namespace) -> str:
    from engine.models.folder import open_folder, resolve

    return open_folder(resolve(options.model)).signature


def _show(options: argparse.Namespace) -> int:
    signature = _signature(options)
    path = profile_path(signature)
    if not path.exists():
        _say(options, {"signature": signature, "profile": None}, "Nothing was learnt about this model yet.")
        return 0
    facts = _facts(read_profile(path))
    facts["file"] = str(path)
    facts["file_bytes"] = path.stat().st_size
    _say(options, {"signature": signature, "profile": facts}, "\n".join(_lines(facts)))
    return 0


def _export(options: argparse.Namespace) -> int:
    if options.file.is_dir():
        raise OptionError(f"{options.file} is a folder; name the file to write.")
    profile = export_profile(_signature(options), options.file)
    _say(options, {"file": str(options.file), **_facts(profile)}, f"Written to {options.file}.")
    return 0


def _import(options: argparse.Namespace) -> int:
    profile = import_profile(options.file, _signature(options))
    _say(options, _facts(profile), f"Taken over: {_history(_facts(profile))}. It is used from the next load on.")
    return 0


def _clear(options: argparse.Namespace) -> int:
    there = clear_profile(_signature(options))
    _say(options, {"cleared": there}, "Forgotten." if there else "Nothing was learnt about this model yet.")
    return 0


def _facts(profile: Profile) -> dict[str, Any]:
    return {
        "layers": profile.shape.layers,
        "experts": profile.shape.experts,
        "top_k": profile.shape.top_k,
        "requests": profile.requests,
        "tokens_learnt": profile.tokens_learnt,
        "accuracy": profile.accuracy,
        "saved": profile.saved,
        "bytes": profile.nbytes,
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    rows = [
        ("experts", f"{facts['layers']} layers x {facts['experts']}, {facts['top_k']} per token"),
        ("history", _history(facts)),
    ]
    rows += [(name, f"fitted to {tokens:,} tokens") for name, tokens in facts["tokens_learnt"].items()]
    for name, shares in facts["accuracy"].items():
        told = ", ".join("-" if share is None else f"{share:.1%}" for share in shares)
        rows.append((f"{name}, right", f"{told} of slots, 1, 2, ... layers ahead"))
    rows += [("saved", facts["saved"]), ("file", f"{facts['file']}, {facts['file_bytes'] / 1e6:.1f} MB")]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _history(facts: dict[str, Any]) -> str:
    requests = facts["requests"]
    kept = requests.get("decode", 0)
    return f"{kept:,} past request{'' if kept == 1 else 's'} ({requests.get('prefill', 0):,} with the prefill)"


def _say(options: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts, ensure_ascii=False, indent=2) if options.json else text)
