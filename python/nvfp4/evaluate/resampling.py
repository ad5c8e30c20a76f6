"""Means over windows, and their errors by a paired bootstrap: the same windows for every method."""

import numpy as np

RESAMPLES = 1000


class Bootstrap:
    """Draws the windows once, so that all figures of a table are paired."""

    def __init__(self, windows, seed=0):
        random = np.random.default_rng(seed)
        self.draws = random.integers(0, windows, (RESAMPLES, windows))

    def error(self, figure, *columns):
        """Returns the standard deviation of figure(mean of each column) over the draws."""
        means = [column[self.draws].mean(1) for column in columns]
        return float(np.std(figure(*means)))

    def mean(self, column):
        return float(column.mean()), self.error(lambda m: m, column)

    def ratio(self, column, other):
        return float(column.mean() / other.mean()), self.error(lambda a, b: a / b, column, other)

    def perplexity_change(self, loss, reference):
        """Returns the change of perplexity in percent, and its error."""
        figure = lambda a, b: (np.exp(a - b) - 1) * 100
        return float(figure(loss.mean(), reference.mean())), self.error(figure, loss, reference)
