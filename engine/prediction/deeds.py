"""What a face can do with a model's saved profile: look at it, export, import and clear it."""

from __future__ import annotations

from pathlib import Path

from engine.errors import OptionError
from engine.messages import ProfileFacts, UseProfile
from engine.prediction.profile import clear_profile, export_profile, import_profile, profile_path, read_profile


def use_profile(command: UseProfile) -> ProfileFacts:
    """Do it, and say what is there now. ProfileError, OptionError or OSError when it cannot be done."""
    file = Path(command.file)
    if command.deed in ("export", "import") and not command.file:
        raise OptionError(f"Name the file to {command.deed}.")
    if command.deed == "export":
        export_profile(command.signature, file)
    elif command.deed == "import":
        import_profile(file, command.signature)
    elif command.deed == "clear":
        clear_profile(command.signature)
    path = profile_path(command.signature)
    if not path.exists():
        return ProfileFacts(command.signature, command.deed, there=False)
    profile = read_profile(path)
    return ProfileFacts(
        command.signature,
        command.deed,
        there=True,
        requests=profile.requests.get("decode", 0),
        tokens=tuple(profile.tokens_learnt.items()),
        accuracy=tuple((name, tuple(shares)) for name, shares in profile.accuracy.items()),
        saved=profile.saved,
        file=str(path),
        bytes=path.stat().st_size,
    )
