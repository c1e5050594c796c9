"""A DDP job that consumes the same samples and has the same losses and weights, bit by bit, at any sequence of world sizes.

    rankguard run --nodes 1:3 --checkpoint-dir STORE --checkpoint-every 5 -- python examples/elastic_ddp.py --steps 60
    torchrun --nproc-per-node 2 examples/elastic_ddp.py --steps 20 --local-dir STORE --every 5
    torchrun --nproc-per-node 3 examples/elastic_ddp.py --steps 60 --local-dir STORE --every 5

`rankguard.Sampler` alone keeps samples, their order and the mean gradient: losses are then equal up to rounding, since DDP
adds up in an order that depends on the number of ranks. Equal bits need more:

- virtual ranks: a fixed number of shares of each batch, at least the largest world size, so that each forward and backward
  has the same samples at every world size;
- a sum in the order of the virtual ranks, here by a communication hook of DDP. Each rank receives the gradients of every
  virtual rank, where an all-reduce receives them about twice, and holds those of one round;
- random numbers of step and virtual rank, and not of the process;
- no layer with statistics of its own over batches (BatchNorm), which see the batches of their process alone;
- kernels, libraries, processors and numbers of threads that give the same bits for the same input
  (`torch.use_deterministic_algorithms` on GPUs).
"""

import hashlib
import time

import torch
import torch.distributed as dist
from common import arguments, exact, tell
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import rankguard

SAMPLES, GLOBAL_BATCH, VIRTUAL_RANKS = 500, 40, 6


class OrderedSum:
    """Adds up the gradients of virtual ranks in their order; a communication hook of DDP.

    Round ``j`` has the virtual ranks ``j * W`` to ``j * W + W - 1`` on the ranks 0 to W - 1. So the gathered gradients of a
    round are in order, and each is added to the sum of the rounds before. Those of a rank that only takes part are zeros,
    which change no bit of a sum that began at 0.
    """

    def __init__(self, model: DistributedDataParallel) -> None:
        self._parameters = list(model.parameters())
        self._sums = {}
        model.register_comm_hook(None, self._add)

    def begin_step(self) -> None:
        for parameter in self._parameters:
            self._sums[parameter], parameter.grad = torch.zeros_like(parameter), None

    def end_round(self) -> None:
        """Sets the sum of the round aside, so that the next backward gives the gradients of one virtual rank alone."""
        for parameter in self._parameters:
            self._sums[parameter], parameter.grad = parameter.grad, None

    def end_step(self) -> None:
        for parameter in self._parameters:
            parameter.grad = self._sums[parameter]

    def _add(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        parts = [torch.empty_like(bucket.buffer()) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, bucket.buffer())
        total = torch.cat([self._sums[parameter].flatten() for parameter in bucket.parameters()])
        for part in parts:
            total += part
        done = torch.futures.Future()
        done.set_result(total)
        return done


def main() -> None:
    args = arguments(__doc__)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    inputs = torch.randn(SAMPLES, 32)
    dataset = TensorDataset(inputs, (inputs[:, :8] * 3).argmax(dim=1))
    layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))
    model = DistributedDataParallel(layers)
    sums = OrderedSum(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    sampler = rankguard.Sampler(dataset, GLOBAL_BATCH, seed=7, virtual_ranks=VIRTUAL_RANKS)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2, persistent_workers=True)
    rankguard.init(args.local_dir, checkpoint_every=args.every)
    state = rankguard.torch.state(model, optimizer, random=False, sampler=sampler, losses=[])
    restored = rankguard.restore(state)
    losses = state["losses"]

    batches = iter(loader)
    while sampler.step < args.steps:
        # One slot for each virtual rank: others are 0, so the sum over ranks changes no bit.
        parts = torch.zeros(VIRTUAL_RANKS + world)
        sums.begin_step()
        for share in sampler.shares:
            inputs, targets = next(batches)
            torch.manual_seed(sampler.random_seed(share))
            loss = nn.functional.cross_entropy(model(inputs), targets) * share.weight
            loss.backward()
            sums.end_round()
            parts[share.virtual_rank] = loss.detach()
        sums.end_step()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        dist.all_reduce(parts)
        losses.append(sum(parts.tolist()))
        epoch = sampler.epoch
        sampler.advance()
        if sampler.epoch != epoch:
            batches = iter(loader)
        rankguard.step(sampler.step, loss=losses[-1], grad_norm=norm)
        if rankguard.due():
            rankguard.checkpoint(state)
        time.sleep(args.step_ms / 1e3)

    sampler.ledger.check(sampler.consumed)
    weights = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters()))
    ledger = [list(interval) for interval in sampler.ledger.intervals]
    tell(args.out, rank, restored and restored.step, losses=exact(losses), weights=weights.hexdigest(), ledger=ledger)
    rankguard.wait()
    dist.barrier()
    rankguard.done()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
