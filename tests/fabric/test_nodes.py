"""Every fabricated node gets the verdicts that the table gives it: healthy ones, each fault alone, and faults in pairs."""

import cases
import pytest
import trees

SKUS = "pair fabric=infiniband devices=2 rate=400\n"


@pytest.fixture
def sku(tmp_path):
    table = tmp_path / "skus.conf"
    table.write_text(SKUS)
    return ["--sku-table", table, "--sku", "pair"]


def assert_verdicts(outcome, expected, name):
    got = outcome.verdicts
    wrong = {check: (got.get(check), verdict) for check, verdict in expected.items() if got.get(check) != verdict}
    assert not wrong, f"{name}: got, expected: {wrong}\n{outcome.out}"
    overall = cases.worst(expected.values())
    assert outcome.report["verdict"] == overall, name
    assert outcome.status == (1 if overall == "fail" else 0), name
    for check in outcome.checks.values():
        assert check["evidence"], check
        assert check["verdict"] in ("pass", "skip") or check["remedy"], check


@pytest.mark.parametrize("name", cases.healthy())
def test_a_published_healthy_node_passes(checker, name):
    node, arguments = cases.healthy()[name]
    outcome = checker.node(node, *arguments)
    assert outcome.report["verdict"] == "pass" and outcome.status == 0, outcome.out
    assert "fail" not in outcome.verdicts.values() and "warn" not in outcome.verdicts.values(), outcome.out


@pytest.mark.parametrize("name", cases.FAULTS)
def test_a_fault_alone(checker, sku, name):
    node, expected = cases.alone()[name]
    outcome = checker.node(node, *sku)
    assert_verdicts(outcome, expected, name)
    # The sick port or device is named, and the healthy one is not blamed.
    blamed = [check["evidence"] for check in outcome.checks.values() if check["verdict"] in ("fail", "warn")]
    for evidence in blamed:
        assert "mlx5_ib0:1 " not in evidence, evidence


def test_the_table_is_large_enough():
    assert len(cases.healthy()) + len(cases.FAULTS) + len(cases.pairs()) > 150


def test_faults_in_pairs(checker, sku):
    for name, (node, expected) in cases.pairs().items():
        assert_verdicts(checker.node(node, *sku), expected, name)


def test_a_healthy_base_is_what_the_table_says(checker, sku):
    assert checker.node(cases.base(), *sku).verdicts == cases.BASE


@pytest.mark.parametrize("policy, status, verdict", [("require", 1, "fail"), ("prefer", 3, "skip"), ("off", 3, "skip"),
                                                     (None, 3, "skip")])
@pytest.mark.parametrize("has_class", [True, False])
def test_no_device_at_all(checker, policy, status, verdict, has_class):
    arguments = ["--policy", policy] if policy else []
    outcome = checker.node(trees.Node([], has_class=has_class), *arguments)
    assert (outcome.status, outcome.report["verdict"]) == (status, verdict), outcome.out
    if policy == "require":
        assert outcome.verdicts["ib.sysfs"] == "fail" and "no device" in outcome.checks["ib.sysfs"]["evidence"]


def test_only_accelerated_networking_is_no_fabric(checker):
    node = trees.Node([trees.accelerated_networking()])
    outcome = checker.node(node)
    assert (outcome.status, outcome.report["verdict"]) == (3, "skip"), outcome.out
    assert checker.node(node, "--policy", "require").status == 1


def test_efa_alone_is_not_for_nccls_verbs(checker):
    outcome = checker.node(trees.efa(), "--policy", "require")
    assert outcome.status == 1 and outcome.verdicts["ib.linklayer"] == "fail", outcome.out


@pytest.mark.parametrize("sku_name", ["Standard_NC24r", "Standard_H16r", "H16mr", "Standard_NC24s_v3",
                                      "Standard_NC96ads_A100_v4", "Standard_ND96is_H100_v5", "Standard_D64s_v5"])
def test_a_sku_without_usable_infiniband_is_warned_about(checker, sku_name):
    outcome = checker.node(trees.Node([]), "--sku", sku_name)
    assert outcome.verdicts["ib.policy"] == "warn" and outcome.status == 0, outcome.out
    outcome = checker.node(trees.Node([]), "--sku", sku_name, "--policy", "require")
    assert outcome.status == 1, outcome.out


