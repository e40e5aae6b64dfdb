"""The command itself: usage, table, colours, baseline, verbs from a library in memory, and hostile arguments."""

import ctypes
import json
import os
import pathlib
import pty
import shutil
import subprocess

import cases
import conftest
import pytest
import trees

LIBRARY = conftest.TOOL.resolve().parent.parent / "lib/tests/libfake_verbs.so"


@pytest.mark.parametrize("arguments", [["--policy", "maybe"], ["--sku", "no such size"], ["--sysfs-root", "/etc/passwd"],
                                       ["--timeout", "0"], ["--port", "70000"], ["--unknown"], ["stray"]])
def test_wrong_usage(checker, arguments):
    outcome = checker.run(*arguments)
    assert outcome.status == 2 and outcome.out == "", outcome
    assert outcome.err.startswith("aml-dist: ") and outcome.err.count("\n") == 1, outcome


@pytest.mark.parametrize("arguments", [["--sysfs-root", "/nonexistent"], ["--dev-root", "/nonexistent"],
                                       ["--sku-table", "/nonexistent", "--sku", "HC44rs"]])
def test_what_is_named_and_not_there(checker, arguments):
    outcome = checker.run(*arguments)
    assert outcome.status == 4 and outcome.out == "" and "/nonexistent" in outcome.err, outcome
    assert outcome.err.startswith("aml-dist: ") and outcome.err.count("\n") == 1, outcome


def test_help_and_version():
    for arguments in (["check", "--help"], ["--version"]):
        done = subprocess.run([conftest.TOOL, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout


def test_the_table_has_a_line_for_each_check_and_a_remedy_for_what_is_wrong(checker):
    node = cases.base()
    node.port(1).state = "1: DOWN"
    sys_folder, _ = node.build(checker.folder / "tree")
    outcome = checker.run("--sysfs-root", sys_folder, "--policy", "require")
    assert outcome.status == 1 and "\033" not in outcome.out
    lines = outcome.out.splitlines()
    assert lines[0].endswith("fail (policy require)")
    state = next(index for index, line in enumerate(lines) if "ib.state" in line)
    assert lines[state].split()[:2] == ["fail", "ib.state"] and lines[state + 1].strip().startswith("-> ")
    quiet = checker.run("--sysfs-root", sys_folder, "--policy", "require", "--quiet").out
    assert "ib.state" in quiet and "ib.rate" not in quiet


@pytest.mark.parametrize("env, coloured", [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False),
                                           ({"TERM": "dumb"}, False)])
def test_colours_on_a_terminal_only(checker, env, coloured):
    sys_folder, _ = cases.base().build(checker.folder / "tree")
    ours, theirs = pty.openpty()
    subprocess.run([conftest.TOOL, "check", "--sysfs-root", sys_folder], stdout=theirs, env=env, check=True)
    os.close(theirs)
    out = os.read(ours, 65536)
    os.close(ours)
    assert (b"\033[" in out) == coloured


def test_a_root_may_be_the_whole_file_system(checker):
    node = cases.base()
    sys_folder, dev_folder = node.build(checker.folder / "tree")
    outcome = checker.run("--sysfs-root", sys_folder.parent, "--dev-root", dev_folder.parent, "--json")
    assert outcome.verdicts["ib.sysfs"] == outcome.verdicts["ib.devnode"] == "pass"


def test_without_dev_root_a_fabricated_nodes_devices_are_not_this_machines(checker):
    sys_folder, _ = cases.base().build(checker.folder / "tree")
    outcome = checker.run("--sysfs-root", sys_folder, "--json")
    assert outcome.status == 0 and outcome.verdicts["ib.devnode"] == "skip"


BEYOND_THE_FABRIC = "gpu."  # the tool's: the library verifies what the ranks talk over


def test_the_library_writes_the_same_fields_as_the_tool(checker):
    """amldist_verify_node() has no JSON library; names, order and values are those of aml-dist check all the same."""
    library = ctypes.CDLL(str(conftest.TOOL.parent.parent / "lib/libamldist.so"))
    text = ctypes.create_string_buffer(65536)
    for policy in ("off", "require"):
        library.amldist_verify_node(policy.encode(), None, text, len(text))
        ours, theirs = json.loads(text.value), checker.run("--policy", policy, "--no-verbs", "--json").report
        assert [*ours] == [*theirs] == ["schema", "node", "policy", "verdict", "checks", "nccl_ib_hca", "nccl_ib_gid_index"]
        fabric = [check for check in theirs["checks"] if not check["id"].startswith(BEYOND_THE_FABRIC)]
        assert [[*check] for check in ours["checks"]] == [[*check] for check in fabric]
        assert [check["id"] for check in ours["checks"]] == [check["id"] for check in fabric]
        assert {**ours, "checks": None} == {**theirs, "checks": None}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_device_nodes_are_opened_as_the_user():
    """root may open what nobody may not. In a folder that nobody can enter to the end."""
    folder = pathlib.Path("/var/tmp") / f"aml-dist-fabric-{os.getpid()}"
    node = cases.base()
    node.dev_nodes = {"uverbs0": 0o666, "uverbs1": 0o600, "uverbs2": 0o666}
    try:
        sys_folder, dev_folder = node.build(folder)
        tool = folder / "aml-dist"
        tool.write_bytes(conftest.TOOL.read_bytes())
        tool.chmod(0o755)
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", tool, "check",
                               "--sysfs-root", sys_folder, "--dev-root", dev_folder, "--json"], capture_output=True,
                              text=True, cwd="/")
        checks = conftest.Outcome(done.returncode, done.stdout, done.stderr).checks
        assert done.returncode == 1 and checks["ib.devnode"]["verdict"] == "fail", done
        assert "uverbs1" in checks["ib.devnode"]["evidence"] and "Permission denied" in checks["ib.devnode"]["evidence"]
        assert "uverbs0" not in checks["ib.devnode"]["evidence"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def limited(checker, limit, *, capable):
    """The verdict on the memory limit for a process with or without CAP_IPC_LOCK."""
    sys_folder, _ = cases.base().build(checker.folder / f"tree{limit}{capable}")
    drop = [] if capable else ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "--"]
    done = subprocess.run([*drop, "prlimit", f"--memlock={limit}:{limit}", conftest.TOOL, "check", "--sysfs-root", sys_folder,
                           "--json"], capture_output=True, text=True)
    return conftest.Outcome(done.returncode, done.stdout, done.stderr).verdicts["ib.memlock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give up a capability")
