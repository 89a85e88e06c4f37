"""Finished records in SQLite: one table, one row a record, named by the SHA-256 of its JSON."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from accel_helpers.errors import StoreError
from accel_helpers.records import SCHEMA, Record
from accel_helpers.store.disk import MAKE_ROOM, MAKE_WRITABLE, refused

R = TypeVar("R", bound=Record)

BUSY_SECONDS = 30.0
"""How long one process waits for another's write, which takes milliseconds."""

_TABLE = """CREATE TABLE records (
    position INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    model TEXT,
    created TEXT NOT NULL,
    body TEXT NOT NULL
)"""

# A verdict names no model: it takes its baseline's, so that both are found by one name.
_INSERT = """INSERT INTO records (digest, kind, model, created, body)
VALUES (?, ?, COALESCE(?, (SELECT model FROM records WHERE digest = ?)), ?, ?) ON CONFLICT (digest) DO NOTHING"""


class Database:
    """The records of one store. Every call opens its own connection, so any thread and any process may call.

    Args:
        root: an existing folder that this user may write.

    Raises:
        StoreError: the file is damaged, of another schema, or cannot be written. It is left as it was.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / "records.db"
        self._create()

    def add(self, record: Record) -> str:
        """Keep a record; returns its digest once it would survive a kill or a power cut."""
        model, baseline = getattr(record, "model", None), getattr(record, "baseline", None)
        created = datetime.now(UTC).isoformat()
        with self._connected() as connection:
            connection.execute(_INSERT, (record.digest, type(record).__name__, model, baseline, created, record.to_json()))
        return record.digest

    def get(self, kind: type[R], digest: str) -> R:
        """The one record of a kind whose digest begins so."""
        if not re.fullmatch("[0-9a-f]{1,64}", digest):
            raise StoreError(f"{digest!r} is not the beginning of a digest.", "Give hexadecimal digits, as they were printed.")
        with self._connected() as connection:
            rows = connection.execute(
                "SELECT digest, body FROM records WHERE kind = ? AND digest >= ? AND digest < ? LIMIT 2",
                (kind.__name__, digest, f"{digest}g"),  # g follows the last hexadecimal digit
            ).fetchall()
        if not rows:
            raise StoreError(f"The store {self.path} holds no {kind.__name__} {digest}.", "Check the digest, or measure again.")
        if len(rows) > 1:
            raise StoreError(f"Several digests of a {kind.__name__} begin with {digest}.", "Give more of its digits.")
        return self._record(kind, *rows[0])

    def latest(self, kind: type[R], model: str | None, limit: int) -> list[R]:
        """Records of a kind, the last one added first."""
        with self._connected() as connection:
            rows = connection.execute(
                "SELECT digest, body FROM records WHERE kind = ? AND model IS COALESCE(?, model) ORDER BY position DESC LIMIT ?",
                (kind.__name__, model, limit),
            ).fetchall()
        return [self._record(kind, *row) for row in rows]

    def _record(self, kind: type[R], digest: str, body: str) -> R:
        if hashlib.sha256(body.encode()).hexdigest() != digest:
            raise self._damaged(f"record {digest} is not what was written")
        return kind.from_json(body)

    def _create(self) -> None:
        with self._connected(mode="rwc", any_schema=True) as connection:
            version = self._version(connection)
            if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                connection.execute("PRAGMA journal_mode = WAL")  # readers and one writer do not wait for one another
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
                connection.execute("COMMIT")
            elif version != SCHEMA:
                raise self._other_schema(version)

    @contextmanager
    def _connected(self, mode: str = "rw", any_schema: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            # Mode rw never creates: a database deleted under a running process is an error, not an empty one.
            opened = sqlite3.connect(f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            with closing(opened) as connection:
                # A commit in the write-ahead log survives a killed process under any setting, because the kernel holds its bytes.
                # FULL flushes the log at each commit too, so that it survives a power cut: milliseconds, against minutes of measuring.
                connection.execute("PRAGMA synchronous = FULL")
                if not any_schema and (version := self._version(connection)) != SCHEMA:
                    raise self._other_schema(version)
                yield connection
        except sqlite3.Error as error:
            raise self._explain(error) from error

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _other_schema(self, version: int) -> StoreError:
        if version > SCHEMA:
            what = f"{self.path} was written by a newer version of this package: schema {version}, where this one reads {SCHEMA}."
            return StoreError(what, "Update this package, or set ACCEL_STORE to another folder.")
        what = f"{self.path} is not a record database of schema {SCHEMA} (found {version}); it was left as it is."
        return StoreError(what, "Move it aside, or set ACCEL_STORE to another folder.")

    def _damaged(self, reason: str) -> StoreError:
        step = f"Copy it, salvage it with `sqlite3 {self.path.name} .recover`, then move it aside: a new one is begun."
        return StoreError(f"The record database {self.path} is damaged ({reason}); it was left as it is.", step)

    def _explain(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return self._damaged(str(error))
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return refused(self.path.parent, str(error), MAKE_WRITABLE)
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return refused(self.path.parent, str(error), MAKE_ROOM)
        if code.startswith("SQLITE_BUSY"):
            return StoreError(
                f"Another process has held {self.path} for over {BUSY_SECONDS:.0f} s.", "Wait for it or stop it, then try again."
            )
        return StoreError(
            f"The record database {self.path} cannot be used: {error}.", "Check the disk, or set ACCEL_STORE to another folder."
        )
