"""NHC's check_hw_ib as an independent oracle. Asked about the faulty port by name, it must reach our verdict on state and
rate, except for the differences explained here. Asked without a name, it passes if any port is healthy; because of that
defect a node with an unplugged cable stays in service.
"""

import cases
import nhc
import pytest
import trees
from test_tool import can_mount

RATE, SICK, OTHER = "400", "mlx5_ib1:1", "mlx5_ib0:1"
EXPLAINED = {
    "card lost": "NHC is told which ports to expect by name; we by a SKU (ib.count), not given here",
    "administratively down": "without a SKU a port that somebody has switched off beside others is not part of the fabric",
    "no ports": "the same, and we see it: the device has no ports (ib.sysfs)",
    "rate not text": "NHC reads the first word of the line only",
    "state '4294967300: ACTIVE'": "NHC reads the word behind the number, whatever the number is",
}
HANDS = [nhc.transcribed,
         pytest.param(nhc.installed, marks=pytest.mark.skipif(not (nhc.SCRIPT.is_file() and can_mount()),
                                                              reason=f"no NHC here ({nhc.SCRIPT}), or no mounts"))]


def tree_of(node: trees.Node, folder, umad: str = "5"):
    sys, _ = node.build(folder)
    trees.write(sys / "class/infiniband_mad/abi_version", umad)
    return sys


@pytest.mark.parametrize("nhc_says", HANDS)
def test_nhc_agrees_about_a_port_that_it_is_asked_for(checker, tmp_path, nhc_says):
    differing = set()
    for number, (name, (node, _)) in enumerate(cases.alone().items()):
        if name == "state a FIFO":
            continue  # NHC waits for ever where nobody writes
        sys = tree_of(node, tmp_path / f"node{number}")
        verdicts = checker.run("--sysfs-root", sys, "--json", "--policy", "require").verdicts
        ours = verdicts["ib.state"] != "fail" and verdicts["ib.rate"] != "fail"
        if nhc_says(sys, RATE, SICK) != ours:
            differing.add(name)
        assert nhc_says(sys, RATE, OTHER), f"{name}: the other port is well"
        assert nhc_says(sys, RATE), f"{name}: without a name any one port is enough for NHC"
    assert differing == set(EXPLAINED)


@pytest.mark.parametrize("nhc_says", HANDS)
def test_nhc_refuses_without_the_kernels_umad(checker, tmp_path, nhc_says):
    """Ours does not need it: no subnet manager or MAD tool runs in a job."""
    sys = tree_of(cases.base(), tmp_path / "node", umad="0")
    assert not nhc_says(sys, RATE)
    assert checker.run("--sysfs-root", sys, "--json", "--policy", "require").report["verdict"] == "pass"


def test_what_nhc_does_not_look_at(checker, tmp_path):
    """LID, partition, GID and link layer: NHC passes them, we fail."""
    for name in ("LID 0", "no SM LID", "limited member only", "no GID"):
        node = cases.base()
        cases.FAULTS[name].apply(node, 1)
        sys = tree_of(node, tmp_path / name.replace(" ", "-"))
        assert nhc.transcribed(sys, RATE, SICK), name
        assert checker.run("--sysfs-root", sys, "--json", "--policy", "require").report["verdict"] == "fail", name
