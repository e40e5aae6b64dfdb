"""gpu.*: a driver in memory (fake_nvml.c) says what azurehpc-health-checks and NVIDIA call sick, and what is healthy."""

import pathlib

import cases
import conftest
import pytest
import trees

LIBRARY = conftest.TOOL.resolve().parent.parent / "lib/tests/libfake_nvml.so"
HEALTHY = {"gpu.count": "pass", "gpu.ecc": "pass", "gpu.rows": "pass", "gpu.nvlink": "pass", "gpu.fabric": "pass",
           "gpu.imex": "skip", "gpu.topology": "skip", "gpu.pcie": "pass", "gpu.throttle": "pass", "gpu.persistence": "pass", "gpu.xid": "skip"}
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
    ({"link_speed": "5:20000"}, "gpu.nvlink"), ({"ecc_before": "3:5"}, "gpu.ecc"), ({"throttle": "2:0x48"}, "gpu.throttle"), ({"throttle": "2:0x80"}, "gpu.throttle"),
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


# ------------------------------------------------------------------------------------------------------- NVLink domains

def test_a_domain_beyond_the_node_wants_a_channel(checker):
    assert ask(checker, domain=7).verdicts["gpu.imex"] == "warn", "no channel"
    node = trees.azure(8, cases.NDR, 8)
    node.after.append(lambda sys, dev: trees.write(dev / "nvidia-caps-imex-channels/channel0", "x"))
    outcome = checker.node(node, *SKU, env={"AMLDIST_NVML": str(LIBRARY), "FAKE_NVML_DOMAIN": "7"})
    assert outcome.verdicts["gpu.imex"] == "pass" and "0707" in outcome.checks["gpu.imex"]["evidence"], outcome.out
    assert ask(checker).verdicts["gpu.imex"] == "skip", "links within the node need none"


# ----------------------------------------------------------------------------------------------- where things should be

