"""RoCE and host: what lies beside the fabric itself. Warnings only, from files as the kernel and NVIDIA's driver write them."""

import struct

import cases
import pytest
import trees

SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0"


def judged(node, name, checker, *arguments):
    outcome = checker.node(node, *arguments)
    return outcome.verdicts[name], outcome.checks[name]["evidence"], outcome


def port_file(node, index, path, value):
    """A file below the first port of a device."""
    name = node.devices[index].name
    node.after.append(lambda sys, dev: trees.write((sys / "class/infiniband" / name).resolve() / "ports/1" / path, value))


def net_file(node, name, path, value):
    node.after.append(lambda sys, dev: trees.write(sys / "class/net" / name / path, value))


# ------------------------------------------------------------------------------------------------------------- RoCE

@pytest.mark.parametrize("counter", ["out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
                                     "req_transport_retries_exceeded"])
def test_lost_and_late_packets_count_against_a_baseline(checker, tmp_path, counter):
    baseline = tmp_path / "baseline"
    for value, verdict in (("70000", "pass"), ("70000", "pass"), ("170000", "warn")):
        node = trees.roce()
        port_file(node, 1, f"hw_counters/{counter}", value)
        got, evidence, outcome = judged(node, "roce.counters", checker, "--baseline", baseline)
        assert got == verdict and outcome.status == 0, outcome.out
    assert f"mlx5_1:1 {counter} +100000" in evidence
    assert judged(node, "roce.counters", checker)[0] == "skip", "since boot they mean little"


@pytest.mark.parametrize("marked, sent, ignored, verdict, said", [
    ("9000", "12", "0", "pass", ""),
    ("0", "0", "0", "pass", ""),
    ("9000", "0", "0", "warn", "9000 marked packets and told no sender"),
    ("0", "0", "44", "warn", "ignored 44 congestion notifications"),
])
def test_congestion_notifications(checker, marked, sent, ignored, verdict, said):
    node = trees.roce()
    for name, value in (("np_ecn_marked_roce_packets", marked), ("np_cnp_sent", sent), ("rp_cnp_ignored", ignored)):
        port_file(node, 0, f"hw_counters/{name}", value)
    got, evidence, outcome = judged(node, "roce.cnp", checker)
    assert got == verdict and said in evidence and outcome.status == 0, outcome.out


def test_mtus_that_differ(checker):
    node = trees.roce()
    for name in ("ens0", "ens1"):
        net_file(node, name, "mtu", "9000")
    assert judged(node, "roce.mtu", checker)[0] == "pass"
    net_file(node, "ens1", "mtu", "1500")
    got, evidence, outcome = judged(node, "roce.mtu", checker)
    assert got == "warn" and "9000" in evidence and "1500" in evidence and outcome.status == 0


def congestion_control(node, interface, kind, priorities):
    for priority in range(8):
        net_file(node, interface, f"ecn/{kind}/enable/{priority}", "1" if priority in priorities else "0")


def test_congestion_control_is_alike_on_all_ports(checker):
    node = trees.roce()
    assert judged(node, "roce.qos", checker)[0] == "skip", "nothing is told"
    for interface in ("ens0", "ens1"):
        congestion_control(node, interface, "roce_np", {3})
        congestion_control(node, interface, "roce_rp", {3, 4})
    got, evidence, _ = judged(node, "roce.qos", checker)
    assert got == "pass" and "ECN 3 (receiving) 3+4 (sending)" in evidence
    congestion_control(node, "ens1", "roce_np", set())
    got, evidence, outcome = judged(node, "roce.qos", checker)
    assert got == "warn" and "ens0" in evidence and "ens1" in evidence and outcome.status == 0, evidence


# ------------------------------------------------------------------------------------------------------------- host