def test_the_r_of_standard_does_not_count(checker):
    outcome = checker.node(trees.Node([]), "--sku", "Standard_NC6s_v9")
    assert outcome.verdicts["ib.policy"] == "warn"
    outcome = checker.node(trees.Node([]), "--sku", "Standard_NC6rs_v9")
    assert outcome.verdicts["ib.policy"] == "unknown" and outcome.status == 1


def test_a_lost_card_among_eight(checker):
    node = trees.azure(7, cases.NDR, 8)
    outcome = checker.node(node, "--sku", "Standard_ND96isr_H100_v5")
    assert outcome.status == 1 and outcome.verdicts["ib.count"] == "fail"
    assert "7 devices" in outcome.checks["ib.count"]["evidence"] and "has 8" in outcome.checks["ib.count"]["evidence"]


@pytest.mark.parametrize("policy, verdict", [("require", "fail"), ("prefer", "warn")])
def test_a_degraded_rate_weighs_by_the_policy(checker, policy, verdict):
    node = trees.azure(8, cases.NDR, 0)
    node.port(3).rate = "200 Gb/sec (4X HDR)"
    for arguments in ([], ["--sku", "ND96isr_H100_v5"]):
        outcome = checker.node(node, "--policy", policy, *arguments)
        assert outcome.verdicts["ib.rate"] == verdict, outcome.out
        assert outcome.status == (1 if verdict == "fail" else 0)


def test_everything_in_ethernet_mode(checker):
    node = trees.azure(8, cases.NDR, 0)
    for device in node.devices:
        device.ports[0].link_layer = "Ethernet"
    outcome = checker.node(node, "--sku", "Standard_ND96isr_H100_v5")
    assert outcome.status == 1 and outcome.verdicts["ib.linklayer"] == outcome.verdicts["ib.count"] == "fail"


def test_the_second_port_of_a_card_need_not_be_cabled(checker):
    """Unless the user names it, or the table says that it should be there."""
    node = cases.base()
    node.devices[0].ports.append(trees.Port(number=2, state="1: DOWN", phys_state="2: Polling", gids=trees.ib_gids(9)))
    outcome = checker.node(node, "--policy", "require")
    assert outcome.status == 0 and "mlx5_ib0:2 (another port" in outcome.checks["ib.count"]["evidence"], outcome.out
    outcome = checker.node(node, env={"NCCL_IB_HCA": "=mlx5_ib0:1,mlx5_ib0:2"})
    assert outcome.status == 1 and "mlx5_ib0:2" in outcome.checks["ib.state"]["evidence"], outcome.out


def test_a_port_that_is_down_beside_others_may_be_meant_for_something_else(checker):
    node = cases.base()
    node.port(1).state, node.port(1).phys_state = "1: DOWN", "2: Polling"
    outcome = checker.node(node)
    assert outcome.status == 1 and "hca=" in outcome.checks["ib.state"]["remedy"], outcome.out


def test_half_of_the_cards_without_a_cable_is_a_warning_unless_all_are_required(checker):
    node = trees.azure(8, cases.NDR, 0)
    for index in range(4):
        node.port(index).state, node.port(index).phys_state = "1: DOWN", "2: Polling"
    outcome = checker.node(node)
    assert outcome.status == 0 and outcome.verdicts["ib.state"] == "warn", outcome.out
    assert "hca=" in outcome.checks["ib.state"]["remedy"]
    assert checker.node(node, "--policy", "require").status == 1
    assert checker.node(node, "--sku", "ND96isr_H100_v5").status == 1


def test_a_card_that_hca_leaves_out_does_not_make_up_for_a_lost_one(checker, tmp_path):
    """The example of the manual: eight of nine, without mlx5_8."""
    table = tmp_path / "skus.conf"
    table.write_text("dgx fabric=infiniband devices=8 rate=400 hca=^mlx5_8\n")
    node = trees.azure(9, cases.NDR, 0, prefix="mlx5_")
    assert checker.node(node, "--sku-table", table, "--sku", "dgx").status == 0
    del node.devices[3]
    outcome = checker.node(node, "--sku-table", table, "--sku", "dgx")
    assert outcome.status == 1 and outcome.verdicts["ib.count"] == "fail", outcome.out


def test_gb300_has_four(checker):
    outcome = checker.node(trees.azure(3, cases.NDR, 4), "--sku", "Standard_ND128isr_GB300_v6")
    assert outcome.status == 1 and outcome.verdicts["ib.count"] == "fail", outcome.out


@pytest.mark.parametrize("name, near", [("Standard_ND96isr_H10_v5", "ND96isr_H100_v5"), ("ND96isrf_H20_v5", "ND96isrf_H200_v5"),
                                        ("Standard_HB12rs_v3", "HB120rs_v3")])
