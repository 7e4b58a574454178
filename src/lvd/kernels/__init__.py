"""Kernels: the interface, and the metric learned by leave-one-out regression."""

from lvd.kernels.mahalanobis import Kernel, MahalanobisKernel

__all__ = ["Kernel", "MahalanobisKernel"]
