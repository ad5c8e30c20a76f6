"""Computes how the memory beside the hidden states is used while a layer runs."""

import torch

#: Least memory in bytes: less than Python takes, and less would read a layer many times.
LEAST = 64 << 20

#: Bytes that GEMMs hold for each thread of a waiting batch.
OF_THREAD = 8 << 20


def room_for(depths):
    """Returns the default bytes beside the hidden states, a matrix and the activations of a batch: the largest Gram
    matrix in FP64."""
    return max(8 * max(depths) ** 2, LEAST)


def widest(linears, width):
    """Channels of what a batch has at most between two products of a layer: its states, and the results of all linear
    layers that one module has."""
    of_parent = {}
    for name, module in linears.items():
        parent = name.rpartition(".")[0]
        shape = module._parameters["weight"].shape
        of_parent[parent] = of_parent.get(parent, 0) + shape[0 if isinstance(module, torch.nn.Linear) else 1]
    return 2 * width + max(of_parent.values(), default=0)


def held(tokens, width, itemsize, experts, of_token, channels):
    """Returns bytes that a waiting batch takes: its threads and, in a layer with experts, four times its states and the
    mask of its tokens (8 bytes each, made by transformers); in a linear layer `channels` values for each token."""
    threads = OF_THREAD * torch.get_num_threads()
    if experts:
        return threads + tokens * (4 * width * itemsize + 8 * of_token * (experts + 1))
    return threads + tokens * channels * itemsize


def side_by_side(batches, of_batch, room):
    """Returns how many batches go through a layer together and share each matrix that is read. The waiting ones take at
    most `room` bytes. They have at most 512 threads, since OpenMP keeps a team for each."""
    size = max(1, min(batches, 1 + room // of_batch, 512 // torch.get_num_threads()))
    return -(-batches // -(-batches // size))