def test_a_size_that_is_not_in_the_table_is_said_with_the_nearest(checker, name, near):
    outcome = checker.node(trees.azure(1, cases.NDR, 0), "--sku", name)
    assert outcome.verdicts["ib.policy"] == "unknown" and near in outcome.checks["ib.policy"]["remedy"], outcome.out
    assert outcome.status == 0 and outcome.report["verdict"] == "unknown"
    assert checker.node(trees.azure(1, cases.NDR, 0), "--sku", name, "--unknown", "fail").status == 1


def test_unknown_fails_where_the_policy_says_so(checker):
    node = cases.base()
    node.port(0).counters["symbol_error"] = "many"
    for arguments, status, verdict in ((["--policy", "require"], 0, "unknown"), (["--unknown", "fail"], 0, "unknown"),
                                       (["--policy", "require", "--unknown", "fail"], 1, "fail")):
        outcome = checker.node(node, *arguments)
        assert (outcome.status, outcome.report["verdict"]) == (status, verdict), outcome.out
        assert outcome.verdicts["ib.err"] == "unknown"


def test_a_bus_that_cannot_be_read_is_unknown(checker):
    node = trees.azure(2, cases.NDR, 0)
    node.after.append(lambda sys, dev: ((sys / "bus/pci/devices").rename(sys / "away"),
                                        trees.write(sys / "bus/pci/devices", "")))
    assert checker.node(node).verdicts["ib.affinity"] == "unknown"


@pytest.mark.parametrize("selection", ["mlx5", "^mlx5_ib7", "mlx5_an0,mlx5_ib0"])
def test_a_selection_that_takes_accelerated_networking_in_fails(checker, selection):
    node = trees.azure(8, cases.NDR, 0)
    outcome = checker.node(node, env={"NCCL_IB_HCA": selection})
    assert outcome.status == 1 and "mlx5_an0:1" in outcome.checks["ib.env"]["evidence"], outcome.out
    assert outcome.checks["ib.env"]["remedy"].startswith("NCCL_IB_HCA==mlx5_ib0:1")


# ------------------------------------------------------------------------------------------------------------ RoCE GIDs

UNUSED = ("0000:0000:0000:0000:0000:0000:0000:0000", "", "")
LOCAL = "fe80:0000:0000:0000:0a00:27ff:fe00:0001"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a00:0001"
OWN = "0000:0000:0000:0000:0000:ffff:a9fe:0102"
IPV6 = "fd00:0000:0000:0000:0000:0000:0000:0001"