def test_a_small_memory_limit_fails_where_it_binds(checker):
    assert limited(checker, 65536, capable=False) == "fail"
    assert limited(checker, 8 << 20, capable=False) == "fail"
    assert limited(checker, 65536, capable=True) == "pass"


def test_hostile_names_do_not_break_json(checker):
    node = cases.base()
    node.devices[0].name = "<&\"'>"
    assert checker.node(node).checks


# ------------------------------------------------------------------------------------------------------------- counters

def with_counters(**values) -> trees.Node:
    node = cases.base()
    node.port(0).counters.update({name: str(value) for name, value in values.items()})
    return node


def test_a_baseline_forgives_the_past_and_counts_what_is_added(checker, tmp_path):
    baseline = tmp_path / "counters"
    old = {"symbol_error": 40, "link_downed": 9}
    assert checker.node(with_counters(**old)).verdicts["ib.err"] == "warn"
    first = checker.node(with_counters(**old), "--baseline", baseline)
    assert baseline.is_file() and first.status == 0
    verdicts = checker.node(with_counters(**old), "--baseline", baseline).verdicts
    assert verdicts["ib.err"] == verdicts["ib.flap"] == "pass"
    verdicts = checker.node(with_counters(symbol_error=41, link_downed=12), "--baseline", baseline).verdicts
    assert verdicts["ib.err"] == verdicts["ib.flap"] == "warn"


def test_a_baseline_survives_a_reboot_and_its_own_loss(checker, tmp_path):
    baseline = tmp_path / "counters"
    checker.node(with_counters(link_downed=100), "--baseline", baseline)
    assert checker.node(with_counters(link_downed=1), "--baseline", baseline).verdicts["ib.flap"] == "pass"
    baseline.unlink()
    assert checker.node(with_counters(link_downed=1), "--baseline", baseline).verdicts["ib.flap"] == "pass"
    assert baseline.is_file()


