"""Calls of the library that report their progress, and that Ctrl+C ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import _stele

Progress = Callable[[int, int], "bool | None"]
# Reads of more bytes run on a second thread, so that Ctrl+C can end them.
_LONG_READ_BYTES = 16 << 20


class Stoppable:
    """A progress function that can cancel its call."""

    def __init__(self, function: Progress | None) -> None:
        self._function = function
        self._stopped = False

    def __call__(self, done: int, total: int) -> bool | None:
        if self._stopped:
            return False
        return None if self._function is None else self._function(done, total)

    def stop(self) -> None:
        self._stopped = True


def interruptible(work: Callable[[], Any], stop: Callable[[], None]) -> Any:
    """Returns work(). If a signal handler raises on the main thread meanwhile, as that of Ctrl+C does, calls stop(), ends
    requests to servers, waits for work() to end, and raises that exception; a second one is raised at once. Python runs signal handlers on
    the main thread alone, and not while it is in C++."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[Any] = []
    errors: list[BaseException] = []
    go, ended = threading.Event(), threading.Event()
    started = cancelled = abandoned = False

    def run() -> None:
        go.wait()
        try:
            if not cancelled:
                results.append(work())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
        finally:
            ended.set()
            if abandoned:
                _stele.stop_requests(False)

    thread = threading.Thread(target=run, name="stele", daemon=True)
    interrupt: BaseException | None = None
    while not ended.is_set():
        try:
            if not started:
                thread.start()
                started = True
            go.set()
            while not ended.wait(0.1):  # the signal may reach another thread; Thread.join() would not go on after one
                pass
        except BaseException as error:  # noqa: BLE001
            if not started:  # unknown
                cancelled = True
                go.set()
                raise
            if interrupt is not None and not ended.is_set():
                abandoned = True  # work() does not end: it may wait for a pipe
                if ended.is_set():
                    _stele.stop_requests(False)
                raise
            interrupt = error
            stop()
            _stele.stop_requests(True)
    if interrupt is not None:
        _stele.stop_requests(False)
    try:
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]
        return results[0]
    finally:
        interrupt = None
        errors.clear()  # their tracebacks refer to the list


def interruptible_read(size: int, read: Callable[[Progress | None], Any], progress: Progress | None) -> Any:
    """Returns read(progress), which reads `size` bytes; if these are many, so that Ctrl+C ends it."""
    if size <= _LONG_READ_BYTES:
        return read(progress)
    stoppable = Stoppable(progress)
    return interruptible(lambda: read(stoppable), stoppable.stop)
