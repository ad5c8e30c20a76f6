"""Saves the progress of a run by layer, so that an interrupted run can be resumed."""

import json
import os
import shutil
from pathlib import Path

from safetensors import SafetensorError, safe_open

from .._errors import FormatError, InvalidValueError
from .statistics import Statistics, write_tensors


class Parts:
    """A folder with the arguments of the run, the statistics of each layer, and the hidden states after the last layer.
    A finished run renames it before it is removed. `was_done`: an earlier run was interrupted after that."""

    def __init__(self, folder, key, resume):
        self.folder, self.done, self.count = Path(folder), Path(f"{folder}.done"), 0
        for place in (self.folder, self.done):
            self._require_own(place)
        about = self.folder / "run.json"
        if resume and about.exists():
            self._require_same(about, key)
        else:
            self.was_done = resume and self.done.exists()
            if self.was_done:
                if (self.done / "run.json").exists():
                    self._require_same(self.done / "run.json", key)
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            partial = self.folder / "run.partial"
            partial.write_text(json.dumps(key), encoding="utf-8")
            os.replace(partial, about)
        self.was_done = False
        shutil.rmtree(self.done, ignore_errors=True)

    @staticmethod
    def _require_own(place):
        """Raises InvalidValueError for a folder that no run of calibrate wrote. A run would remove it."""
        if place.exists() and not (place / "run.json").exists() and (
                not place.is_dir() or any(file.name != "run.partial" for file in place.iterdir())):
            raise InvalidValueError(f"{place}: is there already, and calibrate did not write it; remove it yourself")

    @staticmethod
    def _require_same(about, key):
        if json.loads(about.read_text(encoding="utf-8")) != key:
            raise InvalidValueError(f"resume: {about.parent} is of a run with other arguments", code="NV0301")

    def _layer(self, i):
        return self.folder / f"layer-{i}.safetensors"

    def states(self, first):
        """Returns the number of finished layers and the hidden states after them. `first`: the states before all
        layers."""
        file = self.folder / "states.safetensors"
        if not file.exists():
            return 0, first
        try:
            with safe_open(file, "pt") as states:
                self.count = int(states.metadata()["layers"])
                return self.count, [states.get_tensor(str(b)).clone().to(f.device) for b, f in enumerate(first)]
        except (SafetensorError, KeyError, ValueError) as no:
            raise FormatError(f"{file}: {no}") from no

    def write_states(self, i, hidden):
        """Writes the hidden states of all batches after layer i, which is not finished yet."""
        write_tensors(self.folder / "states.partial", {str(b): h for b, h in enumerate(hidden)}, {"layers": str(i + 1)})

    def save(self, i, statistics):
        """Saves a layer. The states are renamed last, which marks the layer as finished."""
        statistics.save(self._layer(i))
        os.replace(self.folder / "states.partial", self.folder / "states.safetensors")
        self.count = i + 1

    def read_states(self, hidden, places):
        """Reads hidden states that are not in memory."""
        if any(h is None for h in hidden):
            with safe_open(self.folder / "states.safetensors", "pt") as states:
                for b, place in enumerate(places):
                    if hidden[b] is None:
                        hidden[b] = states.get_tensor(str(b)).clone().to(place)

    def sum(self):
        return Statistics.sum_of(self._layer(i) for i in range(self.count))

    def remove(self):
        """Removes the folder. The file with the arguments is removed last."""
        if not self.was_done:
            os.replace(self.folder, self.done)
        for file in sorted(self.done.iterdir(), key=lambda f: f.name == "run.json"):
            file.unlink()
        self.done.rmdir()