@pytest.mark.parametrize("content", [b"junk\n", b"\xff" * 100, b"1 2 3 4", b"x" * (5 << 20)])
def test_a_broken_baseline_is_a_warning_and_is_begun_anew(checker, tmp_path, content):
    baseline = tmp_path / "counters"
    baseline.write_bytes(content)
    outcome = checker.node(cases.base(), "--baseline", baseline)
    assert outcome.verdicts["ib.flap"] == "warn" and str(baseline)[:30] in outcome.checks["ib.flap"]["evidence"]
    assert checker.node(cases.base(), "--baseline", baseline).verdicts["ib.flap"] == "pass"


def test_a_table_with_a_mistake_is_refused_with_its_line(checker, tmp_path):
    table = tmp_path / "skus.conf"
    table.write_text("ours fabric=infiniband devices=2 rate=400\nbroken line\n")
    outcome = checker.node(cases.base(), "--sku-table", table, "--sku", "ours")
    assert outcome.status == 2 and outcome.err.count("aml-dist: ") == 1 and "skus.conf, line 2: 'line' is not one of" in outcome.err
    table.write_text("ours fabric=infiniband devices=2 rate=400\n")
    assert checker.node(cases.base(), "--sku-table", table, "--sku", "ours").status == 0
    assert checker.node(cases.base(), "--sku-table", table, "--sku", "HC44rs").status == 0, "the built-in lines stay"


# ---------------------------------------------------------------------------------------------- verbs, without hardware

NAMESPACE = ["unshare", "--mount", "--"]


def in_namespace(tree: pathlib.Path, *arguments, env=None, timeout=30):
    """aml-dist check where the tree is this machine's /sys/class, with character devices for its device nodes."""
    script = ('mount -t overlay -o "lowerdir=$1/sys/class:/sys/class" overlay /sys/class && '
              'mount -t tmpfs tmpfs /dev/infiniband && for n in 0 1 2; do mknod -m 666 /dev/infiniband/uverbs$n c 1 3; done && '
              'shift && exec "$@"')
    done = subprocess.run([*NAMESPACE, "bash", "-c", script, "-", tree, conftest.TOOL, "check", "--json", *arguments],
                          capture_output=True, timeout=timeout, env={"PATH": os.environ["PATH"], **(env or {})})
    return conftest.Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def can_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(
        [*NAMESPACE, "mount", "-t", "overlay", "-o", "lowerdir=/var:/sys/class", "overlay", "/sys/class"],
        capture_output=True).returncode == 0


needs_mounts = pytest.mark.skipif(not (LIBRARY.is_file() and can_mount()),
                                  reason="needs root, a mount namespace and the library in memory")


@pytest.fixture
def live(tmp_path):
    """A tree to mount, and, on a machine without one, a place for its device nodes."""
    place = trees.DevicePlace()
    cases.base().build(tmp_path / "live")
    yield tmp_path / "live"
    place.close()


def fake(**more) -> dict[str, str]:
    return {"AMLDIST_LIBIBVERBS": str(LIBRARY), "FAKE_VERBS_DEVICES": "mlx5_an0,mlx5_ib0,mlx5_ib1", **more}


@needs_mounts
@pytest.mark.parametrize("env, expected", [
    ({}, {"ib.provider": "pass", "ib.memlock": "pass", "ib.loopback": "pass", "ib.devnode": "pass"}),
    ({"FAKE_VERBS_DEVICES": "mlx5_ib0"}, {"ib.provider": "fail", "ib.loopback": "fail"}),
    ({"FAKE_VERBS_DEVICES": ""}, {"ib.provider": "fail"}),
    ({"FAKE_VERBS_FAIL": "reg_mr:12"}, {"ib.memlock": "fail", "ib.loopback": "fail", "ib.provider": "pass"}),
    ({"FAKE_VERBS_FAIL": "open:13"}, {"ib.loopback": "fail"}),
    ({"FAKE_VERBS_FAIL": "alloc_pd:12"}, {"ib.loopback": "fail"}),
    ({"FAKE_VERBS_FAIL": "create_qp:12"}, {"ib.loopback": "fail", "ib.memlock": "pass"}),
    ({"FAKE_VERBS_FAIL": "rtr:101"}, {"ib.loopback": "fail"}),
    ({"FAKE_VERBS_FAIL": "rts:22"}, {"ib.loopback": "fail"}),
    ({"FAKE_VERBS_FAIL": "post:12"}, {"ib.loopback": "fail"}),
    ({"FAKE_VERBS_WC": "12"}, {"ib.loopback": "fail"}),
    ({"FAKE_VERBS_LOSE": "1"}, {"ib.loopback": "fail"}),
    ({"AMLDIST_LIBIBVERBS": "/nonexistent.so"}, {"ib.provider": "fail", "ib.loopback": "skip"}),
    ({"AMLDIST_LIBIBVERBS": "/lib/x86_64-linux-gnu/libc.so.6"}, {"ib.provider": "fail"}),
])
def test_verbs_that_fail_are_named(live, env, expected):
    outcome = in_namespace(live, "--policy", "require", env=fake(**env))
    got = {name: outcome.verdicts[name] for name in expected}
    assert got == expected, outcome.out
    assert outcome.status == (1 if "fail" in expected.values() else 0)


