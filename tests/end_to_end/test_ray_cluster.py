"""Prediction on a Ray cluster that is there already: two nodes, one of which says it has GPUs."""

from __future__ import annotations

import pytest

import ray_cluster

pytestmark = [pytest.mark.slow, *ray_cluster.MARKS]


@pytest.fixture(scope="module")
def address():
    utilities = pytest.importorskip("ray.cluster_utils")
    small = {"object_store_memory": 100 << 20}
    head = {"num_cpus": 2, "num_gpus": 2, "include_dashboard": False}
    with ray_cluster.settings():
        cluster = utilities.Cluster(initialize_head=True, head_node_args=head | small)
        cluster.add_node(num_cpus=2, **small)
        yield cluster.address
        cluster.shutdown()


def test_the_same_bytes_from_actors_that_take_a_gpu_each(address, lvd_here, homes, tmp_path):
    words = ("predict", homes.model, homes.new, "--level", 0.7)
    local = lvd_here(*words, "--out", tmp_path / "local.parquet")
    outcome = lvd_here(*words, "--out", tmp_path / "ray.parquet", "--engine", "ray", "--address", address)
    assert outcome.code == 0, outcome.err
    assert outcome.out == local.out.replace("local.parquet", "ray.parquet")
    assert (tmp_path / "ray.parquet").read_bytes() == (tmp_path / "local.parquet").read_bytes()
