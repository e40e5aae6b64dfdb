"""What ports and GPUs of a node have in common is compared, what must be their own is looked for twice, and single values that
mean nothing good by themselves are named. Written from issues of the field; nothing is computed from the code under test."""

import copy

import cases
import pytest
import shapes
import trees

KEYS = {0: "0x8018", 1: "0x7fff", 2: "0x0000"}


def eight() -> trees.Node:
    return trees.azure(8, cases.NDR, 8, pci_id="0x1021", virtual=False)


def rails() -> trees.Node:
    return trees.roce(4)


def sick(change, index=5, node=None):
    node = node or eight()
    change(node.devices[index], node.devices[index].ports[0])
    return node


def set_port(**values):
    return lambda device, port: [setattr(port, name, copy.deepcopy(value)) for name, value in values.items()]


def set_device(**values):
    return lambda device, port: [setattr(device, name, copy.deepcopy(value)) for name, value in values.items()]


# ------------------------------------------------------------------------------------------------------- who differs

@pytest.mark.parametrize("what, change, check, mine, theirs", [
    ("partition", set_port(pkeys={0: "0x8022", 1: "0x7fff"}), "ib.pkey", "0x8022", "0x8018"),
    ("one partition more", set_port(pkeys={0: "0x8018", 1: "0x7fff", 2: "0x8044"}), "ib.pkey", "0x8044", "0x8018"),
    ("speed", set_device(link=("16.0 GT/s PCIe", "16.0 GT/s PCIe", "16", "16")), "ib.pcie", "16.0 GT/s x16", "32.0 GT/s x16"),
    ("lanes", set_device(link=("32.0 GT/s PCIe", "32.0 GT/s PCIe", "8", "8")), "ib.pcie", "32.0 GT/s x8", "32.0 GT/s x16"),
    ("firmware", set_device(fw_ver="28.36.1010"), "ib.fw", "28.36.1010", "28.41.1000"),
    ("no NUMA node", set_device(numa="-1"), "ib.affinity", "NUMA node -1 (unknown)", "known"),
    ("no interface", set_device(netdevs={}), "ib.netdev", "none", "present"),
    ("a virtual function", set_device(virtual=True), "ib.vf", "virtual", "physical"),
])
def test_a_port_that_differs_from_its_siblings_is_named_with_both_values(checker, what, change, check, mine, theirs):
    outcome = checker.node(sick(change))
    said = outcome.checks[check]
    assert said["verdict"] in ("warn", "fail") and said["remedy"], outcome.out
    assert mine in said["evidence"] and theirs in said["evidence"], said
    if check != "ib.fw":  # which names the versions
        assert "mlx5_ib5:1" in said["evidence"], said


def test_a_port_in_another_partition_than_seven_others_is_refused_where_the_fabric_is_required(checker):
    node = sick(set_port(pkeys={0: "0x8022", 1: "0x7fff"}))
    assert checker.node(node, "--policy", "require").status == 1
    assert checker.node(node, "--policy", "prefer").status == 0


def test_rails_each_in_a_partition_of_its_own_are_no_fault(checker):
    node = eight()
    for index in range(8):
        node.port(index).pkeys = {0: f"0x80{index + 1:02x}", 1: "0x7fff"}
    outcome = checker.node(node, "--policy", "require")
    assert outcome.status == 0 and outcome.verdicts["ib.pkey"] == "warn", outcome.out


def test_rails_with_a_subnet_each_are_siblings_all_the_same(checker):
    node = sick(set_device(numa="-1"))
    for index in range(8):
        node.port(index).gids = {0: (f"fec0:0000:0000:000{index}:0015:5dff:fe33:ff{index:02x}", "IB/RoCE v1", "")}
    said = checker.node(node).checks["ib.affinity"]
    assert said["verdict"] == "warn" and "mlx5_ib5:1: NUMA node -1 (unknown)" in said["evidence"], said


