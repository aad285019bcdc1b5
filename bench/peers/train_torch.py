# SPDX-License-Identifier: Apache-2.0
"""Train a model in PyTorch: train_torch.py MODEL eager|compile|ddp2

The models are those of models.py, the protocol on standard input and output is that of bench/train.h. ddp2 trains in two
processes of one thread each (DistributedDataParallel over gloo); its losses are those of the first half of the batch.
"""
import multiprocessing
import os
import socket
import sys

import torch
import torch.nn.functional as F

from models import DEPTH, HEADS, LAYERS, LEARNING_RATE, TOKENS, VOCABULARY, numbers
from protocol import serve


def forward_mlp(v, x):
    for i in range(0, len(v), 2):
        x = torch.addmm(v[i + 1], x, v[i])
        if i + 2 < len(v):
            x = F.relu(x)
    return x


def forward_cnn(v, x):
    x = F.max_pool2d(F.relu(F.conv2d(x, v[0], v[1], padding=1)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, v[2], v[3], padding=1)), 2)
    return torch.addmm(v[7], F.relu(torch.addmm(v[5], x.flatten(1), v[4])), v[6])


def forward_gpt(v, x):
    h, n = F.embedding(x, v[0]) + v[1], x.shape[0]
    for k in range(2, 2 + 12 * LAYERS, 12):
        g1, b1, wq, bq, wo, bo, g2, b2, w1, c1, w2, c2 = v[k:k + 12]
        z = F.layer_norm(h, (DEPTH,), g1, b1)
        q, key, value = (z @ wq + bq).view(n, TOKENS, 3, HEADS, DEPTH // HEADS).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, key, value, is_causal=True).transpose(1, 2).reshape(n, TOKENS, DEPTH)
        h = h + o @ wo + bo
        h = h + F.gelu(F.layer_norm(h, (DEPTH,), g2, b2) @ w1 + c1, approximate="tanh") @ w2 + c2
    return (F.layer_norm(h, (DEPTH,), v[-2], v[-1]) @ v[0].t()).view(-1, VOCABULARY)


FORWARD = {"mlp_small": forward_mlp, "mlp": forward_mlp, "cnn": forward_cnn, "gpt": forward_gpt}


def in_layouts_of_torch(model, weights, x):
    """The same numbers with channels first; the features behind the convolutions change their order with them."""
    if model != "cnn":
        return weights, x
    weights = list(weights)
    for i in (0, 2):
        weights[i] = weights[i].transpose(3, 2, 0, 1).copy()
    weights[4] = weights[4].reshape(7, 7, 64, 128).transpose(2, 0, 1, 3).reshape(7 * 7 * 64, 128).copy()
    return weights, x.transpose(0, 3, 1, 2).copy()


class Model(torch.nn.Module):
    def __init__(self, name, weights):
        super().__init__()
        self.forward_of = FORWARD[name]
        self.v = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(w)) for w in weights])

    def forward(self, x):
        return self.forward_of(list(self.v), x)


def make_step(name, mode, rank, size):
    weights, X, Y = numbers(name)
    weights, X = in_layouts_of_torch(name, weights, X)
    x, y = torch.tensor(X).chunk(size)[rank], torch.tensor(Y).long().chunk(size)[rank]
    model = Model(name, weights)
    net = {"eager": lambda m: m, "compile": torch.compile, "ddp2": torch.nn.parallel.DistributedDataParallel}[mode](model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


def join(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)


def agreed(steps):
    """What process 0 gives, in both."""
    number = torch.tensor([steps])
    torch.distributed.broadcast(number, 0)
    return int(number)


def follow(name, port):
    join(1, port)
    step = make_step(name, "ddp2", 1, 2)
    step()
    steps = agreed(0)
    while steps > 0:
        for _ in range(steps):
            step()
        steps = agreed(0)


def main(name, mode):
    if mode != "ddp2":
        serve(make_step(name, mode, 0, 1), lambda loss: loss.item())
        return
    with socket.socket() as free:  # a port that nobody uses
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = multiprocessing.get_context("spawn").Process(target=follow, args=(name, port), daemon=True)
    other.start()
    join(0, port)
    serve(make_step(name, mode, 0, 2), lambda loss: loss.item(), agreed)
    other.join()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("eager", "compile", "ddp2"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
