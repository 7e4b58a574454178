"""Kernels: the contract, and the metric that is learned by leave-one-out regression."""

from lvd.kernels.mahalanobis import Kernel, MahalanobisKernel

__all__ = ["Kernel", "MahalanobisKernel"]