@pytest.mark.parametrize("change, said", [
    (set_port(state="1: DOWN", phys_state="3: Disabled"), "mlx5_ib5:1 is not used: InfiniBand, 1: DOWN; mlx5_ib0:1 and 6 more: InfiniBand, 4: ACTIVE"),
    (set_port(link_layer="Ethernet", gids=shapes.link_local(7, "ens7")), "mlx5_ib5:1 is not used: Ethernet, 4: ACTIVE"),
])
def test_a_port_that_nobody_uses_is_named_where_those_of_its_model_are_used(checker, change, said):
    outcome = checker.node(sick(change), "--policy", "require")
    assert outcome.status == 0 and outcome.verdicts["ib.state"] == "warn" and said in outcome.checks["ib.state"]["evidence"], outcome.out
    two_cards = trees.Node([sick(change).devices[index] for index in (4, 5, 6)])
    assert checker.node(two_cards, "--policy", "require").verdicts["ib.state"] == "pass", "of so few nothing can be said"
    told = checker.node(sick(change), "--policy", "require", env={"NCCL_IB_HCA": "^=mlx5_ib5"})
    assert told.verdicts["ib.state"] == "pass", told.out


def test_cards_of_two_models_are_no_siblings(checker):
    node = sick(set_device(hca_type="MT4125", board_id="MT_0000000359", fw_ver="22.39.1002",
                           link=("16.0 GT/s PCIe", "16.0 GT/s PCIe", "8", "8")), index=7)
    outcome = checker.node(node)
    assert outcome.verdicts["ib.pcie"] == outcome.verdicts["ib.fw"] == "pass", outcome.out


@pytest.mark.parametrize("gids, mine", [
    (shapes.link_local(7, "ens2"), None),
    ({0: ("fe80:0000:0000:0000:0a00:27ff:fe00:0007", "RoCE v2", ""), 1: ("fd00:0000:0000:0000:0000:0000:0000:0007", "RoCE v2", "")},
     "IPv6"),
    ({0: ("0000:0000:0000:0000:0000:ffff:a9fe:0107", "RoCE v2", "")}, "169.254"),
])
def test_a_rail_whose_addresses_are_of_another_kind(checker, gids, mine):
    node = rails()
    node.port(2).gids = gids
    outcome = checker.node(node, "--policy", "require")
    assert outcome.status == 1 and outcome.verdicts["ib.gid"] == "fail", outcome.out
    assert "mlx5_2:1" in outcome.checks["ib.gid"]["evidence"]
    assert mine is None or mine in outcome.checks["ib.gid"]["evidence"] or mine == "IPv6"


# ------------------------------------------------------------------------------------------------------- what is unique

def same_lid(node):
    node.port(5).lid = node.port(2).lid


def same_guid(node):
    node.devices[5].guid = node.devices[2].guid


def same_gid(node):
    node.port(5).gids = node.port(2).gids


@pytest.mark.parametrize("change, check, what", [(same_lid, "ib.lid", "LID"), (same_guid, "ib.gid", "GUID"), (same_gid, "ib.gid", "GID")])
def test_two_ports_with_one_identity_are_both_named(checker, change, check, what):
    node = eight()
    change(node)
    said = checker.node(node, "--policy", "require").checks[check]
    assert said["verdict"] in ("warn", "fail") and f"mlx5_ib2:1 and mlx5_ib5:1 have the same {what}" in said["evidence"], said


def test_one_lid_in_two_subnets_is_no_fault(checker):
    node = eight()
    for index in range(8):
        port = node.port(index)
        port.lid, port.gids = "0x7", {0: (f"fec0:0000:0000:000{index}:0015:5dff:fe33:ff{index:02x}", "IB/RoCE v1", "")}
    assert checker.node(node, "--policy", "require").verdicts["ib.lid"] == "pass"
    node.port(3).gids = {0: ("fec0:0000:0000:0002:0015:5dff:fe33:ff03", "IB/RoCE v1", "")}
    assert checker.node(node, "--policy", "require").verdicts["ib.lid"] == "fail", "both in a subnet that has a prefix of its own"


