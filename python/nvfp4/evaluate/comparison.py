"""Compares a model's predictions with the text and with those of another model."""

import torch

#: Number of logits that a CPU compares at a time: 1 MB, which stays in the caches.
_CHUNK = 1 << 18


def _of_tokens(p, q, target):
    """Returns for each token, from log probabilities [.., words]: KL divergence of q from p, loss of q, agreement of
    the top-1 choice."""
    return (torch.linalg.vecdot(p.exp(), p - q), -q.gather(-1, target).squeeze(-1),
            # On a CPU max takes half the time of argmax.
            (p.max(-1).indices == q.max(-1).indices).float())


def columns_of(p, q, target):
    """Returns the means of _of_tokens() over the tokens of each window; p and q are [windows, tokens, words]."""
    return torch.stack([each.mean(1) for each in _of_tokens(p, q, target)]).double().cpu().numpy()


def loss_of(q, target):
    """Returns the loss of log probabilities for each window."""
    return -q.gather(-1, target).mean((1, 2)).double().cpu().numpy()


def log_probabilities(logits):
    """Returns log probabilities in FP32."""
    return torch.log_softmax(logits.float(), -1)


def compare_logits(own, plain, target):
    """Returns the loss [1] of `plain` and columns_of() `own` [3, 1], for logits [tokens, words] of one window. A CPU
    processes a few tokens at a time."""
    rows = max(1, _CHUNK // own.shape[-1]) if own.device.type == "cpu" else len(own)
    parts = []
    for one, other, words in zip(own.split(rows), plain.split(rows), target.split(rows)):
        p, q = log_probabilities(other), log_probabilities(one)
        parts.append(torch.stack([-p.gather(-1, words).squeeze(-1), *_of_tokens(p, q, words)]))
    loss, *columns = torch.cat(parts, 1).mean(1, keepdim=True).double().cpu().numpy()
    return loss, columns
