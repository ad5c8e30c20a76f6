"""Entries of this package in the tables of another, which can be taken back."""

_MISSING = object()


class Entries:
    """Entries (table, key, value) that replace what the tables hold while they are registered."""

    def __init__(self, *entries):
        self._entries, self._before = entries, None

    def is_registered(self):
        """Reports whether the tables hold our entries."""
        return self._before is not None

    def before(self, table, key):
        """Returns what `table` held, or None. Only while registered."""
        held = self._before[id(table), key]
        return None if held is _MISSING else held

    def register(self):
        """Puts our entries into the tables; once is enough."""
        if self._before is None:
            self._before = {(id(table), key): table.get(key, _MISSING) for table, key, _ in self._entries}
            for table, key, value in self._entries:
                table[key] = value

    def unregister(self):
        """Restores what the tables held. Loaded models stay as they are."""
        if self._before is None:
            return
        for table, key, _ in self._entries:
            held = self._before[id(table), key]
            if held is _MISSING:
                del table[key]
            else:
                table[key] = held
        self._before = None
