"""Batches that go through a layer side by side, so that what they all need is read once."""

import threading


class _Stopped(BaseException):
    """The others are not wanted any more."""


class _Batch(threading.Thread):
    """A function that runs while it has its turn, and says what it wants when it gives it back."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job, self.wants, self.error, self.done, self.stopped = job, None, None, False, False
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)

    def run(self):
        self.turn.acquire()
        try:
            if not self.stopped:
                self.job()
        except BaseException as error:  # raised again in the thread that waits
            self.error = error
        self.done = True
        self.back.release()

    def go_on(self):
        """Until it wants something, or is done."""
        self.turn.release()
        self.back.acquire()
        if self.error is not None:
            raise self.error

    def want(self, key):
        self.wants = key
        self.back.release()
        self.turn.acquire()
        if self.stopped:
            raise _Stopped

    def stop(self):
        self.stopped = True
        self.turn.release()
        self.join()


class Turns:
    """`open(key)` is called when every batch wants something or is done, with the least of the keys; then those that
    want it have a turn each, in their order. No two batches run at a time."""

    def __init__(self, open):
        self.open = open

    def run(self, jobs):
        batches = [_Batch(job) for job in jobs]
        try:
            for batch in batches:
                batch.start()
                batch.go_on()
            while waiting := [b for b in batches if not b.done]:
                key = min(b.wants for b in waiting)
                self.open(key)
                for batch in waiting:
                    if batch.wants == key:
                        batch.go_on()
        finally:
            for batch in batches:
                if batch.is_alive():
                    batch.stop()

    @staticmethod
    def want(key):
        """Called by a job: returns when `key` is open."""
        threading.current_thread().want(key)
