"""A network's output for a batch of graphs, from the weights and layers of chemprop's modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lvd._typing import Float
from lvd.molecules.packed import GraphBatch


@dataclass(frozen=True)
class Route:
    """Which parts of a network's forward pass lvd runs itself.

    Parameters
    ----------
    divisor : the divisor of a molecule's sum over atoms, ``"atoms"`` for their number. None for aggregations of
        another form: then chemprop's forward pass runs unchanged, on batches without dummies.
    bond_messages : whether messages are plain ones along directed bonds, as :func:`pass_bond_messages` computes
    them.
    """

    divisor: Literal["atoms"] | float | None
    bond_messages: bool


def fingerprints(module: Any, graphs: GraphBatch, route: Route) -> Float[Tensor, "b h"]:
    """The input of the feed-forward part, as ``MPNN.fingerprint`` returns it.

    chemprop's aggregations query the device for the number of molecules; here it is known.
    """
    if route.divisor is None:
        return module.fingerprint(graphs)
    messages = module.message_passing
    hidden = pass_bond_messages(messages, graphs) if route.bond_messages else messages(graphs)
    sums = hidden.new_zeros(len(graphs) + 1, hidden.shape[1]).index_add_(0, graphs.batch, hidden)[:-1]
    if isinstance(route.divisor, str):
        return module.bn(sums / graphs.atoms_per_molecule.clamp(min=1)[:, None])
    return module.bn(sums / route.divisor)


def pass_bond_messages(messages: Any, graphs: GraphBatch) -> Float[Tensor, "a h"]:
    """Compute chemprop's ``BondMessagePassing`` from the same layers.

    Rows are selected and added by operations that are each other's gradient. chemprop's own need a sort in the
    gradient, and indices as wide as the hidden layer: on one core a training step takes 1.4 times as long.
    """
    source, target = graphs.edge_index
    initial = messages.W_i(torch.cat([graphs.V.index_select(0, source), graphs.E], dim=1))
    hidden = messages.tau(initial)
    for _ in range(1, messages.depth):
        arriving = _sum_at(target, hidden, len(graphs.V)).index_select(0, source)
        others = arriving - hidden.index_select(0, graphs.rev_edge_index)
        hidden = messages.dropout(messages.tau(initial + messages.W_h(others)))
    return messages.finalize(_sum_at(target, hidden, len(graphs.V)), graphs.V, None)


def _sum_at(atoms: Tensor, hidden: Float[Tensor, "e h"], n_atoms: int) -> Float[Tensor, "a h"]:
    return hidden.new_zeros(n_atoms, hidden.shape[1]).index_add_(0, atoms, hidden)


def last_hidden(module: Any, fingerprint: Float[Tensor, "b h"]) -> Float[Tensor, "b e"]:
    """The embedding: the input of the last linear layer, after the activation.

    chemprop's ``encoding(i=-1)`` stops before the activation.
    """
    *blocks, last = module.predictor.ffn
    for block in blocks:
        fingerprint = block(fingerprint)
    return last[:-1](fingerprint)


def predictions(module: Any, fingerprint: Float[Tensor, "b h"]) -> Float[Tensor, "b o"]:
    """The network's outputs; only the prediction for predictors that also output their uncertainty."""
    outputs: Tensor = module.predictor(fingerprint)
    return outputs[..., 0] if outputs.dim() == 3 else outputs


def run(module: Any, graphs: GraphBatch, route: Route) -> tuple[Float[Tensor, "b o"], Float[Tensor, "b e"]]:
    """Predictions and embeddings of a batch."""
    fingerprint = fingerprints(module, graphs, route)
    return predictions(module, fingerprint), last_hidden(module, fingerprint)
