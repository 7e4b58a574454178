"""A torch network as a regressor: the built-in MLP, or a user's module."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from lvd._parallel import chunk_slices, few_threads, workers
from lvd._typing import ArrayLike, Float, NDArray, RandomState
from lvd._validation import (
    InputError,
    RowError,
    check_matrix,
    check_positive,
    check_same_length,
    check_targets,
    resolve_device,
    seed_from,
    to_numpy,
)
from lvd.models.losses import ElementLoss, SquaredLoss, known_mean
from lvd.models.model import EvaluatingRegressor, Evaluation
from lvd.models.rows import NamedRows, named_in_order
from lvd.models.scaling import known_mean_and_scale, mean_and_scale
from lvd.models.torch_modules import (
    Inputs,
    Loss,
    argument_names,
    as_predictions,
    build_mlp,
    draw_with_replacement,
    evaluating,
    find_last_linear,
    forward_with_embedding,
    own_random_numbers,
    run_mlp,
    to_tensors,
    train,
    weights_in_float64,
)
from lvd.models.validated import (
    FEWEST_ROWS,
    default_rate,
    default_sizes,
    train_validated,
)

EVALUATION_ROWS = 8192
LEAST_BATCHES, LEAST_EPOCHS = 1000, 20
PAPER_SIZES, PAPER_RATE, PAPER_BATCH = (100,), 1e-2, 100
VALIDATED_BATCH, VALIDATED_DECAY = 128, 1e-2
FARTHEST, FAR_SHARE = 5.0, 0.1
"""A standardised input's excess over this counts a tenth: a typo must not ruin a prediction."""


