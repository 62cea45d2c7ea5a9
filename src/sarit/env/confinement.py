"""Confines this process: what it has not got before, it cannot get any more.

A process that runs code of others, such as a query, calls `confine` when it has loaded all that it needs.  From then on
it can compute, use the memory that it is allowed, start threads, and read and write the descriptors that are open.  It
can open no file and no socket, start no process, and signal no other one.

*Limits* (setrlimit), on every system, take away memory, processor seconds, growing files, core dumps, and any further
descriptor: without one no file is opened and no socket made.

*A filter of system calls* (seccomp), on Linux with x86_64 or aarch64, takes away the rest: it is a list of calls that
are allowed, and all others fail with EPERM.  The filter holds for all threads, the present ones too, and cannot be
removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import platform
import resource
import signal
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# prctl(2)
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
# seccomp(2): of all threads; the call returns 0, or the thread that cannot take the filter.
_SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_TSYNC: Final = 1
_RETURN_ALLOW: Final = 0x7FFF0000
_RETURN_ERRNO: Final = 0x00050000
# Classic BPF: load a word of `struct seccomp_data`, compare, return.
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_X32_CALLS: Final = 0x40000000  # the second table of calls that x86_64 has

_PROT_EXEC: Final = 4
_CLONE_THREAD: Final = 0x00010000


@dataclass(frozen=True, slots=True)
class Architecture:
    """The numbers of one processor's system calls.  `audit`: its number in a filter; `seccomp`: of that call.

    `allowed`: without a condition."""

    audit: int
    seccomp: int
    clone: int
    clone3: int
    mmap: int
    mprotect: int
    tgkill: int
    allowed: Mapping[str, int]


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(
        0xC000003E, 317, 56, 435, 9, 10, 234,
        {
            "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "munmap": 11, "brk": 12,
            "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "readv": 19, "writev": 20, "select": 23,
            "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35, "getpid": 39, "exit": 60, "uname": 63,
            "gettimeofday": 96, "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102,
            "getgid": 104, "geteuid": 107, "getegid": 108, "sigaltstack": 131, "gettid": 186, "time": 201,
            "futex": 202, "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
            "clock_nanosleep": 230, "exit_group": 231, "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239,
            "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "getcpu": 309, "getrandom": 318, "membarrier": 324,
            "rseq": 334,
        },
    ),
    "aarch64": Architecture(
        0xC00000B7, 277, 220, 435, 222, 226, 131,
        {
            "close": 57, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pselect6": 72, "ppoll": 73,
            "fstat": 80, "exit": 93, "exit_group": 94, "futex": 98, "set_robust_list": 99, "nanosleep": 101,
            "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123,
            "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134,
            "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "uname": 160, "getrlimit": 163, "getrusage": 165,
            "getcpu": 168, "gettimeofday": 169, "getpid": 172, "getuid": 174, "geteuid": 175, "getgid": 176,
            "getegid": 177, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216, "madvise": 233,
            "mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237, "getrandom": 278, "membarrier": 283, "rseq": 293,
        },
    ),
}  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def end_with_parent() -> None:
    """Have the system kill this process when the thread that started it ends.  Does nothing but on Linux."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def yield_to_others() -> None:
    """Let other processes have the processor first, and be the first that the system ends when memory lacks."""
    with contextlib.suppress(OSError):
        os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_memory(size: int) -> None:
    """Bound the address space of this process, in bytes beside what it has mapped already.  Raises OSError."""
    mapped = 0
    with contextlib.suppress(OSError):
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _limit(resource.RLIMIT_AS, mapped + size)


def confine(descriptors: int, cpu_seconds: int) -> str:
    """Take from this process all but its memory, `cpu_seconds` and its first `descriptors` descriptors.

    Returns what holds: "system calls" or "limits".  Raises Invalid, OSError: the process is not confined and must end.
    """
    os.closerange(descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    # SIGXCPU first, which says why the process ended, and a second later SIGKILL.
    _limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, descriptors)
    found = ARCHITECTURES.get(platform.machine()) if sys.platform == "linux" else None
    if found is None:
        _limit(resource.RLIMIT_NPROC, 0)
        return "limits"
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if not _filter(found):
        _limit(resource.RLIMIT_NPROC, 0)
        return "limits"
    return "system calls"


def program(found: Architecture, process: int) -> bytes:
    """Return the filter for a processor, and for the process of this number, which may signal itself alone.  Pure."""
    lines = [
        *((_LOAD, 0, 0, _ARCHITECTURE_AT), (_JUMP_EQUAL, 1, 0, found.audit), _refuse(errno.EPERM)),
        *((_LOAD, 0, 0, _NUMBER_AT), (_JUMP_AT_LEAST, 0, 1, _X32_CALLS), _refuse(errno.EPERM)),
    ]
    for number in sorted(found.allowed.values()):
        lines += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _RETURN_ALLOW)]
    # The C library then starts threads by `clone`, whose flags a filter can see.
    lines += [(_JUMP_EQUAL, 0, 1, found.clone3), _refuse(errno.ENOSYS)]
    lines += _if_argument(found.clone, 0, _JUMP_ANY_BIT, _CLONE_THREAD, allowed=True)
    for number in (found.mmap, found.mprotect):
        lines += _if_argument(number, 2, _JUMP_ANY_BIT, _PROT_EXEC, allowed=False)
    lines += _if_argument(found.tgkill, 0, _JUMP_EQUAL, process, allowed=True)
    lines.append(_refuse(errno.EPERM))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _refuse(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _RETURN_ERRNO | number)


def _if_argument(
    number: int, argument: int, compare: int, value: int, *, allowed: bool
) -> Sequence[tuple[int, int, int, int]]:
    """Return the lines that allow a call if one of its arguments compares so (`allowed`), or if not."""
    yes, no = (0, 1) if allowed else (1, 0)
    return (
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument),
        (compare, yes, no, value),
        (_RETURN, 0, 0, _RETURN_ALLOW),
        _refuse(errno.EPERM),
    )


def _filter(found: Architecture) -> bool:
    """Install the filter.  Returns whether the system has such filters.  Raises OSError."""
    lines = program(found, os.getpid())
    given = _Program(len(lines) // 8, lines)
    done = _libc().syscall(
        found.seccomp, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(given)
    )  # fmt: skip
    if done == 0:
        return True
    number = ctypes.get_errno()
    if done < 0 and number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, f"the filter of system calls was not installed: {os.strerror(number) or done}")


def _prctl(option: int, value: int) -> None:
    if _libc().prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit for good; `hard`: None: as the soft one.  Raises Invalid."""
    before = resource.getrlimit(kind)[1]
    most = (1 << 62) if before == resource.RLIM_INFINITY else before
    try:
        resource.setrlimit(kind, (min(soft, most), min(soft if hard is None else hard, most)))
    except ValueError as error:
        raise Invalid(f"a limit of this process cannot be set: {error}") from None
