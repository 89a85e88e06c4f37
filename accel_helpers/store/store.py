"""Store: records and built artifacts under one folder, shared by every process of this machine."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from accel_helpers.device import store_root
from accel_helpers.errors import AccelError, ArtifactError
from accel_helpers.records import Artifact, Environment, Plan, Record
from accel_helpers.store import disk, folder
from accel_helpers.store.database import Database, R

if TYPE_CHECKING:
    from accel_helpers.engine import Built
    from accel_helpers.models import Model

_log = logging.getLogger(__name__)

LITTLE_ROOM = 1_000_000
"""Bytes of free disk below which a failed build is blamed on the disk: frameworks wrap ENOSPC in errors of their own."""


class Store:
    """Records and built artifacts under one folder.

    ``records.db`` holds the records. ``artifacts/KEY`` holds one built model; it is made in ``building/KEY`` and moved into place when it
    is complete, while the process holds ``locks/KEY.lock``. What lies in ``building`` without a holder was left by a process that died,
    and is removed when a store is opened. ``damaged/KEY`` keeps the last folder that failed its check.

    Args:
        root: where; created when it is not there. By default ``$ACCEL_STORE`` or ``data/store`` of this project.

    Raises:
        StoreError: the folder cannot be written, the disk is full, or the record database is damaged or of another schema.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or store_root()).absolute()
        with disk.explained(self.root):
            for name in (folder.HOME, "building", "damaged", "locks"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        with self._locked("records"):  # switching a new database to a write-ahead log does not bear company
            self._database = Database(self.root)
        self._sweep()

    def add(self, record: Record) -> str:
        """Keep a record. It survives a kill from the moment this returns; adding it again changes nothing.

        Returns:
            The record's digest, which :meth:`get` takes.

        Raises:
            StoreError: the disk is full, read-only or damaged; nothing was added.
        """
        return self._database.add(record)

    def get(self, kind: type[R], digest: str) -> R:
        """The record of that kind and digest; the beginning of a digest is enough where only one begins so.

        Raises:
            StoreError: none, several, or a damaged one.
        """
        return self._database.get(kind, digest)

    def latest(self, kind: type[R], *, model: str | None = None, limit: int = 100) -> list[R]:
        """The records of a kind, the last one added first; of one model where it is named (a verdict's is its baseline's)."""
        return self._database.latest(kind, model, limit)

    def artifact(
        self, model: Model, plan: Plan, environment: Environment, versions: Mapping[str, str], build: Callable[[Path], Built]
    ) -> tuple[Artifact, Path, bool]:
        """The built files for a plan: found and verified, or built now. Of several callers, in any process, one builds.

        Args:
            model: what is built; its fingerprint, not its name, decides what is found.
            plan: its ``build_fields`` decide what is found.
            environment: its ``hardware`` decides what is found.
            versions: the packages that write the files; another version is another artifact.
            build: writes the files into the empty folder it is given.

        Returns:
            The artifact's record (not yet added), its folder, and whether it was found rather than built.

        Raises:
            StoreError: the disk is full or refuses; nothing half-built is left.
            ArtifactError: ``build`` left other files than it says.
            AccelError: whatever ``build`` raises.
        """
        key = folder.artifact_key(model.fingerprint, plan, environment.hardware, versions)
        place = self.root / folder.HOME / key
        with self._locked(key):
            if found := self._found(place):
                return replace(found, model=model.name, plan=plan), place, True
            blank = Artifact(
                model=model.name,
                fingerprint=model.fingerprint,
                plan=plan,
                folder=f"{folder.HOME}/{key}",
                files={},
                size_bytes=0,
                build_seconds=0.0,
                hardware=environment.hardware,
                versions=dict(versions),
            )
            return self._build(blank, build), place, False

    def open(self, artifact: Artifact, environment: Environment | None = None) -> Path:
        """The folder of an artifact, once its manifest and every file's SHA-256 are right. Call it before anything reads the files.

        Args:
            artifact: as :meth:`artifact` or :meth:`get` returned it.
            environment: this machine; given, an artifact of other hardware or of other package versions is refused too.

        Raises:
            ArtifactError: missing, changed, with a file too many, of another schema, of other hardware, of other versions.
            StoreError: the disk refuses.
        """
        if artifact.folder != folder.home_of(artifact):
            raise folder.refusal(Path(artifact.folder), "its record names a folder that is not its own")
        if environment:
            folder.check_machine(artifact, environment)
        place = self.root / artifact.folder
        with disk.explained(self.root):
            stored = folder.verify(place)
        # One set of files serves every batch size, thread count and name; the rest must be the very same build.
        if replace(stored, model=artifact.model, plan=artifact.plan).digest != artifact.digest:
            raise folder.refusal(place, "it was built again since this record was written", "Use the newer record, or measure again.")
        return place

    def artifacts(self) -> list[Artifact]:
        """What is built here, by manifest. Files are not hashed; a folder without a right manifest is left out, with a warning."""
        listed = []
        with disk.explained(self.root):
            for place in sorted((self.root / folder.HOME).iterdir()):
                try:
                    listed.append(folder.read_manifest(place))
                except ArtifactError as error:
                    _log.warning("%s", error)
        return listed

    def _found(self, place: Path) -> Artifact | None:
        with disk.explained(self.root):
            if not os.path.lexists(place):
                return None
            try:
                return folder.verify(place)
            except ArtifactError as error:
                aside = self.root / "damaged" / place.name
                disk.remove(aside)
                place.rename(aside)
                _log.warning("%s Moved to %s and built again.", error.what, aside)
                return None

    def _build(self, blank: Artifact, build: Callable[[Path], Built]) -> Artifact:
        place = self.root / blank.folder
        out = self.root / "building" / place.name
        try:
            with disk.explained(self.root):
                disk.remove(out)
                out.mkdir()
            begun = time.perf_counter()
            with self._blaming_disk(blank.plan):
                built = build(out)
            seconds = time.perf_counter() - begun
            with disk.explained(self.root):
                artifact = self._described(blank, out, built, seconds)
                (out / folder.MANIFEST).write_text(folder.manifest_text(artifact), encoding="utf-8")
                disk.publish(out, place)
            return artifact
        finally:
            with suppress(OSError):
                disk.remove(out)

    @staticmethod
    def _described(blank: Artifact, out: Path, built: Built, seconds: float) -> Artifact:
        files = folder.members(out)
        if files.keys() != set(built.files) or folder.MANIFEST in files:
            what = f"engine {blank.plan.engine} wrote {sorted(files)} and says {sorted(built.files)} ({folder.MANIFEST} is the store's)"
            raise folder.refusal(out, what, "This is a mistake of the engine: its build must name every file it leaves.")
        return replace(
            blank,
            files={name: folder.file_digest(path) for name, path in files.items()},
            size_bytes=sum(path.stat().st_size for path in files.values()),
            build_seconds=seconds,
            report=built.report,
        )

    @contextmanager
    def _blaming_disk(self, plan: Plan) -> Iterator[None]:
        try:
            yield
        except AccelError:
            raise
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            if number in disk.FULL or disk.free_bytes(self.root) < LITTLE_ROOM:
                raise disk.refused(self.root, f"no room to build {plan.label} ({error})", disk.MAKE_ROOM) from error
            raise

    @contextmanager
    def _locked(self, name: str, wait: float = -1) -> Iterator[None]:
        lock = FileLock(self.root / "locks" / f"{name}.lock")
        with disk.explained(self.root):
            lock.acquire(timeout=wait)
        try:
            yield
        finally:
            lock.release()

    def _sweep(self) -> None:
        with disk.explained(self.root):
            leftovers = list((self.root / "building").iterdir())
        for left in leftovers:
            # The kernel drops a dead process's lock: a folder whose lock is free has no builder, whatever its process id does now.
            with suppress(Timeout), self._locked(left.name, wait=0), disk.explained(self.root):
                disk.remove(left)
