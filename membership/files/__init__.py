"""Files that must survive a power cut or a failing disk: the system calls they need, real ones and simulated ones."""

from membership.files.system_calls import (
    SYSTEM,
    FileStatus,
    FileSystemStatus,
    SystemCalls,
    read_at,
    read_file,
    replace_file,
    replace_file_on,
    sync_directory,
    write_at,
)

__all__ = [
    "SYSTEM",
    "FileStatus",
    "FileSystemStatus",
    "SystemCalls",
    "read_at",
    "read_file",
    "replace_file",
    "replace_file_on",
    "sync_directory",
    "write_at",
]
