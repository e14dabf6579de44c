"""A file system in memory that behaves as badly as a real one may: the system calls of `membership.files`.

One instance is the disk of one host. It answers as the kernel does, errors included. What was written and not synced
is in a page cache: a power cut keeps or drops each page by chance, torn between sectors, and a file's size with it.
Entries of directories (a file made, renamed, removed) are kept or dropped as well until the directory itself is synced.
Any call can fail, and between any two the power can go (`fault`); the disk fills up, with or without `statvfs` saying
so; a sync takes time. Everything is drawn from the generator given, so that a run is repeated by its seed.

It promises no more than POSIX and the usual file systems do: a sync of a file does not make its name durable, names of
different files become durable in any order, and what a failed sync was to write is lost though it can still be read.
A rename is atomic, and a sector is never torn.
Source: T. S. Pillai et al., *All File Systems Are Not Created Equal*, OSDI 2014 (what a crash may leave);
A. Rebello et al., *Can Applications Recover from fsync Failures?*, USENIX ATC 2020 (what a failed sync leaves).
"""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

PAGE: Final = 4096
SECTOR: Final = 512
UMASK: Final = 0o022
CHANGING: Final = frozenset(
    ("create", "pwrite", "ftruncate", "posix_fallocate", "fsync", "fdatasync", "replace", "unlink", "mkdir")
)
"""Operations after which a power cut may leave something else than before."""

OPERATIONS: Final = (*sorted(CHANGING), "close", "fstat", "listdir", "open", "pread", "stat", "statvfs")

_UNLIMITED: Final = 1 << 50
_MODES: Final = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_FLAGS: Final = _MODES | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_CLOEXEC | os.O_DIRECTORY


class PowerCut(BaseException):
    """The host lost power: no code of it runs on. Whoever simulates the host catches it."""


Fault = Callable[[str, str], int | PowerCut | None]
"""Asked before each call (operation, path): the number of the error it ends with, or that the power goes first.

An operation is the name of the call, but "create" for an `open` that makes the file or cuts it.
"""


class Status(NamedTuple):
    """What `stat` says."""

    st_ino: int
    st_mode: int
    st_size: int


class DiskStatus(NamedTuple):
    """What `statvfs` says."""

    f_frsize: int
    f_blocks: int
    f_bavail: int


def fail(error: int, *operations: str, path: str = "", after: int = 0) -> Fault:
    """A fault for one call: the one `after` so many of these operations on paths that contain `path`."""
    left = after

    def ask(operation: str, at: str) -> int | None:
        nonlocal left
        if left < 0 or operation not in operations or path not in at:
            return None
        left -= 1
        return error if left < 0 else None

    return ask


def first_of(faults: Iterable[Fault]) -> Fault:
    """All of them; where several would strike, the first one does."""
    chosen = tuple(faults)
    return lambda operation, path: next(
        (found for fault in chosen if (found := fault(operation, path)) is not None), None
    )


def cut_after(changes: int) -> Fault:
    """A fault that cuts the power, once, after so many calls that change something."""
    left = changes

    def ask(operation: str, at: str) -> PowerCut | None:
        nonlocal left
        if left < 0 or operation not in CHANGING:
            return None
        left -= 1
        return PowerCut(f"before {operation} of {at}") if left < 0 else None

    return ask