@pytest.mark.parametrize("node, one, other", [(eight(), "ib2", "ib5"), (rails(), "ens1", "ens3")])
def test_two_interfaces_with_one_hardware_address(checker, node, one, other):
    for name in (one, other):
        node.after.append(lambda sys, dev, name=name: trees.write(sys / f"class/net/{name}/address", "a0:88:c2:00:00:01"))
    said = checker.node(node).checks["ib.netdev"]
    assert said["verdict"] == "warn" and "have the same hardware address a0:88:c2:00:00:01" in said["evidence"], said


def test_two_interfaces_with_one_address(checker):
    node = rails()
    node.port(3).gids = node.port(1).gids
    said = checker.node(node).checks["ib.gid"]
    assert said["verdict"] == "warn" and "mlx5_1:1 and mlx5_3:1" in said["evidence"], said


# ----------------------------------------------------------------------------------------------------- single facts

@pytest.mark.parametrize("pkeys", [{0: "0x8000"}, {0: "0x8000", 1: "0x7fff"}, {0: "0x0000", 1: "0x8000"}])
def test_a_key_of_no_partition_is_no_membership(checker, pkeys):
    node = sick(set_port(pkeys=pkeys))
    outcome = checker.node(node, "--policy", "require")
    assert outcome.status == 1 and outcome.verdicts["ib.pkey"] == "fail", outcome.out


@pytest.mark.parametrize("values", [{"state": "4: ACTIVE_DEFER"}, {"state": "4: ACTIVELY"}, {"state": "4: DOWN"},
                                    {"phys_state": "5: LinkUpX"}, {"phys_state": "5: Polling"}])
def test_a_state_that_only_begins_like_a_known_one(checker, values):
    outcome = checker.node(sick(set_port(**values)), "--policy", "require")
    assert outcome.status == 1 and outcome.verdicts["ib.state"] == "fail", outcome.out


@pytest.mark.parametrize("is_named_below_the_card", [False, True])
def test_a_device_file_without_the_kernels_verbs(checker, is_named_below_the_card):
    node = eight()
    if is_named_below_the_card:
        node.after.append(lambda sys, dev: [(sys / f"class/infiniband/mlx5_ib{index}/device/infiniband_verbs/uverbs{index}").mkdir(parents=True)
                                            for index in range(8)])
    node.after.append(lambda sys, dev: __import__("shutil").rmtree(sys / "class/infiniband_verbs"))
    outcome = checker.node(node, "--policy", "require")
    assert outcome.status == 1 and "ib_uverbs" in outcome.checks["ib.devnode"]["remedy"], outcome.out


@pytest.mark.parametrize("name, value", [("out_of_sequence", "250000"), ("out_of_sequence", "4000"), ("packet_seq_err", "90000"),
                                         ("local_ack_timeout_err", "5000"), ("req_transport_retries_exceeded", "40"), ("rp_cnp_handled", "90000000"),
                                         ("out_of_buffer", "500000"), ("roce_slow_restart", "400000"), ("np_ecn_marked_roce_packets", "90000000"),
                                         ("to_retransmits", "30000"), ("max_retry_exceeded", "4"), ("req_rx_pkt_seq_err", "30000"), ("retry_exceeded_err", "9")])
def test_loss_that_only_one_rails_counters_show(checker, name, value):
    node = rails()
    for index in range(4):
        node.port(index).counters[name] = value if index == 2 else "0"
    said = checker.node(node).checks["roce.counters"]
    assert said["verdict"] == "warn" and f"mlx5_2:1 {name} {value}" in said["evidence"], said
    for index in range(4):
        node.port(index).counters[name] = value
    assert checker.node(node).verdicts["roce.counters"] == "pass", "all alike: since the driver was loaded that says nothing"


def with_gpus() -> trees.Node:
    return trees.azure(8, cases.NDR, 8)


@pytest.mark.parametrize("env", [{"NCCL_NET_GDR_LEVEL": "LOC"}, {"NCCL_NET_GDR_LEVEL": "0"}, {"NCCL_IB_CUDA_SUPPORT": "0"},
                                 {"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"},
                                 {"UCX_NET_DEVICES": "mlx5_77:1"}, {"UCX_NET_DEVICES": "mlx5_ib0"},
                                 {"NCCL_IB_HCA": "=mlx5_ib0, mlx5_ib1"}, {"NCCL_IB_HCA": "=mlx5_ib0 ,mlx5_ib1"}])
