"""Kernels: the contract, and the metric that is learned by leave-one-out regression."""

from lvd.kernels.kernel import Kernel
from lvd.kernels.mahalanobis import MahalanobisKernel

__all__ = ["Kernel", "MahalanobisKernel"]
