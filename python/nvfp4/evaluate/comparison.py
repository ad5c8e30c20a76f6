"""What a model's predictions are worth, and how far they are from another's."""

import torch


def columns_of(p, q, target):
    """Of log probabilities [windows, tokens, words], per window: divergence of q from p, loss of q, same
    choice."""
    return torch.stack([
        (p.exp() * (p - q)).sum(-1).mean(1),
        -q.gather(-1, target).mean((1, 2)),
        (p.argmax(-1) == q.argmax(-1)).float().mean(1),
    ]).double().cpu().numpy()


def loss_of(q, target):
    """The loss of log probabilities, per window."""
    return -q.gather(-1, target).mean((1, 2)).double().cpu().numpy()


def log_probabilities(logits):
    """FP32"""
    return torch.log_softmax(logits.float(), -1)