def topology(tmp_path, gpus=8, moved=None) -> pathlib.Path:
    """A file as Azure's images have it for a virtual machine of eight GPUs and cards, half of them on each NUMA node."""
    out = ["<?xml version='1.0'?><!-- eight of each --><system version=\"1\">"]
    for numa in range(2):
        out.append(f'<cpu numaid="{numa}" affinity="ff" arch="x86_64" vendor="GenuineIntel">')
        for index in range(numa * gpus // 2, (numa + 1) * gpus // 2):
            card = f"{(moved or {}).get(index, index) + 1:04x}:00:00.0"
            out.append(f'<pci busid="ffff:ff:{index + 1:02x}.0" class="0x060400" link_width="16">'
                       f'<pci busid="1{index:03x}:00:00.0" class="0x030200" link_width="16"/>'
                       f'<pci busid="{card}" class="0x020700" link_width="16"/></pci>')
        out.append("</cpu>")
    path = tmp_path / "topo.xml"
    path.write_text("\n".join([*out, "</system>"]))
    return path


def placed(checker, tmp_path, path, node=None):
    table = tmp_path / "skus.conf"
    table.write_text(f"ours fabric=infiniband devices=8 gpus=8 topology={path}\n")
    return checker.node(node or trees.azure(8, cases.NDR, 8), "--sku-table", table, "--sku", "ours", "--health", "require",
                        env={"AMLDIST_NVML": str(LIBRARY)})


def test_gpus_and_cards_where_the_sizes_file_has_them(checker, tmp_path):
    outcome = placed(checker, tmp_path, topology(tmp_path))
    assert outcome.status == 0 and outcome.verdicts["gpu.topology"] == "pass", outcome.out
    assert "16 devices" in outcome.checks["gpu.topology"]["evidence"]


def test_a_card_on_another_numa_node_than_the_file_has_it(checker, tmp_path):
    outcome = placed(checker, tmp_path, topology(tmp_path, moved={0: 5, 5: 0}))
    assert outcome.status == 1 and outcome.verdicts["gpu.topology"] == "fail", outcome.out
    assert "1000:00:00.0 (NUMA node 0) is far from mlx5_ib5 (1)" in outcome.checks["gpu.topology"]["evidence"]


def test_a_device_that_is_not_where_it_should_be(checker, tmp_path):
    node = trees.azure(8, cases.NDR, 8)
    node.gpus[3].pci = "1999:00:00.0"
    outcome = placed(checker, tmp_path, topology(tmp_path), node)
    assert outcome.verdicts["gpu.topology"] == "fail" and "no GPU at 1003:00:00.0" in outcome.checks["gpu.topology"]["evidence"]


def test_numa_nodes_that_a_virtual_machine_does_not_tell_are_no_finding(checker, tmp_path):
    node = trees.azure(8, cases.NDR, 8)
    for device in node.devices:
        device.numa = "-1"
    assert placed(checker, tmp_path, topology(tmp_path, moved={0: 5, 5: 0}), node).verdicts["gpu.topology"] == "pass"


@pytest.mark.parametrize("content", ["", "<system>", "<system></cpu>", "<system></system>", "<a>" * 40, "<pci busid=\"1\" class=\"0x0302",
                                     '<pci busid="1000:00:00.0" class="0x030200"/>', "<!-- " * 9, "\x00<\xff>"])
def test_a_file_that_is_no_topology_is_unknown(checker, tmp_path, content):
    path = tmp_path / "topo.xml"
    path.write_text(content)
    outcome = placed(checker, tmp_path, path)
    assert outcome.status == 0 and outcome.verdicts["gpu.topology"] == "unknown", outcome.out
    assert placed(checker, tmp_path, tmp_path / "missing.xml").verdicts["gpu.topology"] == "unknown"


# ---------------------------------------------------------------------------------------------------------------- AMD

AMD = conftest.TOOL.resolve().parent.parent / "lib/tests/libfake_rocm_smi.so"


def amd_node(**change):
    node = trees.azure(8, cases.NDR, 8)
    for gpu in node.gpus:
        gpu.vendor = "0x1002"
    node.modules = {"mlx5_core": "24.04", "mlx5_ib": "24.04", "amdgpu": "6.8.5"}
    return node


def ask_amd(checker, *arguments, node=None, library=AMD, **fake):
    return checker.node(node or amd_node(), "--sku", "Standard_ND96isr_MI300X_v5", *arguments,
                        env={"AMLDIST_NVML": str(library), **{f"FAKE_RSMI_{key.upper()}": str(value) for key, value in fake.items()}})


def test_a_healthy_mi300x(checker):
    assert AMD.is_file()
    outcome = ask_amd(checker, "--health", "require")
    assert outcome.status == 0 and not {"fail", "warn", "unknown"} & set(gpus(outcome).values()), outcome.out
    assert {"gpu.count", "gpu.ecc", "gpu.rows", "gpu.nvlink"} <= {name for name, verdict in gpus(outcome).items() if verdict == "pass"}
    assert "driver 6.8.5" in outcome.checks["gpu.count"]["evidence"] and "XGMI" in outcome.checks["gpu.nvlink"]["evidence"]


@pytest.mark.parametrize("fake, check, said", [
    ({"gpus": 7}, "gpu.count", "the SKU: 8"),
    ({"lost": "3:1"}, "gpu.count", "GPU 3"),
    ({"init": 8}, "gpu.count", "RSMI_STATUS_INIT_ERROR"),
    ({"ecc": "3:5"}, "gpu.ecc", "GPU 3"),
    ({"ecc_gfx": "4:1"}, "gpu.ecc", "GPU 4"),
    ({"pending": "1:2"}, "gpu.rows", "pending"),
    ({"unreservable": "1:1"}, "gpu.rows", "failed"),
    ({"retired": "2:513"}, "gpu.rows", "513"),
    ({"pcie": "0:3"}, "gpu.nvlink", "4 of 7 XGMI links"),
])
def test_a_sick_gpu_of_amd(checker, fake, check, said):
    outcome = ask_amd(checker, "--health", "require", **fake)
    assert outcome.status == 1 and outcome.verdicts[check] == "fail", outcome.out
    assert said in outcome.checks[check]["evidence"]
    assert ask_amd(checker, **fake).verdicts[check] == "warn"


def test_links_of_amd_with_errors_are_a_warning(checker):
    outcome = ask_amd(checker, "--health", "require", xgmi_error="3:1")
    assert outcome.status == 0 and outcome.verdicts["gpu.nvlink"] == "warn", outcome.out


@pytest.mark.parametrize("fake", [{"lacks": 1}, {"retired": "1:12"}, {"pcie": ",".join(f"{index}:7" for index in range(8))}])
def test_what_is_healthy_on_other_models_of_amd(checker, fake):
    outcome = ask_amd(checker, "--health", "require", **fake)
    assert outcome.status == 0 and not {"fail", "warn", "unknown"} & set(gpus(outcome).values()), outcome.out


def test_without_the_library_the_bus_counts_amds_gpus(checker):
    outcome = ask_amd(checker, "--health", "require", library="/nonexistent.so")
    assert outcome.status == 0 and outcome.verdicts["gpu.count"] == "pass", outcome.out
    node = amd_node()
    node.gpus.pop()
    outcome = ask_amd(checker, "--health", "require", library="/nonexistent.so", node=node)
    assert outcome.status == 1 and "7 GPUs" in outcome.checks["gpu.count"]["evidence"], outcome.out


def test_lanes_from_the_bus_where_the_library_does_not_tell_them(checker):
    node = amd_node()

    def narrow(sys, dev):
        folder = (sys / "bus/pci/devices/1003:00:00.0").resolve()
        trees.write(folder / "current_link_width", "8")
        trees.write(folder / "max_link_width", "16")
    node.after.append(narrow)
    outcome = ask_amd(checker, "--health", "require", node=node)
    assert outcome.status == 1 and "x8 of x16" in outcome.checks["gpu.pcie"]["evidence"], outcome.out


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
    ("NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", "fail"),
    ("NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", "pass"),
    ("NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)", "pass"),
    ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149", "pass"),
    ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "fail"),
    ("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "pass"),
    ("NVRM: Xid (PCI:0000:01:00): 140, pid=7, An uncorrectable ECC error detected", "fail"),
    ("NVRM: Xid (PCI:0000:01:00): 143, pid='<unknown>', GPU initialization failed", "fail"),
    ("NVRM: GPU 0000:4f:00.0: RmInitAdapter failed! (0x62:0x40:2393)", "fail"),
    ("NVRM: GPU at PCI:0000:4f:00: GPU-b850f46d has fallen off the bus.", "fail"),
    ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)", "pass"),
    ("NVRM: gpuClearFbhubPoisonIntrForBug2924523_GA100: FBHUB Interrupt detected. Clearing it.", "pass"),
    ("NVRM: Xid (PCI:0001:00:00): 13, pid=9, Graphics Exception", "pass"),
    ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07", "pass"),
])
def test_xids_of_the_hardware(checker, tmp_path, line, verdict):
    log = tmp_path / "kmsg"
    log.write_text(f"3,1,2,-;{line}\n")
    outcome = ask(checker, "--health", "require", "--kernel-log", log)
    assert outcome.verdicts["gpu.xid"] == verdict and outcome.status == (1 if verdict == "fail" else 0), outcome.out


# What is on the bus is expected where neither Slurm nor a table says how many: what NVML cannot know is not.
@pytest.mark.parametrize("card, count", [
    ({"vendor": "0x1002", "pci_class": "0x030000"}, "pass"),   # a processor's own graphics
    ({"driver": "vfio-pci"}, "pass"), ({"driver": "pci-stub"}, "pass"),
    ({"driver": "nvidia"}, "fail"), ({}, "fail"),              # a ninth that NVML does not list: it did not start
], ids=["AMD's display", "a virtual machine's", "kept back", "lost", "without a driver"])
def test_gpus_of_the_bus_that_nvml_does_not_list(checker, card, count):
    node = trees.azure(8, cases.NDR, 8)
    node.gpus.append(trees.Gpu("0000:c5:00.0", "pci0000:c0/0000:c0:08.1", **card))
    outcome = checker.node(node, "--health", "require", env={"AMLDIST_NVML": str(LIBRARY)})
    assert outcome.verdicts["gpu.count"] == count, outcome.out