def lone_function(node, driver):
    def change(sys, dev):
        folder = trees.pci_folder(sys, "pci0000:00/0000:00:07.0", "0000:77:00.0")
        for name, value in (("class", "0x020700"), ("vendor", "0x15b3"), ("device", "0x1021")):
            trees.write(folder / name, value)
        if driver:
            (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    node.after.append(change)
    return node


@pytest.mark.parametrize("driver, verdict", [("mlx5_core", "warn"), (None, "warn"), ("vfio-pci", "pass")])
def test_a_card_on_the_bus_without_an_rdma_device(checker, driver, verdict):
    got, evidence, outcome = judged(lone_function(cases.base(), driver), "host.pci", checker)
    assert got == verdict and outcome.status == 0, outcome.out
    assert verdict == "pass" or "0000:77:00.0" in evidence


def of_card(node, index, path, value):
    name = node.devices[index].name
    node.after.append(
        lambda sys, dev: trees.write((sys / "class/infiniband" / name / "device").resolve() / path, value))


@pytest.mark.parametrize("kind, count, verdict", [
    ("correctable", 1000, "pass"), ("correctable", 1001, "warn"), ("nonfatal", 1, "warn"), ("fatal", 1, "warn"),
])
def test_pcie_errors_that_the_kernel_counted(checker, kind, count, verdict):
    node = cases.base()
    for each, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
        of_card(node, 1, f"aer_dev_{each}", f"RxErr {count if each == kind else 0}\n"
                                            f"TOTAL_ERR_{total} {count if each == kind else 0}")
    got, evidence, outcome = judged(node, "host.aer", checker)
    assert got == verdict and "mlx5_ib1" in evidence and outcome.status == 0, outcome.out


@pytest.mark.parametrize("width, speed, verdict", [
    (("16", "16"), ("32.0 GT/s PCIe", "32.0 GT/s PCIe"), "pass"),
    (("16", "16"), ("32.0 GT/s PCIe", "64.0 GT/s PCIe"), "pass"),   # the card itself has no more
    (("8", "16"), ("32.0 GT/s PCIe", "32.0 GT/s PCIe"), "warn"),
    (("16", "16"), ("8.0 GT/s PCIe", "32.0 GT/s PCIe"), "warn"),
    (("16", "16"), ("2.5 GT/s PCIe", "32.0 GT/s PCIe"), "warn"),
    (("16", "16"), ("Unknown", "Unknown"), "pass"),
    (("0", "255"), ("Unknown", "Unknown"), "skip"),                 # a virtual machine's bridge
])
def test_the_link_of_the_bridge_above_a_card(checker, width, speed, verdict):
    node = cases.base()
    names = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
    for name, value in zip(names, (*width, *speed)):
        of_card(node, 1, f"../{name}", value)
    got, evidence, outcome = judged(node, "host.bridge", checker)
    assert got == verdict and outcome.status == 0, outcome.out


def configuration(*capabilities):
    """A function's configuration space of 4096 bytes with extended capabilities (id, control)."""
    space = bytearray(4096)
    at = 0x100
    for index, (capability, control) in enumerate(capabilities):
        following = at + 0x40 if index + 1 < len(capabilities) else 0
        struct.pack_into("<IHH", space, at, capability | 1 << 16 | following << 20, 0, control)
        at += 0x40
    return bytes(space)


ERRORS, ACS = 0x0001, 0x000d
REDIRECT, VALIDATE, TRANSLATED = 0x0c, 0x01, 0x40


@pytest.mark.parametrize("control, gpu_root, verdict", [
    (VALIDATE | REDIRECT, f"{SWITCH}/0000:02:04.0", "warn"),            # the GPU beside it, on the same switch
    (VALIDATE | REDIRECT | TRANSLATED, f"{SWITCH}/0000:02:04.0", "pass"),
    (VALIDATE, f"{SWITCH}/0000:02:04.0", "pass"),
    (VALIDATE | REDIRECT, "pci0000:40/0000:40:01.0", "pass"),           # through the root complex anyhow
])
def test_access_control_between_a_card_and_a_gpu(checker, control, gpu_root, verdict):
    node = cases.base()
    node.devices = node.devices[:1]
    node.devices[0].pci_root = f"{SWITCH}/0000:02:00.0"
    node.gpus = [trees.Gpu("0000:05:00.0", gpu_root)]
    node.modules["nvidia"] = "550.90"
    for path, of_bridge in (("../config", control), ("../../config", VALIDATE | REDIRECT)):
        of_card(node, 0, path, configuration((ERRORS, 0), (ACS, of_bridge)))
    got, evidence, outcome = judged(node, "host.acs", checker)
    assert got == verdict and outcome.status == 0, outcome.out
    assert verdict == "pass" or ("0000:02:00.0 above mlx5_ib0" in evidence and "0000:01:00.0" not in evidence)


@pytest.mark.parametrize("config", [b"\x15\xb3" * 32, configuration((ERRORS, 0)), b"",
                                    configuration()[:0x100] + b"\x01\x00\x01\x10" * 960])  # a capability that follows itself
def test_access_control_that_is_not_told(checker, config):
    node = cases.base()
    of_card(node, 0, "../config", config)
    assert judged(node, "host.acs", checker)[0] == "skip"


# ------------------------------------------------------------------------------------------------------------ IPoIB

@pytest.mark.parametrize("wanted, present, state, verdict, status", [
    ("require", (0, 1), "up", "pass", 0),
    ("require", (0,), "up", "fail", 1),
    ("require", (0, 1), "down", "fail", 1),
    ("prefer", (), "up", "skip", 0),
])
def test_ipoib_where_the_site_wants_it(checker, tmp_path, wanted, present, state, verdict, status):
    table = tmp_path / "skus.conf"
    table.write_text(f"ours fabric=infiniband devices=2 ipoib={wanted}\n")
    node = cases.base()
    for index in range(2):
        node.devices[index].netdevs = {f"ib{index}": (state, "0")} if index in present else {}
        if index in present:
            net_file(node, f"ib{index}", "type", "32")
    got, evidence, outcome = judged(node, "ib.ipoib", checker, "--sku-table", table, "--sku", "ours", "--policy", "require")
    assert got == verdict and outcome.status == status, outcome.out
    assert "mlx5_ib1" in evidence or verdict != "fail"


def test_an_ethernet_interface_is_no_ipoib(checker, tmp_path):
    table = tmp_path / "skus.conf"
    table.write_text("ours fabric=infiniband devices=2 ipoib=require\n")
    node = cases.base()
    for index in range(2):
        net_file(node, f"ib{index}", "type", "1")
    assert judged(node, "ib.ipoib", checker, "--sku-table", table, "--sku", "ours")[0] == "fail"