def test_a_setting_by_which_the_fabric_is_not_used(checker, env):
    required = checker.node(with_gpus(), "--policy", "require", env=env)
    assert required.status == 1 and required.verdicts["ib.env"] == "fail", required.out
    assert next(iter(env)) in required.checks["ib.env"]["evidence"] and required.checks["ib.env"]["remedy"]
    preferred = checker.node(with_gpus(), "--policy", "prefer", env=env)
    assert preferred.status == 0 and preferred.verdicts["ib.env"] == "warn", preferred.out


@pytest.mark.parametrize("env", [{"NCCL_NET_GDR_LEVEL": "PIX"}, {"NCCL_NET_GDR_LEVEL": "SYS"}, {"NCCL_DMABUF_ENABLE": "0"},
                                 {"UCX_NET_DEVICES": "eth0"}, {"UCX_NET_DEVICES": "mlx5_77:1,mlx5_ib3:1"}])
def test_a_setting_that_leaves_the_fabric_in_use(checker, env):
    assert checker.node(with_gpus(), "--policy", "require", env=env).status == 0
    assert checker.node(trees.azure(8, cases.NDR, 0), "--policy", "require", env={"NCCL_NET_GDR_LEVEL": "LOC"}).status == 0


@pytest.mark.parametrize("name", ["mlx5_0", "rocep0s2", "hca"])
@pytest.mark.parametrize("master", [True, False])
def test_accelerated_networking_alone_is_no_fabric_whatever_its_name(checker, name, master):
    node = trees.Node([shapes.accelerator(name, address=True, master=master)])
    assert checker.node(node, "--policy", "require").status == 1
    assert checker.node(node).status == 3


# -------------------------------------------------------------------------------------------------------------- GPUs

SLOT = ("2.5 GT/s PCIe", "32.0 GT/s PCIe", "16", "16")


@pytest.mark.parametrize("change, said", [(lambda gpu: setattr(gpu, "numa", "-1"), "NUMA node -1"),
                                          (lambda gpu: setattr(gpu, "driver", None), "driver none"),
                                          (lambda gpu: setattr(gpu, "link", (*SLOT[:2], "8", "16")), "PCIe lanes x8"),
                                          (lambda gpu: setattr(gpu, "link", (SLOT[0], "8.0 GT/s PCIe", *SLOT[2:])), "PCIe limit 8.0 GT/s x16")])
def test_a_gpu_that_differs_from_its_siblings(checker, change, said):
    node = with_gpus()
    for index, gpu in enumerate(node.gpus):
        gpu.driver, gpu.link = "nvidia", ("32.0 GT/s PCIe" if index == 1 else SLOT[0], *SLOT[1:])
    assert checker.node(node).verdicts["host.pci"] == "pass", "one of them is busy"
    change(node.gpus[3])
    found = checker.node(node).checks["host.pci"]
    assert found["verdict"] == "warn" and said in found["evidence"] and node.gpus[3].pci in found["evidence"], found


def test_fewer_gpus_on_the_bus_than_the_sku_has(checker):
    node = with_gpus()
    del node.gpus[3]
    outcome = checker.node(node, "--sku", "Standard_ND96isr_H100_v5", "--health", "require")
    assert outcome.status == 1 and "7 GPUs on the PCI bus" in outcome.checks["gpu.count"]["evidence"], outcome.out


def test_health_that_nothing_could_verify_is_unknown(checker):
    outcome = checker.node(with_gpus(), "--health", "require")
    assert outcome.verdicts["gpu.count"] == "unknown" and "nothing could be verified" in outcome.checks["gpu.count"]["evidence"], outcome.out
    assert checker.node(with_gpus(), "--health", "require", "--policy", "require", "--unknown", "fail").status == 1
    assert checker.node(trees.azure(8, cases.NDR, 0), "--health", "require").verdicts["gpu.count"] == "skip", "a node without GPUs"
