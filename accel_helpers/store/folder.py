"""One artifact's folder: its name, its manifest, and the proof that its files are the ones that were built.

The proof comes before anything deserialises: a model file that was changed on disk can run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from accel_helpers.errors import ArtifactError, StoreError
from accel_helpers.records import SCHEMA, Artifact, Environment, Plan

MANIFEST = "manifest.json"
HOME = "artifacts"

# Parts begin with a letter, a digit or an underscore: so no "..", no absolute path, no hidden file, no empty part.
_PLAIN = re.compile(r"\w[\w.+=@-]*(/\w[\w.+=@-]*)*", re.ASCII)


def artifact_key(fingerprint: str, plan: Plan, hardware: str, versions: Mapping[str, str]) -> str:
    """SHA-256 of all that decides what is built: schema, weights and graph, build fields, hardware, package versions."""
    decides = [SCHEMA, fingerprint, plan.build_fields, hardware, dict(versions)]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def home_of(artifact: Artifact) -> str:
    """The folder, relative to the store, that an artifact belongs in: computed, never read from a file."""
    return f"{HOME}/{artifact_key(artifact.fingerprint, artifact.plan, artifact.hardware, artifact.versions)}"


def manifest_text(artifact: Artifact) -> str:
    """The one text of an artifact's manifest: the record and its digest."""
    return json.dumps({"artifact": artifact.to_dict(), "digest": artifact.digest}, indent=1, sort_keys=True)


def read_manifest(folder: Path) -> Artifact:
    """The artifact that a folder says it holds; its files are not looked at.

    Raises:
        ArtifactError: no manifest, a changed one, one of another schema, or one that belongs elsewhere or names files elsewhere.
    """
    path = folder / MANIFEST
    if folder.is_symlink() or not folder.is_dir() or path.is_symlink() or not path.is_file():
        raise refusal(folder, "it is missing, is a link, or has no manifest")
    text = path.read_bytes().decode(errors="replace")
    try:
        artifact = Artifact.from_dict(json.loads(text)["artifact"])
    except StoreError as error:
        raise refusal(folder, f"its manifest is of another version: {error.what}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise refusal(folder, "its manifest is damaged") from error
    # Comparing the whole text, digest included, leaves no byte of the manifest that can change unseen.
    if text != manifest_text(artifact):
        raise refusal(folder, "its manifest was changed after it was written")
    if artifact.folder != home_of(artifact) or folder.name != Path(artifact.folder).name:
        raise refusal(folder, "its manifest belongs to another folder")
    if odd := [name for name in artifact.files if not is_plain(name)]:
        raise refusal(folder, f"its manifest names {odd[0]!r}, which is not a plain name inside the folder")
    return artifact


def verify(folder: Path) -> Artifact:
    """The artifact in a folder, after every file's SHA-256 was compared with the manifest.

    Raises:
        ArtifactError: what :func:`read_manifest` raises; or a file is missing, changed, a link, or not in the manifest.
    """
    artifact = read_manifest(folder)
    found = members(folder)
    if missing := sorted(artifact.files.keys() - found.keys()):
        raise refusal(folder, f"its file {missing[0]!r} is missing")
    if extra := sorted(found.keys() - artifact.files.keys() - {MANIFEST}):
        raise refusal(folder, f"it holds {extra[0]!r}, which is not in its manifest")
    for name, digest in artifact.files.items():
        if file_digest(found[name]) != digest:
            raise refusal(folder, f"its file {name!r} was changed after it was built")
    return artifact


def members(folder: Path) -> dict[str, Path]:
    """Every file in a folder by its name relative to it, subfolders included.

    Raises:
        ArtifactError: a link, a device, or a name that is not plain.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise refusal(folder, f"{name!r} is a link or not a file")
        if not is_plain(name):
            raise refusal(folder, f"{name!r} is not a plain file name")
        if path.is_file():
            found[name] = path
    return found


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_plain(name: str) -> bool:
    """Whether a name stays inside its folder on any system."""
    return _PLAIN.fullmatch(name) is not None


def check_machine(artifact: Artifact, environment: Environment) -> None:
    """Raise unless an artifact was built on hardware like this and with the packages installed here.

    Raises:
        ArtifactError: other hardware, or another version of a package that wrote it.
    """
    if artifact.hardware != environment.hardware:
        what = f"it was built for other hardware ({artifact.hardware}; here: {environment.hardware}, {environment.cpu})"
        raise refusal(Path(artifact.folder), what, "Build it again on this machine.")
    for package, version in artifact.versions.items():
        if (here := environment.packages.get(package, "none")) != version:
            what = f"it was built with {package} {version}, and {here} is installed here"
            raise refusal(Path(artifact.folder), what, f"Build it again, or install {package}=={version}.")


def refusal(folder: Path, reason: str, next_step: str = "Build it again: the store sets what lies there aside.") -> ArtifactError:
    """The error for an artifact that must not be loaded."""
    return ArtifactError(f"The artifact {folder} is refused: {reason}.", next_step)