@pytest.mark.parametrize("gids, env, verdict, said", [
    ({0: (LOCAL, "IB/RoCE v1", "e"), 1: (LOCAL, "RoCE v2", "e")}, {}, "fail", "no routable RoCE v2 GID"),
    ({0: UNUSED, 1: UNUSED}, {}, "fail", "no routable"),
    ({0: (LOCAL, "IB/RoCE v1", "e"), 1: (IPV4, "IB/RoCE v1", "e"), 2: (IPV4, "RoCE v2", "e")}, {}, "pass", "GID 2"),
    (trees.roce_gids(1), {"NCCL_IB_GID_INDEX": "3"}, "pass", "GID 3"),
    (trees.roce_gids(1), {"NCCL_IB_GID_INDEX": "0x3"}, "pass", "GID 3"),
    (trees.roce_gids(1), {"NCCL_IB_GID_INDEX": "7"}, "fail", "GID 7 is unused"),
    (trees.roce_gids(1), {"NCCL_IB_GID_INDEX": "0"}, "warn", "not a routable"),
    (trees.roce_gids(1), {"NCCL_IB_GID_INDEX": "-1"}, "pass", "GID 3"),
    (trees.roce_gids(1), {"NCCL_IB_GID_INDEX": "three"}, "pass", "GID 3"),
    (trees.roce_gids(1), {"UCX_IB_GID_INDEX": "9"}, "fail", "UCX_IB_GID_INDEX"),
    (trees.roce_gids(1), {"UCX_IB_GID_INDEX": "auto"}, "pass", "GID 3"),
    (trees.roce_gids(1), {"NCCL_IB_ROCE_VERSION_NUM": "1"}, "fail", "GID 2"),
    (trees.roce_gids(1), {"NCCL_IB_ADDR_RANGE": "10.0.0.0/24"}, "pass", "GID 3"),
    ({0: (LOCAL, "IB/RoCE v1", "e"), 1: (IPV6, "RoCE v2", "e")}, {}, "warn", "GID 1"),
    ({0: (LOCAL, "IB/RoCE v1", "e"), 1: (IPV6, "RoCE v2", "e")}, {"NCCL_IB_ADDR_FAMILY": "AF_INET"}, "fail", "GID 0"),
    ({0: (LOCAL, "RoCE v2", "e"), 1: (OWN, "RoCE v2", "e")}, {}, "fail", "169.254"),
    ({0: (LOCAL, "IB/RoCE v1", "e"), 1: (IPV6, "RoCE v2", "e")}, {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, "pass", "GID 1"),
    ({0: (IPV4, "", "e")}, {}, "unknown", "version"),
    ({0: ("garbage", "RoCE v2", "e")}, {}, "fail", "garbage"),
])
def test_the_gid_that_nccl_would_take(checker, gids, env, verdict, said):
    node = trees.roce(1)
    node.port().gids = gids
    outcome = checker.node(node, "--policy", "require", env=env)
    assert outcome.verdicts["ib.gid"] == verdict and said in outcome.checks["ib.gid"]["evidence"], outcome.out


# --------------------------------------------------------------------------------------- what the user selects by himself

def twelve() -> trees.Node:
    return trees.azure(12, cases.NDR, 0, prefix="mlx5_")


@pytest.mark.parametrize("env, verdict, said", [
    ({}, "pass", "no variable is set"),
    ({"NCCL_IB_HCA": "mlx5"}, "fail", "mlx5_an0:1"),
    ({"NCCL_IB_HCA": "mlx5_1"}, "warn", "mlx5_10:1"),
    ({"NCCL_IB_HCA": "=mlx5_1"}, "pass", "selects mlx5_1:1"),
    ({"NCCL_IB_HCA": "=mlx5_1:1,mlx5_2"}, "pass", "selects mlx5_1:1,mlx5_2:1"),
    ({"NCCL_IB_HCA": "mlx5_3:1"}, "pass", "selects mlx5_3:1"),
    ({"NCCL_IB_HCA": "mlx5_3:2"}, "fail", "no active port"),
    ({"NCCL_IB_HCA": "^mlx5_an,mlx5_1"}, "pass", "selects mlx5_0:1,mlx5_2:1"),
    ({"NCCL_IB_HCA": "^=mlx5_1,mlx5_an0"}, "pass", "mlx5_10:1"),
    ({"NCCL_IB_HCA": "^=mlx5_1"}, "fail", "mlx5_an0:1"),
    ({"NCCL_IB_HCA": "=^mlx5_1"}, "fail", "no active port"),
    ({"NCCL_IB_HCA": "=mlx5_1:"}, "warn", "other releases"),
    ({"NCCL_IB_HCA": "^"}, "fail", "no active port"),
    ({"NCCL_IB_HCA": "ib0"}, "fail", "no active port"),
    ({"NCCL_IB_HCA": "=mlx5"}, "fail", "no active port"),
    ({"NCCL_IB_HCA": ":1,,:"}, "fail", "mlx5_an0:1"),
    ({"NCCL_IB_HCA": "x" * 5000}, "fail", "no active port"),
    ({"NCCL_IB_DISABLE": "1"}, "warn", "sockets"),
    ({"NCCL_IB_DISABLE": "0"}, "pass", "no variable is set"),
    ({"NCCL_NET": "Socket"}, "warn", "sockets"),
    ({"UCX_NET_DEVICES": "mlx5_2:1"}, "pass", "selects mlx5_2:1"),
    ({"UCX_NET_DEVICES": "mlx5_2"}, "warn", "no active port"),
    ({"UCX_NET_DEVICES": "mlx5_2:2,eth0"}, "warn", "no active port"),
    ({"UCX_NET_DEVICES": "^mlx5_an0:1"}, "pass", "mlx5_0:1"),
    ({"UCX_NET_DEVICES": "mlx5_[2-4]:1"}, "pass", "selects mlx5_2:1,mlx5_3:1,mlx5_4:1"),
    ({"UCX_NET_DEVICES": "eth0,all"}, "pass", "selects"),
    ({"UCX_TLS": "tcp,sm,self"}, "warn", "every transport over verbs"),
    ({"UCX_TLS": "rc_x,sm"}, "pass", "no variable is set"),
    ({"UCX_TLS": "^ib"}, "warn", "every transport over verbs"),
    ({"UCX_TLS": "^tcp"}, "pass", "no variable is set"),
])
def test_the_users_own_selection(checker, env, verdict, said):
    outcome = checker.node(twelve(), env=env)
    assert outcome.verdicts["ib.env"] == verdict and said in outcome.checks["ib.env"]["evidence"], outcome.out


def test_a_warning_about_a_prefix_gives_the_exact_form(checker):
    outcome = checker.node(twelve(), env={"NCCL_IB_HCA": "mlx5_1"})
    assert "NCCL_IB_HCA==mlx5_1:1" in outcome.checks["ib.env"]["remedy"]


def test_a_port_that_the_user_leaves_out_is_not_judged(checker):
    node = twelve()
    node.port(5).state = "1: DOWN"
    assert checker.node(node).status == 1
    assert checker.node(node, env={"NCCL_IB_HCA": "^=mlx5_5,mlx5_an0"}).status == 0
    assert checker.node(node, env={"NCCL_IB_HCA": "=mlx5_4,mlx5_3"}).status == 0
    assert checker.node(node, env={"NCCL_IB_HCA": "=mlx5_5,mlx5_3"}).status == 1


@pytest.mark.parametrize("env, verdict, said", [
    ({"NCCL_IB_PKEY": "0"}, "pass", "0x8018"),
    ({"NCCL_IB_PKEY": "1"}, "fail", "limited member"),
    ({"NCCL_IB_PKEY": "9"}, "fail", "is empty"),
    ({"UCX_IB_PKEY": "0x8018"}, "pass", ""),
    ({"UCX_IB_PKEY": "0x18"}, "pass", ""),
    ({"UCX_IB_PKEY": "0xffff"}, "pass", ""),
    ({"UCX_IB_PKEY": "0x8022"}, "fail", "UCX_IB_PKEY"),
    ({"UCX_IB_PKEY": "1"}, "fail", "UCX_IB_PKEY"),
])
def test_nccls_partition_key_is_an_index_and_ucxs_a_value(checker, env, verdict, said):
    outcome = checker.node(cases.base(), env=env)
    assert outcome.verdicts["ib.pkey"] == verdict and said in outcome.checks["ib.pkey"]["evidence"], outcome.out


def test_the_exact_selection_leaves_accelerated_networking_out(checker):
    report = checker.node(trees.azure(2, cases.NDR, 0)).report
    assert report["nccl_ib_hca"] == "=mlx5_ib0:1,mlx5_ib1:1" and report["nccl_ib_gid_index"] is None
    assert checker.node(trees.roce()).report["nccl_ib_gid_index"] == 3


# -------------------------------------------------------------------------------------------------------- GPUs and PCIe

def gpu_node(**modules) -> trees.Node:
    node = trees.azure(2, cases.NDR, 2)
    node.modules = {"nvidia": "535", **modules}
    return node


def test_gpudirect_needs_one_of_three(checker):
    assert checker.node(gpu_node()).verdicts["ib.gdr"] == "warn"
    assert checker.node(gpu_node(nvidia_peermem="535")).verdicts["ib.gdr"] == "pass"
    assert checker.node(gpu_node(nv_peer_mem=None)).verdicts["ib.gdr"] == "pass"
    node = gpu_node()
    node.after.append(lambda sys, dev: trees.write(sys / "kernel/mm/memory_peers/nv_mem_nc/version", "1.0"))
    assert checker.node(node).verdicts["ib.gdr"] == "pass"


def test_gpudirect_can_be_required_by_the_table(checker, tmp_path):
    table = tmp_path / "skus.conf"
    table.write_text("gpus fabric=infiniband devices=2 gpudirect=require\n")
    outcome = checker.node(gpu_node(), "--sku-table", table, "--sku", "gpus")
    assert outcome.verdicts["ib.gdr"] == "fail" and outcome.status == 1


def test_affinity_of_gpus(checker):
    node = trees.azure(2, cases.NDR, 2)
    assert checker.node(node).verdicts["ib.affinity"] == "pass"
    far = node.copy()
    far.gpus[1] = trees.Gpu("2000:00:00.0", "pci2000:00/2000:00:01.0", "7")
    assert checker.node(far).verdicts["ib.affinity"] == "warn"
    unknown = far.copy()
    unknown.gpus = [unknown.gpus[1]]
    unknown.gpus[0].numa = "-1"
    assert checker.node(unknown).verdicts["ib.affinity"] == "skip"


# ---------------------------------------------------------------------------------------------------------- kernel log

@pytest.mark.parametrize("line, verdict", [
    ("mlx5_core 0000:17:00.0: Detected insufficient power on the PCIe slot (27W).", "warn"),
    ("mlx5_core 0000:17:00.0: mlx5_cmd_out_err: ACCESS_REG(0x805) op_mod(0x1) failed", "warn"),
    ("mlx5_core 0000:17:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link", "warn"),
    ("mlx5_core 0000:17:00.0: Port module event: error: module 0, High temperature", "warn"),
    ("mlx5_core 0000:17:00.0: print_health_info:442: synd 0x1: firmware internal error", "fail"),
    ("mlx5_core 0000:17:00.0: poll_health:795: Fatal error 1 detected", "fail"),
    ("mlx5_core 0000:17:00.0: mlx5_error_sw_reset:231: start; device's health compromised - reached miss count", "fail"),
    ("nvme 0000:02:00.0: 8.0 Gb/s available PCIe bandwidth, limited by 2.5 GT/s PCIe x4 link", "pass"),
    ("mlx5_core 0000:17:00.0: firmware version: 28.41.1000", "pass"),
])
def test_the_kernel_log(checker, tmp_path, line, verdict):
    log = tmp_path / "kmsg"
    log.write_text(f"4,1,2,-;something else\n4,1234,5678,-;{line}\n")
    outcome = checker.node(cases.base(), "--kernel-log", log)
    assert outcome.verdicts["ib.kmsg"] == verdict, outcome.out


def test_what_the_driver_has_recovered_from_is_a_warning(checker, tmp_path):
    log = tmp_path / "kmsg"
    log.write_text("3,1,2,-;mlx5_core 0000:17:00.0: poll_health:795: Fatal error 1 detected\n"
                   "6,2,3,-;mlx5_core 0000:17:00.0: mlx5_fw_fatal_reporter_err_work: health recovery succeeded\n")
    assert checker.node(cases.base(), "--kernel-log", log).verdicts["ib.kmsg"] == "warn"
    log.write_text(log.read_text().replace("0000:17:00.0: mlx5_fw", "0000:18:00.0: mlx5_fw"))
    assert checker.node(cases.base(), "--kernel-log", log).verdicts["ib.kmsg"] == "fail", "another card recovered"


def test_a_kernel_log_that_was_asked_for_and_cannot_be_read_is_unknown(checker, tmp_path):
    assert checker.node(cases.base(), "--kernel-log", tmp_path / "missing").verdicts["ib.kmsg"] == "unknown"


# ------------------------------------------------------------------------------------------------- trees of 10,000 entries

MANY = 10_000


def many(path: str, content: str | None = None):
    """MANY more entries in a folder: folders, or files with a content, in which {} is a number."""
    def change(sys, dev):
        for index in range(100, MANY + 100):
            if content is None:
                (sys / path.format(index)).mkdir(parents=True)
            else:
                trees.write(sys / path.format(index), content.format(index // 256, index % 256))
    return change


PORT = "class/infiniband/mlx5_ib0/ports/1"


@pytest.mark.parametrize("change, check, verdict", [
    (many("class/infiniband/mlx5_{}"), "ib.sysfs", "fail"),
    (many("class/infiniband/mlx5_ib0/ports/{}"), "ib.sysfs", "fail"),
    (many(f"{PORT}/pkeys/{{}}", "0x7fff"), "ib.pkey", "pass"),
    (many(f"{PORT}/gids/{{}}", "fe80:0000:0000:0000:0000:0000:00{:02x}:00{:02x}"), "ib.gid", "pass"),
    (many(f"{PORT}/counters/counter{{}}", "{}{}"), "ib.err", "pass"),
    (many("class/net/veth{}/operstate", "up"), "ib.netdev", "pass"),
    (many("class/net/ib0/lower_veth{}", "{}{}"), "ib.netdev", "pass"),
    (many("class/infiniband_verbs/uverbs{}/ibdev", "mlx5_{}{}"), "ib.devnode", "pass"),
    (many("bus/pci/devices/f000:00:00.{}/class", "0x030200"), "host.pci", "unknown"),
])
def test_ten_thousand_entries_end_with_a_verdict_in_time(checker, change, check, verdict):
    node = cases.base()
    node.after.append(change)
    outcome = checker.node(node, "--policy", "require", timeout=30)
    assert outcome.verdicts[check] == verdict and outcome.status == (1 if verdict == "fail" else 0), outcome.out[:3000]