@dataclass(slots=True, eq=False)
class _File:
    number: int
    mode: int
    content: bytearray = field(default_factory=bytearray)
    """As the host sees it."""
    durable_size: int = 0
    on_disk: dict[int, bytes] = field(default_factory=dict)
    """Of pages that differ from it, what the disk has; it is cut at the durable size."""
    dirty: set[int] = field(default_factory=set)
    """Of those, the ones that the next sync writes."""

    def touch(self, start: int, end: int, rng: random.Random) -> None:
        """The pages of these bytes are about to change."""
        content, on_disk, dirty = self.content, self.on_disk, self.dirty
        for page in range(start // PAGE, -(-end // PAGE)):
            # The kernel may have written a dirty page meanwhile.
            if page not in on_disk or (page in dirty and rng.random() < 0.25):
                on_disk[page] = bytes(content[page * PAGE : (page + 1) * PAGE])
            dirty.add(page)

    def write(self, data: bytes | memoryview, offset: int, rng: random.Random) -> None:
        size, end = len(self.content), offset + len(data)
        self.touch(min(offset, size), end, rng)
        if offset > size:
            self.content.extend(bytes(offset - size))
        self.content[offset:end] = data

    def resize(self, size: int, rng: random.Random) -> None:
        former = len(self.content)
        self.touch(min(size, former), max(size, former), rng)
        if size < former:
            del self.content[size:]
        else:
            self.content.extend(bytes(size - former))

    def sync(self) -> None:
        for page in self.dirty:
            del self.on_disk[page]
        self.dirty.clear()
        self.durable_size = len(self.content)

    def fail_sync(self, rng: random.Random) -> None:
        """Some pages were written; the others count as clean from now on, and are not on the disk."""
        for page in sorted(self.dirty):
            if rng.random() < 0.25:
                del self.on_disk[page]
        self.dirty.clear()

    def lose_power(self, rng: random.Random, share: float) -> None:
        """`share`: of the pages that were not synced, and reach the disk."""
        sizes = sorted((self.durable_size, len(self.content)))
        size = rng.choice(sizes)
        if len(self.content) > self.durable_size and rng.random() < 0.5:
            size = rng.randint(*sizes)
        seen = len(self.content)
        self.content.extend(bytes(max(0, size - seen)))
        for page, former in sorted(self.on_disk.items()):
            start, end = page * PAGE, min(size, (page + 1) * PAGE)
            if start < end:
                # Blocks that were cut off are nobody else's before the size is durable.
                is_fresh = page in self.dirty and start < seen
                fresh = bytes(self.content[start:end]) if is_fresh else former
                self.content[start:end] = _torn(former, fresh, end - start, rng, share)
        del self.content[size:]
        self.on_disk.clear()
        self.dirty.clear()
        self.durable_size = size

    def blocks(self) -> int:
        return -(-len(self.content) // PAGE)


def _torn(former: bytes, fresh: bytes, length: int, rng: random.Random, share: float) -> bytes:
    """What a power cut leaves of a page that was to become another."""
    is_new = not former
    former = former.ljust(length, b"\0")[:length]
    if former == fresh or rng.random() < share:
        return fresh.ljust(length, b"\0")[:length]
    if rng.random() < 0.5:
        return former
    if is_new and rng.random() < 0.2:
        return rng.randbytes(length)  # what was in the block before
    sectors = range(0, length, SECTOR)
    return b"".join(rng.choice((former, fresh))[start : start + SECTOR] for start in sectors)


@dataclass(slots=True, eq=False)
class _Directory:
    number: int
    mode: int
    entries: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)


_Node = _File | _Directory


class _Entry(NamedTuple):
    """A name in a directory, and what it stands for from now on."""

    directory: _Directory
    name: str
    node: _Node | None

    @property
    def key(self) -> tuple[int, str]:
        return self.directory.number, self.name


@dataclass(slots=True)
class _Descriptor:
    path: str
    node: _Node
    access: int


class _Numbers:
    """Of inodes: none twice, on a disk and its copies."""

    def __init__(self, first: int) -> None:
        self._last = first

    def next(self) -> int:
        self._last += 1
        return self._last


class SimulatedFiles:
    """The files of one host, and what a test or a simulator does to them."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._numbers = _Numbers(rng.getrandbits(32))
        self._root = self._new_directory(0o755)
        self._pending: list[tuple[_Entry, ...]] = []
        """Changes of directories that are not durable, in order; entries of one stand or fall together."""
        self._descriptors: dict[int, _Descriptor] = {}
        self._next_descriptor = 3
        self.is_on = True
        """While the power is off every call ends with PowerCut."""
        self.fault: Fault | None = None
        self.capacity: int | None = None
        """Bytes of the disk, of which every file takes whole pages; None: no limit."""
        self.quota: int | None = None
        """The same, but `statvfs` does not show it, and the error is EDQUOT."""
        self.most_files: int | None = None
        """So many files and directories, which `statvfs` does not show either."""
        self.broken = False
        """Every call that would change something on the disk fails."""
        self.is_read_only = False
        """As a kernel makes a file system that it does not trust any more."""
        self.short_writes = 0.0
        """Share of writes that take only a part of their bytes."""
        self.sync_seconds = 0.0
        """How long a sync takes, for `busy_seconds`: the file system itself cannot wait."""
        self.busy_seconds = 0.0
        """How long all syncs up to now have taken."""
        self.changes = 0
        """Calls made that change something."""

    # The system calls.

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        if flags & ~_FLAGS:
            raise ValueError(f"flags {flags & ~_FLAGS:#o} of open are not simulated")
        access = flags & _MODES
        self._check_power()
        parent, name = self._parent(path)
        node = parent.entries.get(name) if name else parent
        creates = node is None and bool(flags & os.O_CREAT)
        self._begin("create" if creates or flags & os.O_TRUNC else "open", path)
        if node is None:
            node = self._create(path, parent, name, flags, mode)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            _fail(errno.EEXIST, path)
        elif isinstance(node, _Directory):
            if access != os.O_RDONLY or flags & os.O_CREAT:
                _fail(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY:
            _fail(errno.ENOTDIR, path)
        elif flags & os.O_TRUNC:
            node.resize(0, self._random)
        number = self._next_descriptor
        self._next_descriptor += 1
        self._descriptors[number] = _Descriptor(path, node, access)
        return number

    def _create(self, path: str, parent: _Directory, name: str, flags: int, mode: int) -> _File:
        if not flags & os.O_CREAT:
            _fail(errno.ENOENT, path)
        if flags & os.O_DIRECTORY:
            _fail(errno.EINVAL, path)
        self._check_files(path)
        file = _File(self._numbers.next(), stat.S_IFREG | mode & 0o777 & ~UMASK)
        self._change(_Entry(parent, name, file))
        return file

    def close(self, fd: int, /) -> None:
        descriptor = self._descriptor(fd)
        del self._descriptors[fd]
        self._begin("close", descriptor.path)

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        descriptor = self._descriptor(fd)
        self._begin("pread", descriptor.path)
        if descriptor.access == os.O_WRONLY:
            _fail(errno.EBADF, descriptor.path)
        if length < 0 or offset < 0:
            _fail(errno.EINVAL, descriptor.path)
        if isinstance(descriptor.node, _Directory):
            _fail(errno.EISDIR, descriptor.path)
        with memoryview(descriptor.node.content) as content:
            return bytes(content[offset : offset + length])

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        file = self._writable("pwrite", fd, errno.EBADF)
        path = self._descriptors[fd].path
        if offset < 0:
            _fail(errno.EINVAL, path)
        if self.short_writes and len(data) > 1 and self._random.random() < self.short_writes:
            data = data[: self._random.randint(1, len(data) - 1)]
        if not data:
            return 0
        data = data[: self._fitting(file, offset, len(data), path)]
        file.write(data, offset, self._random)
        return len(data)

    def fstat(self, fd: int, /) -> Status:
        descriptor = self._descriptor(fd)
        self._begin("fstat", descriptor.path)
        return _status(descriptor.node)

    def ftruncate(self, fd: int, length: int, /) -> None:
        file = self._writable("ftruncate", fd, errno.EINVAL)
        if length < 0:
            _fail(errno.EINVAL, self._descriptors[fd].path)
        file.resize(length, self._random)

    def posix_fallocate(self, fd: int, offset: int, length: int, /) -> None:
        file = self._writable("posix_fallocate", fd, errno.EBADF)
        path = self._descriptors[fd].path
        if offset < 0 or length <= 0:
            _fail(errno.EINVAL, path)
        if self._fitting(file, offset, length, path) < length:
            _fail(errno.ENOSPC, path)
        if offset + length > len(file.content):
            file.resize(offset + length, self._random)

    def fsync(self, fd: int, /) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int, /) -> None:
        self._sync("fdatasync", fd)

    def _sync(self, operation: str, fd: int) -> None:
        descriptor = self._descriptor(fd)
        node = descriptor.node
        self.busy_seconds += self.sync_seconds
        try:
            self._begin(operation, descriptor.path)
        except OSError:
            if isinstance(node, _File):
                node.fail_sync(self._random)
            raise
        if isinstance(node, _File):
            node.sync()
        else:
            self._make_durable(node)

    def replace(self, src: str, dst: str, /) -> None:
        self._begin("replace", dst)
        source, source_name = self._parent(src)
        target, target_name = self._parent(dst)
        if not source_name or not target_name:
            _fail(errno.EBUSY, src)
        node = source.entries.get(source_name)
        former = target.entries.get(target_name)
        if node is None:
            _fail(errno.ENOENT, src)
        if isinstance(node, _Directory) and target in _directories(node):
            _fail(errno.EINVAL, src)
        if isinstance(former, _Directory) and source in _directories(former):
            _fail(errno.ENOTEMPTY, dst)
        if node is former:
            return
        if isinstance(node, _Directory):
            if isinstance(former, _File):
                _fail(errno.ENOTDIR, dst)
            if former is not None and former.entries:
                _fail(errno.ENOTEMPTY, dst)
        elif isinstance(former, _Directory):
            _fail(errno.EISDIR, dst)
        self._change(_Entry(source, source_name, None), _Entry(target, target_name, node))

    def unlink(self, path: str, /) -> None:
        self._begin("unlink", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name) if name else parent
        if node is None:
            _fail(errno.ENOENT, path)
        if isinstance(node, _Directory):
            _fail(errno.EISDIR, path)
        self._change(_Entry(parent, name, None))

    def mkdir(self, path: str, mode: int = 0o777, /) -> None:
        self._begin("mkdir", path)
        parent, name = self._parent(path)
        if not name or name in parent.entries:
            _fail(errno.EEXIST, path)
        self._check_files(path)
        self._change(_Entry(parent, name, self._new_directory(mode)))

    def listdir(self, path: str, /) -> list[str]:
        self._begin("listdir", path)
        node = self._node(path)
        if isinstance(node, _File):
            _fail(errno.ENOTDIR, path)
        return list(node.entries)

    def stat(self, path: str, /) -> Status:
        self._begin("stat", path)
        return _status(self._node(path))

    def statvfs(self, path: str, /) -> DiskStatus:
        self._begin("statvfs", path)
        self._node(path)
        if self.capacity is None:
            return DiskStatus(PAGE, _UNLIMITED // PAGE, _UNLIMITED // PAGE)
        return DiskStatus(PAGE, self.capacity // PAGE, max(0, self.capacity // PAGE - self._used()))

    @property
    def identity(self) -> int:
        """Of the file system: none that was copied from it, or was made anew, has the same."""
        return self._root.number

    @property
    def used(self) -> int:
        """Bytes of the disk that are in use."""
        return self._used() * PAGE

    # What befalls the host.

    def cut_power(self) -> None:
        """The process is gone, and of what was not synced a part."""
        self.is_on = False
        self._descriptors.clear()
        share = self._random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        self._settle(self._survivors(share))
        for _, file in self._files(self._root, ""):
            file.lose_power(self._random, share)

    def power_on(self) -> None:
        self.is_on = True

    def kill(self) -> None:
        """The process is gone, and the kernel goes on: its files are closed, and no byte is lost."""
        self._descriptors.clear()

    # What an operator does, or decay. All of it is durable at once.

    def copy(self) -> SimulatedFiles:
        """Another disk with the same files, as the host sees them; each is a new inode."""
        other = SimulatedFiles(random.Random(self._random.getrandbits(64)))
        other._numbers = self._numbers
        other._root = other._copy_of(self._root)
        return other

    def snapshot(self) -> SimulatedFiles:
        """As `copy`, of what would be there if the power went off now."""
        left = deepcopy(self)
        left.cut_power()
        left._numbers = self._numbers
        return left.copy()

    def _copy_of(self, directory: _Directory) -> _Directory:
        copy = _Directory(self._numbers.next(), directory.mode)
        for name, node in directory.entries.items():
            if isinstance(node, _Directory):
                copy.entries[name] = self._copy_of(node)
            else:
                content = bytearray(node.content)
                copy.entries[name] = _File(self._numbers.next(), node.mode, content, len(content))
        copy.durable = dict(copy.entries)
        return copy

    def erase(self) -> None:
        """An empty file system is made on the disk; no inode number comes again."""
        self._descriptors.clear()
        self._pending.clear()
        self._root = self._new_directory(0o755)

    def files(self) -> list[str]:
        """The paths of all files, sorted."""
        return sorted(path for path, _ in self._files(self._root, ""))

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return len(self._file(path).content)

    def remove(self, path: str) -> None:
        """A file vanishes, or a directory with all that is in it."""
        parent, name = self._parent(path)
        self._settle(self._pending)
        del parent.entries[name]
        del parent.durable[name]

    def cut(self, path: str, size: int) -> None:
        """Only so many bytes of a file are left."""
        file = self._file(path)
        file.resize(min(size, len(file.content)), self._random)
        file.sync()

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Bit rot."""
        self._file(path).content[offset] ^= 1 << bit

    # Helpers.

    def _begin(self, operation: str, path: str) -> None:
        """What comes before every call's effect; raises what it ends with instead."""
        self._check_power()
        found = None if self.fault is None else self.fault(operation, path)
        if isinstance(found, PowerCut):
            self.cut_power()
            raise found
        if found is not None:
            _fail(found, path)
        if operation in CHANGING:
            if self.broken or self.is_read_only:
                _fail(errno.EIO if self.broken else errno.EROFS, path)
            self.changes += 1

    def _check_power(self) -> None:
        if not self.is_on:
            raise PowerCut("the power is off")

    def _parent(self, path: str) -> tuple[_Directory, str]:
        """The directory that a path lies in, and the name there; an empty name for the root."""
        *folders, name = [part for part in path.split("/") if part not in ("", ".")] or [""]
        directory = self._root
        for folder in folders:
            node = directory.entries.get(folder)
            if not isinstance(node, _Directory):
                _fail(errno.ENOENT if node is None else errno.ENOTDIR, path)
            directory = node
        return directory, name

    def _node(self, path: str) -> _Node:
        parent, name = self._parent(path)
        node = parent.entries.get(name) if name else parent
        if node is None:
            _fail(errno.ENOENT, path)
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        assert isinstance(node, _File), f"{path} is a directory"
        return node

    def _descriptor(self, fd: int) -> _Descriptor:
        self._check_power()
        descriptor = self._descriptors.get(fd)
        if descriptor is None:
            _fail(errno.EBADF, None)
        return descriptor

    def _writable(self, operation: str, fd: int, refusal: int) -> _File:
        descriptor = self._descriptor(fd)
        self._begin(operation, descriptor.path)
        if descriptor.access == os.O_RDONLY or isinstance(descriptor.node, _Directory):
            _fail(refusal, descriptor.path)
        return descriptor.node

    def _new_directory(self, mode: int) -> _Directory:
        return _Directory(self._numbers.next(), stat.S_IFDIR | mode & 0o777 & ~UMASK)

    def _files(self, directory: _Directory, path: str) -> Iterator[tuple[str, _File]]:
        for name, node in directory.entries.items():
            if isinstance(node, _Directory):
                yield from self._files(node, f"{path}/{name}")
            else:
                yield f"{path}/{name}", node

    def _open_files(self) -> Iterator[_File]:
        return (opened.node for opened in self._descriptors.values() if isinstance(opened.node, _File))

    def _used(self) -> int:
        """Pages of all files, those included that have no name any more and are open."""
        files = {file.number: file for _, file in self._files(self._root, "")}
        files.update((file.number, file) for file in self._open_files())
        return sum(file.blocks() for file in files.values())

    def _fitting(self, file: _File, offset: int, length: int, path: str) -> int:
        """How many bytes of a write find room; raises OSError when none does."""
        if offset + length <= file.blocks() * PAGE or (self.capacity is None and self.quota is None):
            return length
        others = self._used() - file.blocks()
        for limit, error in ((self.capacity, errno.ENOSPC), (self.quota, errno.EDQUOT)):
            if limit is None:
                continue
            end = max(limit // PAGE - others, file.blocks()) * PAGE
            if offset >= end:
                _fail(error, path)
            length = min(length, end - offset)
        return length

    def _check_files(self, path: str) -> None:
        if self.most_files is not None:
            directories = list(_directories(self._root))
            if sum(len(directory.entries) for directory in directories) >= self.most_files:
                _fail(errno.ENOSPC, path)

    def _change(self, *entries: _Entry) -> None:
        for directory, name, node in entries:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node
        self._pending.append(entries)

    def _make_durable(self, directory: _Directory) -> None:
        """The entries of a directory, and of others what these follow from."""
        needed: set[tuple[int, str]] = set()
        chosen: list[tuple[_Entry, ...]] = []
        for change in reversed(self._pending):
            keys = {entry.key for entry in change}
            if keys & needed or any(entry.directory is directory for entry in change):
                needed |= keys
                chosen.append(change)
        for change in reversed(chosen):
            _apply(change)
        taken = set(map(id, chosen))
        self._pending = [change for change in self._pending if id(change) not in taken]

    def _survivors(self, share: float) -> list[tuple[_Entry, ...]]:
        """Of the changes that are not durable, those that a power cut leaves: in order, or any but for each name."""
        if self._random.random() < 0.5:
            return self._pending[: self._random.randint(0, len(self._pending))]
        lost: set[tuple[int, str]] = set()
        kept: list[tuple[_Entry, ...]] = []
        for change in self._pending:
            keys = {entry.key for entry in change}
            if keys & lost or self._random.random() >= share:
                lost |= keys
            else:
                kept.append(change)
        return kept

    def _settle(self, changes: Iterable[tuple[_Entry, ...]]) -> None:
        """These changes of directories are durable, and no others were made."""
        for change in changes:
            _apply(change)
        self._pending.clear()
        for directory in _directories(self._root, durable=True):
            directory.entries = dict(directory.durable)


def _apply(change: Iterable[_Entry]) -> None:
    for directory, name, node in change:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def _directories(root: _Directory, *, durable: bool = False) -> Iterator[_Directory]:
    yield root
    for node in (root.durable if durable else root.entries).values():
        if isinstance(node, _Directory):
            yield from _directories(node, durable=durable)


def _status(node: _Node) -> Status:
    return Status(node.number, node.mode, 0 if isinstance(node, _Directory) else len(node.content))


def _fail(error: int, path: str | None) -> NoReturn:
    raise OSError(error, os.strerror(error), path)
