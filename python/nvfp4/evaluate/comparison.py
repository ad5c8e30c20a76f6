"""What a model's predictions are worth, and how far they are from another's."""

import torch

#: Logits that a CPU compares at a time: 1 MB of them, which stay in its caches.
_CHUNK = 1 << 18


def _of_tokens(p, q, target):
    """Of log probabilities [.., words], for each token: divergence of q from p, loss of q, same choice."""
    return (torch.linalg.vecdot(p.exp(), p - q), -q.gather(-1, target).squeeze(-1),
            # max finds the place in half the time of argmax on a CPU.
            (p.max(-1).indices == q.max(-1).indices).float())


def columns_of(p, q, target):
    """The means of those over the tokens of each window; p, q [windows, tokens, words]."""
    return torch.stack([each.mean(1) for each in _of_tokens(p, q, target)]).double().cpu().numpy()


def loss_of(q, target):
    """The loss of log probabilities, per window."""
    return -q.gather(-1, target).mean((1, 2)).double().cpu().numpy()


def log_probabilities(logits):
    """FP32"""
    return torch.log_softmax(logits.float(), -1)


def compare_logits(own, plain, target):
    """Of logits [tokens, words] of one window: the loss [1] of `plain`, and columns_of() `own` [3, 1]. On a CPU
    a few tokens at a time."""
    rows = max(1, _CHUNK // own.shape[-1]) if own.device.type == "cpu" else len(own)
    parts = []
    for one, other, words in zip(own.split(rows), plain.split(rows), target.split(rows)):
        p, q = log_probabilities(other), log_probabilities(one)
        parts.append(torch.stack([-p.gather(-1, words).squeeze(-1), *_of_tokens(p, q, words)]))
    loss, *columns = torch.cat(parts, 1).mean(1, keepdim=True).double().cpu().numpy()
    return loss, columns