@needs_mounts
def test_verbs_that_hang_are_given_up(live):
    outcome = in_namespace(live, "--policy", "require", "--timeout", "1", env=fake(FAKE_VERBS_HANG="reg_mr"))
    assert outcome.status == 1 and "timed out while opening mlx5_ib0" in outcome.checks["ib.loopback"]["evidence"]


@needs_mounts
def test_a_library_that_crashes_is_told_from_a_device_that_hangs(live):
    outcome = in_namespace(live, "--policy", "require", env=fake(FAKE_VERBS_CRASH="reg_mr"))
    check = outcome.checks["ib.loopback"]
    assert outcome.status == 1 and "ended by signal 11 while opening mlx5_ib0" in check["evidence"] and "libfake_verbs.so" in check["remedy"], check


@needs_mounts
def test_dmabuf_is_one_way_to_gpudirect(live, tmp_path):
    plain = in_namespace(live, env=fake(FAKE_VERBS_DMABUF="1")).verdicts
    assert plain["ib.gdr"] == "skip", "no GPU"


@needs_mounts
def test_the_task_part_speaks_in_lines(live):
    outcome = in_namespace(live, "--task-part", "--policy", "require", "--health", "off", env=fake())
    lines = [line.split("\t") for line in outcome.out.splitlines()]
    assert outcome.status == 0 and [line[1] for line in lines] == [
        "ib.devnode", "ib.provider", "ib.memlock", "ib.gdr", "ib.env", "ib.loopback"]
    assert all(len(line) == 4 for line in lines)


IBSTAT = next((path for path in ("/usr/sbin/ibstat", "/usr/bin/ibstat") if os.access(path, os.X_OK)), None)


def ibstat(tree: pathlib.Path) -> dict[str, str]:
    """What ibstat says about mlx5_ib1 where the tree is mounted."""
    script = 'mount -t overlay -o "lowerdir=$1/sys/class:/sys/class" overlay /sys/class && exec "$2" mlx5_ib1'
    done = subprocess.run([*NAMESPACE, "bash", "-c", script, "-", tree, IBSTAT], capture_output=True, text=True)
    return dict(line.strip().split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


@needs_mounts
@pytest.mark.skipif(IBSTAT is None, reason="ibstat (infiniband-diags) is not installed")
@pytest.mark.parametrize("fault", [None, "cable out", "administratively down", "asleep", "no subnet manager", "armed",
                                   "link recovers from errors", "active without a link", "half the speed",
                                   "Ethernet mode"])
def test_ibstat_sees_what_we_judge(checker, tmp_path, fault):
    """An oracle of another hand over the same tree: what it prints for a port decides as our verdicts do. It judges
    nothing itself: a rate has to be compared, and it knows no expected link layer."""
    node = cases.base()
    if fault:
        cases.FAULTS[fault].apply(node, 1)
    node.build(tmp_path / "mounted")
    seen = ibstat(tmp_path / "mounted")
    good = {"state": seen["State"] == "Active" and seen["Physical state"] == "LinkUp",
            "lid": seen["Base lid"] not in ("0", "65535") and seen["SM lid"] != "0",
            "rate": seen["Rate"] == "400" or seen["State"] != "Active",
            "layer": seen["Link layer"] == "InfiniBand"}
    verdicts = checker.node(node, "--policy", "require").verdicts
    # A port that is switched off beside active ones is spare unless an SKU needs it.
    is_spare = seen["Physical state"] == "Disabled"
    assert (verdicts["ib.state"] == "pass") == (good["state"] or not good["layer"] or is_spare), seen
    assert (verdicts["ib.lid"] == "pass") == (good["lid"] or not good["layer"]), seen
    assert (verdicts["ib.rate"] == "pass") == (good["rate"] or not good["layer"]), seen