@dataclass(eq=False, repr=False)
class NetRegressor(EvaluatingRegressor, BaseEstimator):
    """A network trained on standardised inputs and targets that also returns its last hidden layer.

    With several targets, unknown ones may be NaN and are left out of the loss. It trains in float32 and
    predicts in float64, so that a row's result does not depend on the other rows. The same holds for a user's
    module on a CPU if it runs in float64; otherwise it keeps its own precision.

    Parameters
    ----------
    module : a torch module that returns one value per row and target; None builds an MLP of `hidden_sizes`. A
        module with named arguments gets X as a dict of arrays or tensors, which are not standardised. A copy is
        trained and the module itself is unchanged. With `prefit` it is used as it is.
    hidden_sizes : widths of the ReLU layers of the built-in MLP; by default (256, 64), below 500 rows (192,),
        wider for many targets, and without early stopping (100,).
    n_batches, epochs : length of training without early stopping, one of the two; by default 20 epochs, but at
        least 1000 batches.
    early_stopping : hold rows out and keep the weights that predict them best. The layers then form four
        networks side by side (eight below 500 rows). Each holds out an eighth of the rows, starts from a ridge
        regression and is trained by AdamW; the prediction is their mean. Only a tenth of the excess of
        standardised inputs beyond 5 counts. This is the default for the built-in MLP if no length is given and
        there are at least 20 rows. False trains for a fixed length, as in the paper.
    batch_size : rows per batch, by default at most 128; without early stopping 100, drawn with replacement.
    learning_rate, weight_decay : for AdamW, by default 0.01 each (below 500 rows a rate of 0.02); for Adam
        without early stopping, 0.01 and 0.
    scale_inputs, scale_target : standardise with the training rows' mean and standard deviation.
    loss : a function of predictions and (scaled) targets; by default ``lvd.models.losses.SquaredLoss()``.
    embedding_layer : the layer whose input is the embedding; by default the Linear layer called last.
    prefit : the module is already trained.
    device : where to train; a prefit module stays where it is.
    random_state : seeds the MLP's initial weights and the batches.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> net = lvd.NetRegressor(hidden_sizes=(20,), n_batches=50, random_state=0).fit(X, X[:, 0])
    >>> net.predict(X).shape, net.embed(X).shape
    ((200,), (200, 20))
    """

    takes_missing_targets: ClassVar[bool] = True

    module: nn.Module | None = None
    _: KW_ONLY
    hidden_sizes: Sequence[int] | None = None
    n_batches: int | None = None
    epochs: int | None = None
    early_stopping: bool | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    scale_inputs: bool = True
    scale_target: bool = True
    loss: Loss | None = None
    embedding_layer: str | None = None
    prefit: bool = False
    device: str = "auto"
    random_state: RandomState = None

    def check(self, X: ArrayLike) -> Any:
        """Return a finite matrix with the columns of `fit`. For a user's module also an array with more
        dimensions, or several arrays: a dict by argument names, or a tuple in their order."""
        # One type of sparse matrix is a dict.
        named = isinstance(X, NamedRows | Mapping) and not hasattr(X, "toarray")
        if isinstance(X, tuple) and self.module is not None:
            X, named = named_in_order(X, argument_names(self.module)), True
        if named and self.module is not None:
            return NamedRows.of(X, getattr(self, "input_names_", None))
        n_columns = getattr(self, "n_features_in_", None)
        array = X if isinstance(X, np.ndarray) else to_numpy(X)
        if self.module is None or array.ndim <= 2:
            return check_matrix(X, n_columns=n_columns)
        flat = check_matrix(array.reshape(len(array), -1), n_columns=n_columns)
        return flat.reshape(array.shape)

    def fit(self, X: ArrayLike, y: ArrayLike, *, on_batch: Callable[[], None] | None = None) -> NetRegressor:
        """Train, calling `on_batch` after every batch; a prefit module is only inspected."""
        self._check_parameters()
        for name in ("n_features_in_", "input_names_", "farthest_"):
            self.__dict__.pop(name, None)
        several = to_numpy(y).ndim > 1 and to_numpy(y).shape[1] > 1
        X, targets = self.check(X), check_targets(y, missing=several)
        check_same_length(X=X, y=targets)
        if isinstance(X, NamedRows):
            self.input_names_ = sorted(X.arrays)
        else:
            self.n_features_in_ = math.prod(X.shape[1:])
        self.n_targets_, self._flat = targets.shape[1], to_numpy(y).ndim == 1
        seed = seed_from(self.random_state)
        self._learn_scales(X, targets)
        if self.prefit:
            self.module_: nn.Module = self._new_module(seed, len(X))
            self._look_at(self._tensor(X[:2]))
        elif self._validates(len(X)):
            if self.scale_inputs:
                self.farthest_ = FARTHEST
            self._train_validated(X, targets, seed, on_batch)
        else:
            self._train_for_long(X, targets, seed, on_batch)
        return self

    def with_loss(self, loss: Loss) -> NetRegressor:
        """A new network with these settings and another loss."""
        network: NetRegressor = clone(self).set_params(loss=loss)
        return network

    def _train_validated(
        self, X: NDArray, targets: NDArray, seed: int, on_batch: Callable[[], None] | None
    ) -> None:
        device = resolve_device(self.device)
        inputs, scaled = (
            torch.as_tensor(array, dtype=torch.float32, device=device)
            for array in (self.standardised(X), (targets - self.y_mean_) / self.y_scale_)
        )
        with workers(1):
            self.module_ = train_validated(
                inputs,
                scaled,
                self.sizes(self.n_targets_, len(X)),
                batch_size=self.batch_size or VALIDATED_BATCH,
                learning_rate=self.learning_rate or default_rate(len(X)),
                weight_decay=VALIDATED_DECAY if self.weight_decay is None else self.weight_decay,
                loss=self._shaped_loss(targets),
                seed=seed,
                on_batch=on_batch,
            ).eval()
            self._look_at(inputs[:2])

    def _train_for_long(
        self, X: Any, targets: NDArray, seed: int, on_batch: Callable[[], None] | None
    ) -> None:
        self.module_ = self._new_module(seed, len(X)).to(resolve_device(self.device))
        inputs = self._tensor(self.standardised(X))
        scaled = self._tensor((targets - self.y_mean_) / self.y_scale_)
        # The built-in network is too small to benefit from torch's threads. A user's module may draw its own
        # random numbers, in dropout layers for instance.
        own = workers(1) if self.module is None else own_random_numbers(seed)
        with few_threads(X), own:
            self._look_at(inputs[:2])
            train(
                self.module_,
                inputs,
                scaled,
                draw_with_replacement(
                    len(X), self._count_batches(len(X)), self.batch_size or PAPER_BATCH, seed
                ),
                learning_rate=self.learning_rate or PAPER_RATE,
                weight_decay=self.weight_decay or 0.0,
                loss=self._shaped_loss(targets),
                on_batch=on_batch,
            )

    def evaluate(self, X: Any) -> Evaluation:
        """Predictions (n, t) and embeddings (n, h) in one pass."""
        if "module_" not in vars(self):
            check_is_fitted(self, "module_")  # it reads the tags, which a fitted one does not need
        X = self.check(X)
        predictions, embeddings = [], []
        # Models saved by lvd 1 lack this attribute.
        in_float64 = getattr(self, "in_float64_", self.module is None)
        with evaluating(self.module_):
            forward = self._forward(in_float64=in_float64)
            for rows in chunk_slices(len(X), EVALUATION_ROWS):
                inputs = self._tensor(self.standardised(X[rows]), torch.float64 if in_float64 else None)
                output, embedding = forward(inputs)
                predictions.append(as_predictions(output, len(inputs), self.n_targets_).double().cpu())
                embeddings.append(embedding.double().cpu())
        y_pred = torch.cat(predictions).numpy() * self.y_scale_ + self.y_mean_
        if not np.isfinite(y_pred).all():
            row = int(np.argwhere(~np.isfinite(y_pred))[0, 0])
            raise RowError(
                "the network predicts NaN or infinity at row ", (row,), "; check its weights and inputs"
            )
        return Evaluation(y_pred, torch.cat(embeddings).numpy())

    def _forward(self, *, in_float64: bool) -> Callable[[Any], tuple[Any, Tensor]]:
        """Map inputs to output and embedding."""
        if self.module is None and self.embedding_layer is None:
            return partial(run_mlp, self.module_)
        weights = weights_in_float64(self.module_) if in_float64 else None
        return lambda inputs: forward_with_embedding(self.module_, self.embedding_layer_, inputs, weights)

    def _check_parameters(self) -> None:
        for name in ("n_batches", "epochs", "batch_size", "learning_rate"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), name, integer=name != "learning_rate")
        if self.n_batches is not None and self.epochs is not None:
            raise InputError("give n_batches or epochs, not both")
        for size in self.hidden_sizes or ():
            check_positive(size, "hidden_sizes", integer=True)
        given = next((n for n in ("module", "n_batches", "epochs") if vars(self)[n] is not None), None)
        if self.early_stopping and given is not None:
            raise InputError(
                f"early_stopping=True is for the built-in network without {given}=; leave one out"
            )
        if self.prefit and self.module is None:
            raise InputError("prefit=True needs a trained module; pass it as the first argument")

    def sizes(self, n_targets: int, n_rows: int) -> Sequence[int]:
        """The layer widths of the built-in MLP."""
        if self.hidden_sizes is not None:
            return self.hidden_sizes
        return default_sizes(n_rows, n_targets) if self._validates(n_rows) else PAPER_SIZES

    def _validates(self, n_rows: int) -> bool:
        fixed = self.module is not None or self.n_batches is not None or self.epochs is not None
        return self.early_stopping is not False and not fixed and n_rows >= FEWEST_ROWS

    def _count_batches(self, n_rows: int) -> int:
        if self.n_batches is not None:
            return self.n_batches
        a_pass = n_rows / (self.batch_size or PAPER_BATCH)
        if self.epochs is not None:
            return math.ceil(self.epochs * a_pass)
        return max(LEAST_BATCHES, math.ceil(LEAST_EPOCHS * a_pass))

    def _new_module(self, seed: int, n_rows: int) -> nn.Module:
        if self.module is not None:
            return self.module if self.prefit else copy.deepcopy(self.module)
        generator = torch.Generator().manual_seed(seed)
        sizes = self.sizes(self.n_targets_, n_rows)
        return build_mlp(self.n_features_in_, sizes, self.n_targets_, generator=generator)

    def _learn_scales(self, X: Any, targets: NDArray) -> None:
        """Learn the scales of inputs and targets; a prefit module uses them unscaled."""
        if isinstance(X, NamedRows):  # they may be token ids, and are left unscaled
            self.x_mean_, self.x_scale_ = np.zeros(()), np.ones(())
        else:
            self.x_mean_, self.x_scale_ = mean_and_scale(X, self.scale_inputs and not self.prefit)
        partly_known = np.isnan(targets).any() and not self.prefit
        measure = known_mean_and_scale if partly_known else mean_and_scale
        self.y_mean_, self.y_scale_ = measure(targets, self.scale_target and not self.prefit)

    def standardised(self, X: Any) -> Any:
        """The rows as the network sees them."""
        if isinstance(X, NamedRows):
            return X
        scaled = (X - self.x_mean_) / self.x_scale_
        farthest = getattr(self, "farthest_", None)
        return np.asarray(scaled) if farthest is None else pulled_in(scaled, farthest)

    def _tensor(self, rows: Any, dtype: torch.dtype | None = None) -> Any:
        """The rows as a tensor on the module's device, by default in its precision."""
        parameter = next(self.module_.parameters(), torch.empty(0))
        return to_tensors(rows, dtype or parameter.dtype, parameter.device)

    def _look_at(self, sample: Inputs) -> None:
        """Find the embedding layer and check the output's shape before training."""
        try:
            with evaluating(self.module_):
                self.embedding_layer_ = self.embedding_layer or find_last_linear(self.module_, sample)
                output, _ = forward_with_embedding(self.module_, self.embedding_layer_, sample)
                as_predictions(output, len(sample), self.n_targets_)
        except RuntimeError as error:
            raise InputError(
                f"the module cannot be run on inputs of shape {tuple(sample.shape)}: {error}"
            ) from error
        on_cpu = next(self.module_.parameters(), torch.empty(0)).device.type == "cpu"
        self.in_float64_ = self.module is None or (on_cpu and self._runs_in_float64(sample))

    def _runs_in_float64(self, sample: Inputs) -> bool:
        """Whether the user's module runs in float64; not if it creates float32 tensors or is compiled."""
        try:
            with evaluating(self.module_):
                weights = weights_in_float64(self.module_)
                inputs = self._tensor(sample, torch.float64)
                forward_with_embedding(self.module_, self.embedding_layer_, inputs, weights)
        except (RuntimeError, TypeError):
            return False
        return True

    def _shaped_loss(self, targets: NDArray) -> Loss:
        if isinstance(self.loss, ElementLoss) and self.loss.outputs_per_target > 1:
            raise InputError(
                f"loss must take one number for each target, but {type(self.loss).__name__} takes "
                f"{self.loss.outputs_per_target}; choose another, or leave it out"
            )
        if np.isnan(targets).any():
            each = SquaredLoss() if self.loss is None else self.loss
            if not isinstance(each, ElementLoss):
                raise InputError(
                    "some targets are NaN, which a loss of your own cannot leave out; give one of "
                    "lvd.models.losses, or rows that have all targets"
                )
            return lambda output, target: known_mean(each, output.reshape(target.shape), target)
        loss = nn.functional.mse_loss if self.loss is None else self.loss
        return lambda output, target: loss(output.reshape(target.shape), target)


def pulled_in(scaled: Float[NDArray, "*shape"], farthest: float) -> Float[NDArray, "*shape"]:
    """Shrink the excess beyond `farthest` to a tenth: continuous, and distant rows stay distant."""
    inside = np.clip(scaled, -farthest, farthest)
    return inside + FAR_SHARE * (scaled - inside)
