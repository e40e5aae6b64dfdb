"""Machines of bug reports and of sellers' lists (shapes_reports.py): none that is well is refused, and no fault is let through, alone
or beside a second one on another port. The oracle decides, not our code."""

import copy
import os

import oracle
import pytest
import shapes_reports
from test_corpus import OF_ANY_PORT, OF_CLOUD_INFINIBAND, OF_CLOUD_ROCE, OF_INFINIBAND, OF_OTHER_INFINIBAND, OF_OTHER_ROCE, OF_ROCE, ask
from trees import InfiniBand

MACHINES = {shape.name: shape for shape in shapes_reports.healthy()}
# Faults of a machine, alone and in pairs: over all machines each fault comes up many times. AMLDIST_ALL_FAULTS: all of them, for an hour.
EACH = 1000 if os.environ.get("AMLDIST_ALL_FAULTS") else 4


def faults_of(shape) -> dict:
    """Those that concern one port by itself, not the user's settings."""
    kind = shape.node.devices[0].ports[0].link_layer
    faults = OF_ANY_PORT | (OF_INFINIBAND | OF_OTHER_INFINIBAND | OF_CLOUD_INFINIBAND if kind == InfiniBand else OF_ROCE | OF_OTHER_ROCE | OF_CLOUD_ROCE)
    return {name: change for name, change in faults.items() if "NCCL" not in name and "replaced" not in name and "all others" not in name}


def test_there_are_sixty_more_machines():
    machines = shapes_reports.healthy() + shapes_reports.without_fabric()
    print(f"{len(MACHINES)} with a fabric, {len(shapes_reports.without_fabric())} without, from {len({each.source for each in machines})} sources")
    assert len(machines) >= 60 and len(MACHINES) == len(shapes_reports.healthy()) and all(each.source for each in machines)


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine_is_never_refused(checker, name):
    shape = MACHINES[name]
    assert not oracle.refused(shape), "the oracle must agree that it is well"
    for policy in ("require", "prefer"):
        outcome = ask(checker, shape, policy)
        assert outcome.status == 0 and "fail" not in outcome.verdicts.values(), outcome.out
        taken = outcome.report["nccl_ib_hca"]
        assert sorted(taken.removeprefix("=").split(",")) == sorted(shape.fabric), taken


@pytest.mark.parametrize("shape", shapes_reports.without_fabric(), ids=lambda shape: shape.name)
def test_a_machine_without_a_fabric(checker, shape):
    assert checker.node(shape.node).status == 3
    assert ask(checker, shape, "require").status == 1


def broken(shape, changes):
    shape = copy.deepcopy(shape)
    devices = {device.name: device for device in shape.node.devices}
    for change, index in changes:
        change(shape, devices[shape.fabric[index % len(shape.fabric)].rpartition(":")[0]])
    return shape


@pytest.mark.parametrize("number, name", enumerate(MACHINES))
def test_no_fault_is_let_through_alone_or_beside_another(checker, number, name):
    faults = list(faults_of(MACHINES[name]).items())
    for count in range(min(EACH, len(faults))):
        (first, one), (second, two) = (faults[(number * EACH + count + shift) % len(faults)] for shift in (0, 11))
        for what, changes in (([first], [(one, 1)]), ([first, second], [(one, 1), (two, 2)])):
            shape = broken(MACHINES[name], changes)
            why = oracle.refused(shape)
            outcome = ask(checker, shape, "require")
            assert outcome.status == (1 if why else 0), (name, what, why, outcome.out)
