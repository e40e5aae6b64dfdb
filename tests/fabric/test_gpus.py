"""gpu.*: a driver in memory (fake_nvml.c) says what azurehpc-health-checks and NVIDIA call sick, and what is healthy."""

import cases
import conftest
import pytest
import trees

LIBRARY = conftest.TOOL.resolve().parent.parent / "lib/tests/libfake_nvml.so"
HEALTHY = {"gpu.count": "pass", "gpu.ecc": "pass", "gpu.rows": "pass", "gpu.nvlink": "pass", "gpu.fabric": "pass",
           "gpu.pcie": "pass", "gpu.throttle": "pass", "gpu.persistence": "pass", "gpu.xid": "skip"}
SKU = ["--sku", "Standard_ND96isr_H100_v5"]


def ask(checker, *arguments, env=None, **fake):
    assert LIBRARY.is_file()
    variables = {f"FAKE_NVML_{name.upper()}": str(value) for name, value in fake.items()}
    return checker.node(trees.azure(8, cases.NDR, 8), *SKU, *arguments,
                        env={"AMLDIST_NVML": str(LIBRARY), **variables, **(env or {})})


def gpus(outcome) -> dict[str, str]:
    return {name: verdict for name, verdict in outcome.verdicts.items() if name.startswith("gpu.")}


def test_a_healthy_h100(checker):
    outcome = ask(checker, "--health", "require")
    assert outcome.status == 0 and gpus(outcome) == HEALTHY, outcome.out


# azure_gpu_count, _ecc (uncorrectable errors, pending and failed remaps, over 512 rows), _nvlink; NVML's fabric states.
@pytest.mark.parametrize("fake, check, said", [
    ({"gpus": 7}, "gpu.count", "the SKU: 8"),
    ({"lost": "3:15"}, "gpu.count", "GPU is lost"),
    ({"init": 9}, "gpu.count", "Driver Not Loaded"),
    ({"ecc": "3:5"}, "gpu.ecc", "GPU 3"),
    ({"pending": "1:1"}, "gpu.rows", "pending"),
    ({"failed": "1:1"}, "gpu.rows", "failed"),
    ({"rows": "2:513"}, "gpu.rows", "513"),
    ({"links": "0:17"}, "gpu.nvlink", "17 of 18"),
    ({"links": "7:0"}, "gpu.nvlink", "0 of 18"),
    ({"width": "4:8"}, "gpu.pcie", "x8 of x16"),
    ({"fabric_state": "0:1"}, "gpu.fabric", "has not joined"),
    ({"fabric_state": "5:2"}, "gpu.fabric", "GPU 5"),
    ({"fabric_status": "5:999"}, "gpu.fabric", "999"),
    ({"clique": "6:1"}, "gpu.fabric", "2 NVLink cliques"),
])
def test_a_sick_gpu_fails_where_health_is_required_and_warns_elsewhere(checker, fake, check, said):
    required = ask(checker, "--health", "require", **fake)
    assert required.status == 1 and required.verdicts[check] == "fail", required.out
    assert said in required.checks[check]["evidence"] and required.checks[check]["remedy"]
    others = {name: verdict for name, verdict in gpus(required).items() if name != check and verdict == "fail"}
    assert not others, others
    preferred = ask(checker, "--health", "prefer", **fake)
    assert preferred.status == 0 and preferred.verdicts[check] == "warn", preferred.out


@pytest.mark.parametrize("fake, check", [
    ({"ecc_before": "3:5"}, "gpu.ecc"), ({"throttle": "2:0x48"}, "gpu.throttle"), ({"throttle": "2:0x80"}, "gpu.throttle"),
    ({"persistence": "0:0"}, "gpu.persistence"),
])
def test_what_is_only_worth_a_warning(checker, fake, check):
    outcome = ask(checker, "--health", "require", **fake)
    assert outcome.status == 0 and outcome.verdicts[check] == "warn", outcome.out


@pytest.mark.parametrize("fake", [
    {"rows": "2:512"},                                                   # azure_gpu_ecc's limit
    {"throttle": "0:0x4,1:0x1,2:0x0,3:0x2"},                             # power cap, idle, none, application clocks
    {"links": ",".join(f"{index}:12" for index in range(8))},            # an A100 has 12
    {"links": ",".join(f"{index}:0" for index in range(8))},             # PCIe cards without a bridge
    {"fabric_state": ",".join(f"{index}:0" for index in range(8))},      # no NVSwitch
    {"lacks": 1},                                                        # an older card
])
def test_what_is_healthy_on_other_models(checker, fake):
    outcome = ask(checker, "--health", "require", **fake)
    assert outcome.status == 0 and not {"fail", "warn", "unknown"} & set(gpus(outcome).values()), outcome.out


def test_a_driver_that_hangs_is_given_up(checker):
    outcome = ask(checker, "--health", "require", "--timeout", "1", hang=1)
    assert outcome.status == 1 and "did not answer" in outcome.checks["gpu.count"]["evidence"], outcome.out


def test_slurms_share_is_what_a_task_can_expect(checker):
    assert ask(checker, "--health", "require", gpus=2, env={"SLURM_GPUS_ON_NODE": "2"}).status == 0
    outcome = ask(checker, "--health", "require", gpus=2, env={"SLURM_GPUS_ON_NODE": "4"})
    assert outcome.status == 1 and "Slurm: 4" in outcome.checks["gpu.count"]["evidence"]


def test_off_looks_at_no_gpu(checker):
    assert not gpus(ask(checker, "--health", "off", ecc="0:1"))


def test_a_node_without_a_driver_and_without_gpus_is_left_alone(checker):
    outcome = checker.node(cases.base(), "--health", "require", env={"AMLDIST_NVML": "/nonexistent.so"})
    assert set(gpus(outcome).values()) == {"skip"}, outcome.out
    required = checker.node(trees.azure(8, cases.NDR, 8), *SKU, "--health", "require", env={"AMLDIST_NVML": "/nonexistent.so"})
    assert required.status == 1 and required.verdicts["gpu.count"] == "fail"


# Lines as NVIDIA's "Xid errors" and azure_gpu_xid show them.
@pytest.mark.parametrize("line, verdict", [
    ("NVRM: Xid (PCI:0001:00:00): 79, pid=0, GPU has fallen off the bus.", "fail"),
    ("NVRM: Xid (PCI:0001:00:00): 48, pid=123, name=python, Double Bit ECC Error", "fail"),
    ("NVRM: Xid (PCI:0001:00:00): 119, pid=9, Timeout after 6s of waiting for RPC response from GPU1", "fail"),
    ("NVRM: Xid (PCI:0001:00:00): 95, pid=9, Uncontained: FBHUB", "fail"),
    ("NVRM: Xid (PCI:0001:00:00): 94, pid=9, Contained: SM", "warn"),
    ("NVRM: Xid (PCI:0001:00:00): 31, pid=9, Ch 00000008, MMU Fault", "pass"),
    ("NVRM: Xid (PCI:0001:00:00): 13, pid=9, Graphics Exception", "pass"),
    ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07", "pass"),
])
def test_xids_of_the_hardware(checker, tmp_path, line, verdict):
    log = tmp_path / "kmsg"
    log.write_text(f"3,1,2,-;{line}\n")
    outcome = ask(checker, "--health", "require", "--kernel-log", log)
    assert outcome.verdicts["gpu.xid"] == verdict and outcome.status == (1 if verdict == "fail" else 0), outcome.out
