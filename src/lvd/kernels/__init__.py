"""The learned metric: standardise, project, train by leave-one-out regression, predict by kernel regression."""

from lvd.kernels.mahalanobis import MahalanobisKernel

__all__ = ["MahalanobisKernel"]
