"""aml-dist check --bench on one node: writes of each port to itself, from a GPU's memory to a GPU's, and NCCL between the GPUs; with
verbs, CUDA and NCCL in memory (fake_verbs.c, fake_gpus.c)."""

import conftest
import pytest
from test_tool import fake, in_namespace, live, needs_mounts  # noqa: F401

CUDA = conftest.TOOL.resolve().parent.parent / "lib/tests/libfake_gpus.so"
pytestmark = needs_mounts


@pytest.fixture
def bench(live, tmp_path):  # noqa: F811
    """aml-dist check --bench, and its checks."""
    memory, table = tmp_path / "memory", tmp_path / "skus.conf"
    memory.mkdir()

    def run(*arguments, floor="", gpus=True, **env):
        table.write_text(f"ours fabric=infiniband devices=2 rate=400 {floor}\n")
        libraries = {"AMLDIST_CUDA": str(CUDA), "AMLDIST_NCCL": str(CUDA)} if gpus else {}
        outcome = in_namespace(live, "--bench", "--sku-table", table, "--sku", "ours", *arguments,
                               env=fake(FAKE_VERBS_SHARED=str(memory), **libraries, **env))
        return outcome, outcome.checks
    return run


def test_each_port_writes_to_itself(bench):
    outcome, checks = bench()
    assert outcome.status == 0, outcome.out
    for name, unit in (("ib.bandwidth", "Gb/s"), ("ib.latency", "us"), ("ib.gpudirect", "Gb/s")):
        assert checks[name]["verdict"] == "pass" and unit in checks[name]["evidence"], checks[name]
    assert checks["ib.gpudirect"]["evidence"].startswith("GPU to GPU: 2 measurements"), checks["ib.gpudirect"]


def test_what_did_not_arrive_in_the_gpus_memory_is_a_failure(bench):
    outcome, checks = bench(FAKE_CUDA_TORN="1")
    assert outcome.status == 1 and "byte 4096 did not arrive in the GPU's memory" in outcome.out, outcome.out


def test_the_skus_floor_counts_for_host_and_gpu(bench):
    """A write of 8 MiB in 400 ms is 0.17 Gb/s."""
    outcome, checks = bench(floor="bandwidth=100", FAKE_VERBS_SLOW="400000")
    assert outcome.status == 1, outcome.out
    for name in ("ib.bandwidth", "ib.gpudirect"):
        assert checks[name]["verdict"] == "fail" and "100" in checks[name]["evidence"], checks[name]
        assert "mlx5_ib0" in checks[name]["evidence"] and "mlx5_ib1" in checks[name]["evidence"], checks[name]


def test_without_verbs_it_says_why_nothing_was_measured(bench):
    outcome, checks = bench("--no-verbs", floor="bandwidth=100")
    for name in ("ib.bandwidth", "ib.latency", "ib.gpudirect"):
        assert checks[name]["verdict"] == "skip" and checks[name]["evidence"], outcome.out
    outcome, checks = bench(floor="bandwidth=100", FAKE_VERBS_FAIL="create_qp:12")
    assert outcome.status == 1 and checks["ib.bandwidth"]["verdict"] == "skip", outcome.out


def test_without_a_gpu_it_says_so_in_a_sentence(bench):
    outcome, checks = bench(gpus=False)
    assert outcome.status == 0
    for name in ("ib.gpudirect", "gpu.nccl"):
        assert checks[name]["verdict"] == "skip" and checks[name]["evidence"] == "libcuda.so.1 is not installed", checks[name]


@pytest.mark.parametrize("env, says", [({"FAKE_CUDA_INIT": "100"}, "no CUDA-capable device"), ({"FAKE_CUDA_GPUS": "0"}, "GPU")])
def test_a_driver_without_gpus_is_no_fault(bench, env, says):
    outcome, checks = bench(**env)
    assert outcome.status == 0
    assert checks["ib.gpudirect"]["verdict"] == "skip" and says in checks["ib.gpudirect"]["evidence"], outcome.out


def test_a_gpu_without_memory_is_a_warning(bench):
    outcome, checks = bench(FAKE_CUDA_MEMORY="2")
    assert outcome.status == 0 and checks["ib.gpudirect"]["verdict"] == "warn", outcome.out
    assert "out of memory" in checks["ib.gpudirect"]["evidence"]


# --------------------------------------------------------------------------------------------------------------- NCCL

def test_nccls_bus_bandwidth_is_measured_as_nccl_tests_do(bench):
    """Ten times 2 * 7/8 of 256 MiB, each in 10 ms or a little more: 47 GB/s at most."""
    outcome, checks = bench(FAKE_NCCL_SLOW="10000")
    check = checks["gpu.nccl"]
    assert check["verdict"] == "pass" and "allreduce over 8 GPUs" in check["evidence"], outcome.out
    assert 1 <= int(check["evidence"].split("bus bandwidth ")[1].split()[0]) <= 47, check


@pytest.mark.parametrize("health, verdict, status", [("prefer", "warn", 0), ("require", "fail", 1)])
def test_nccl_below_its_floor(bench, health, verdict, status):
    outcome, checks = bench("--health", health, floor="nccl=460", FAKE_NCCL_SLOW="10000")
    check = checks["gpu.nccl"]
    assert check["verdict"] == verdict and "expected 460" in check["evidence"], outcome.out


def test_nccl_that_fails_or_hangs_is_said(bench):
    _, checks = bench(FAKE_NCCL_FAIL="3")
    assert checks["gpu.nccl"]["verdict"] == "warn" and "ncclCommInitAll: internal error" in checks["gpu.nccl"]["evidence"]
    _, checks = bench("--timeout", "1", FAKE_NCCL_HANG="1")
    assert checks["gpu.nccl"]["verdict"] == "warn" and "no answer in 3 s" in checks["gpu.nccl"]["evidence"]


def test_one_gpu_has_nothing_to_reduce(bench):
    _, checks = bench(FAKE_CUDA_GPUS="1")
    assert checks["gpu.nccl"]["verdict"] == "skip" and "fewer than two" in checks["gpu.nccl"]["evidence"]
