"""Batches that go through a layer side by side, so that what they all need is read once."""

import threading


#: Of a thread that runs a batch: `number`, and `open` if there is no other batch.
_here = threading.local()


class _Stopped(BaseException):
    """The others are not wanted any more."""


class _Batch(threading.Thread):
    """A function that runs while it has its turn, and says what it wants when it gives it back."""

    def __init__(self, number, job):
        super().__init__(daemon=True)
        self.number = number
        self.job, self.wants, self.error, self.done, self.stopped = job, None, None, False, False
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)

    def run(self):
        _here.number, _here.open = self.number, None
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
        if len(jobs) == 1:  # in this thread: another one would have its own memory for products
            _here.number, _here.open = 0, self.open
            return jobs[0]()
        batches = [_Batch(number, job) for number, job in enumerate(jobs)]
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
        if _here.open is not None:
            _here.open(key)
        else:
            threading.current_thread().want(key)

    @staticmethod
    def number():
        """Of the job that calls it."""
        return _here.number
