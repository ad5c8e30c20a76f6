"""Inputs of a layer that memory has no place for, on disk until their Gram matrix is formed."""

import os
import tempfile
from collections import defaultdict
from contextlib import contextmanager

import torch

from .._errors import IoError


class Spool:
    """A file without a name in `folder`: it is gone with the process."""

    def __init__(self, folder):
        self.folder, self.file = folder, None
        self.places = defaultdict(list)  # owner -> (offset, shape, dtype), in order

    def __contains__(self, owner):
        return owner in self.places

    @contextmanager
    def _named_errors(self):
        try:
            yield
        except OSError as no:
            raise IoError.of(f"{self.folder}: inputs of a layer", no) from no

    def add(self, owner, x):
        with self._named_errors():
            if self.file is None:
                self.file = tempfile.TemporaryFile(dir=self.folder)
            begin = self.file.seek(0, os.SEEK_END)
            self.file.write(x.contiguous().cpu().view(torch.uint8).numpy().data)
        self.places[owner].append((begin, x.shape, x.dtype))

    def take(self, owner):
        """Yields what was added, in order, and removes it."""
        for begin, shape, dtype in self.places.pop(owner, ()):
            x = torch.empty(shape, dtype=dtype)
            with self._named_errors():
                self.file.seek(begin)
                if self.file.readinto(x.view(torch.uint8).numpy().data.cast("B")) != x.numel() * dtype.itemsize:
                    raise IoError(f"{self.folder}: inputs of a layer: the file is shorter than what was written")
            yield x

    def close(self):
        if self.file is not None:
            self.file.close()
