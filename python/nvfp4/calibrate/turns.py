"""Runs the batches of a layer in turns, so that a matrix that all need is read once."""

import threading


#: State of a thread that runs a batch: `number`, and `open` if there is only one batch.
_here = threading.local()


class _Stopped(BaseException):
    """Ends a job that is no longer needed."""


class _Batch(threading.Thread):
    """A thread that runs a job when it has its turn, and reports the key that it waits for."""

    def __init__(self, number, job):
        super().__init__(daemon=True)
        self.number = number
        self.job, self.waits_for, self.error, self.done, self.stopped = job, None, None, False, False
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

    def resume(self):
        """Runs the job until it waits for a key or ends."""
        self.turn.release()
        self.back.acquire()
        if self.error is not None:
            raise self.error

    def wait_for(self, key):
        self.waits_for = key
        self.back.release()
        self.turn.acquire()
        if self.stopped:
            raise _Stopped

    def stop(self):
        self.stopped = True
        self.turn.release()
        self.join()


class Turns:
    """Runs jobs in turns. When every job waits or has ended, `open(key)` is called with the smallest key. Then the jobs
    that wait for that key continue, in order. Only one job runs at a time."""

    def __init__(self, open):
        self.open = open

    def run(self, jobs):
        if len(jobs) == 1:  # in this thread, since another one would allocate its own memory for GEMMs
            _here.number, _here.open = 0, self.open
            return jobs[0]()
        batches = [_Batch(number, job) for number, job in enumerate(jobs)]
        try:
            for batch in batches:
                batch.start()
                batch.resume()
            while waiting := [b for b in batches if not b.done]:
                key = min(b.waits_for for b in waiting)
                self.open(key)
                for batch in waiting:
                    if batch.waits_for == key:
                        batch.resume()
        finally:
            for batch in batches:
                if batch.is_alive():
                    batch.stop()

    @staticmethod
    def wait_for(key):
        """Returns when `key` is open. Called by a job."""
        if _here.open is not None:
            _here.open(key)
        else:
            threading.current_thread().wait_for(key)

    @staticmethod
    def number():
        """Returns the number of the calling job."""
        return _here.number
