"""site_check.NAME= of the site's file: what other tools say of the node is one check more, whatever they print or do.

The outputs are shaped as published: healthagent's `health -s` (github.com/Azure/cyclecloud-healthagent, reporter.py), `dcgmi diag -j`
of DCGM 3 and 4 (github.com/NVIDIA/DCGM, NvvsCommon.h; docs.nvidia.com, dcgmi diag), oci-dr-hpc-v2 `--output json` (its README), NHC's last
line (github.com/mej/nhc), NodeVerdict (docs.nvidia.com/health-validation, verdict schema and FAQ).
"""

import json
import os
import random
import subprocess
import time

import cases
import conftest
import pytest
import trees

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the site's file must be root's")

AGENT = {"gpu": {"GpuHealthCheck": {"status": "OK"}, "GpuCountCheck": {"status": "OK"}}, "network": {"NetworkInterfaceCheck": {"status": "OK"}}}
DCGM3 = {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
    {"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}, {"name": "PCIe", "results": [{"gpu_ids": "0", "status": "PASS"}]}]}]}}
DCGM4 = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
    {"name": "memory", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}, {"entity_group": "GPU", "entity_id": 1, "status": "Pass"}],
     "test_summary": {"status": "Pass"}}]}]}}
OCI = {"test_results": {"gpu_count_check": [{"status": "PASS", "gpu_count": 8}], "rdma_nics_count": [{"status": "PASS", "num_rdma_nics": 16}]}}
NODE = {"overall_severity": "PASS", "checks": [{"check_id": "gpu_count", "severity": "PASS"}, {"check_id": "nvlink_active", "severity": "INFO"}]}


def changed(value, path, new):
    value = json.loads(json.dumps(value))
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return value


@pytest.fixture
def site(checker, tmp_path):
    """Asks a healthy fabricated node and the tools of a site's file; each is a script, by name: (options, body of bash)."""
    def ask(*arguments, node=None, **tools):
        lines = []
        for name, (options, body) in tools.items():
            script = tmp_path / f"{name}.sh"
            script.write_text(f"#!/bin/bash\n{body}\n")
            script.chmod(0o755)
            lines.append(f"site_check.{name}={options} {script} one two")
        return asked("\n".join(lines), *arguments, node=node)

    def asked(content, *arguments, node=None):
        file = tmp_path / "site.conf"
        file.write_text(content + "\n")
        file.chmod(0o644)
        return checker.node(node or cases.base(), "--site-file", file, *(arguments or ("--health", "require")), timeout=60)
    ask.file, ask.folder = asked, tmp_path
    return ask


def says(value, status=0):
    text = value if isinstance(value, str) else json.dumps(value)
    return f"cat <<'END'\n{text}\nEND\nexit {status}"


# ------------------------------------------------------------------------------------------------------- what tools say

@pytest.mark.parametrize("options, output, status, verdict, evidence", [
    ("exit", "all is well", 0, "pass", "all is well"),
    ("exit", "", 0, "pass", "exit status 0"),
    ("exit", "starting\nERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port mlx5_0 is ACTIVE\n\n", 1, "fail", "check_hw_ib"),
    ("exit", "", 3, "fail", "exit status 3"),
    ("status", AGENT, 0, "pass", "GpuHealthCheck"),
    ("status", changed(AGENT, ["gpu", "GpuHealthCheck"], {"status": "Error", "message": "XID 79 on GPU 3", "recommendations": "Reboot the node"}),
     0, "fail", "GpuHealthCheck: XID 79 on GPU 3"),
    ("status", changed(AGENT, ["gpu", "GPUPolicyChecks"], {"status": "Error", "message": "GPUPolicyChecks reports errors", "description": "policy violations",
                                                           "last_update": "2026-11-24T20:10:02 UTC", "XID Violation": {"0": {"xid_error": [63]}}}),
     0, "fail", "GPUPolicyChecks: GPUPolicyChecks reports errors (policy violations)"),
    ("status", {"gpu": {"GpuHealthCheck": {"status": "OK"}}, "systemd": {}, "kmsg": {}}, 0, "pass", "GpuHealthCheck: OK"),
    ("status", {"gpu": {}, "systemd": {}, "kmsg": {}}, 0, "unknown", 'no "status"'),
    ("status", changed(AGENT, ["network", "NetworkInterfaceCheck", "status"], "Warning"), 0, "warn", "NetworkInterfaceCheck: Warning"),
    ("status", changed(AGENT, ["network", "NetworkInterfaceCheck", "status"], "Melted"), 0, "unknown", "Melted"),
    ("status", {"gpu": {"GpuHealthCheck": {"status": "NA"}}}, 0, "skip", "NA"),
    ("status", DCGM3, 0, "pass", "Denylist"),
    ("status", changed(DCGM3, ["DCGM GPU Diagnostic", "test_categories", 0, "tests", 1, "results", 0], {"status": "FAIL", "warnings": ["replays"]}),
     0, "fail", "PCIe: replays"),
    ("status", "WARNING: THIS SHOULD NOT HAPPEN\n" + json.dumps(DCGM3), 0, "pass", "Denylist"),
    ("status", DCGM4, 0, "pass", "memory"),
    ("status", changed(DCGM4, ["DCGM Diagnostic", "test_categories", 0, "tests", 0, "results", 1],
                       {"entity_id": 1, "status": "Fail", "warnings": [{"warning": "row remap failed", "error_id": 29}]}), 226, "fail", "memory: row remap failed"),
    ("status", OCI, 0, "pass", "gpu_count_check"),
    ("status", changed(OCI, ["test_results", "rdma_nics_count", 0, "status"], "FAIL"), 0, "fail", "rdma_nics_count: FAIL"),
    ("nodeverdict", NODE, 0, "pass", "gpu_count: PASS"),
    ("nodeverdict", changed(NODE, ["overall_severity"], "INFO"), 0, "pass", "nvlink_active"),
    ("nodeverdict", changed(changed(NODE, ["overall_severity"], "CRITICAL"), ["checks", 0],
                            {"check_id": "nvlink_active", "severity": "CRITICAL", "message": "GPU 2: 1 inactive NVLinks (allowed: 0)."}), 1, "fail", "GPU 2: 1 inactive"),
    ("nodeverdict", changed(NODE, ["overall_severity"], "WARNING"), 0, "warn", "WARNING"),
    ("nodeverdict", changed(NODE, ["overall_severity"], "UNKNOWN"), 1, "unknown", "UNKNOWN"),
])
def test_what_a_tool_says_is_a_check_with_its_evidence(site, options, output, status, verdict, evidence):
    outcome = site(theirs=(options, says(output, status)))
    check = outcome.checks["site.theirs"]
    assert check["verdict"] == verdict and evidence in check["evidence"], check
    assert bool(check["remedy"]) == (verdict in ("warn", "fail", "unknown")), check
    assert outcome.status == (1 if verdict == "fail" else 0), outcome.out


def test_the_tools_own_advice_is_the_remedy(site):
    outcome = site(theirs=("status", says({"gpu": {"GpuCountCheck": {"status": "Error", "recommendations": "Open a ticket"}}})))
    assert outcome.checks["site.theirs"]["remedy"] == "Open a ticket"


def test_errors_are_evidence_of_an_exit_status_and_no_part_of_json(site):
    outcome = site(nhc=("exit,5", "echo 'ERROR: nhc: no IB port' >&2; exit 1"), agent=("status,5", "echo '{}' >&2\n" + says(AGENT)))
    assert outcome.checks["site.nhc"]["evidence"] == "ERROR: nhc: no IB port", outcome.out
    assert outcome.verdicts["site.agent"] == "pass", outcome.out


def test_two_tools_speak_in_one_report(site):
    outcome = site(agent=("status,5", says(changed(AGENT, ["gpu", "GpuCountCheck", "status"], "Error"))), nhc=("exit,5", "echo ok"))
    assert outcome.verdicts["site.agent"] == "fail" and outcome.verdicts["site.nhc"] == "pass" and outcome.verdicts["ib.state"] == "pass"


@pytest.mark.parametrize("health, verdict, status", [("require", "fail", 1), ("prefer", "warn", 0), ("off", None, 0)])
def test_they_count_as_gpus_and_host_do(site, health, verdict, status):
    outcome = site("--health", health, theirs=("exit", f"touch {site.folder}/ran; exit 1"))
    assert outcome.status == status and outcome.verdicts.get("site.theirs") == verdict, outcome.out
    assert (site.folder / "ran").exists() == (health != "off")


def test_arguments_reach_the_tool_and_no_shell_does(site):
    (site.folder / "args").write_text('#!/bin/bash\necho "$# $*"\n')
    (site.folder / "args").chmod(0o755)
    outcome = site.file(f"site_check.args=exit {site.folder}/args \t $(id) ; rm -rf * 'a b'   # a comment")
    assert outcome.checks["site.args"]["evidence"] == "7 $(id) ; rm -rf * 'a b'", outcome.out


# ------------------------------------------------------------------------------------- what does not answer is unknown

@pytest.mark.parametrize("options, body, evidence", [
    ("exit,1", "sleep 60", "did not end within 1 s"),
    ("exit,1", "trap '' TERM INT HUP; while :; do :; done", "did not end within 1 s"),
    ("exit,1", "setsid sleep 60 & exit 0", "did not end within 1 s"),  # it holds the output
    ("exit,2", "head -c 1000000000 /dev/zero", "more than"),
    ("exit,2", "yes", "more than"),
    ("status,2", "echo '{'; yes '\"a\": {' | head -c 900000", "no JSON object"),
    ("status", "printf '{\"a\":%.0s' {1..5000}; printf '1'; printf '}%.0s' {1..5000}", "no JSON object"),
    ("status", "printf '['%.0s {1..100000}", "no JSON object"),
    ("status", r"printf '{\"gpu\": {\"status\": \"\xff\xfe\"}}'", "no JSON object"),
    ("status", "echo '{}'", 'no "status"'),
    ("status", "echo '[1,2]'; exit 4", "exit status 4"),
    ("status", "", "no JSON object"),
    ("status", "echo 'ERROR - Connection to Healthagent could not be established' >&2; exit 255", "exit status 255"),
    ("status", says({"gpu": {"status": {"status": ["Error"] * 3}}, "x": {"status": 7}}).replace("Error", "\\u001b[31m"), "x1b"),
    ("status", says(AGENT, 3), "ended with status 3"),
    ("nodeverdict", says(AGENT), 'no "overall_severity"'),
    ("nodeverdict", says({"overall_severity": "FINE"}), "FINE"),
    ("nodeverdict", says({"overall_severity": 5}), 'no "overall_severity"'),
    ("nodeverdict", says(NODE, 2), "ended with status 2"),
    ("exit", "kill -SEGV $$", "signal 11"),
])
def test_what_does_not_answer_or_is_not_understood_is_unknown(site, options, body, evidence):
    began = time.monotonic()
    outcome = site(theirs=(options, body))
    check = outcome.checks["site.theirs"]
    assert check["verdict"] == "unknown" and evidence in check["evidence"] and check["remedy"], check
    assert outcome.status == 0 and time.monotonic() - began < 10, outcome.out


def test_a_program_that_is_not_there_or_cannot_be_run(site):
    outcome = site.file("site_check.gone=exit /nonexistent/tool\nsite_check.folder=exit /etc")
    for name in ("site.gone", "site.folder"):
        assert outcome.verdicts[name] == "unknown", outcome.out


def alive(mark: str) -> list[str]:
    return subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout.split()


def test_nothing_is_left_of_a_tool_that_forks(site):
    mark = f"{random.randrange(10**6) + 86400}.5"
    body = f"for i in {{1..50}}; do (setsid sleep {mark} >/dev/null 2>&1 &) ; sleep {mark} >/dev/null 2>&1 & done; exit 0"
    assert site(theirs=("exit,5", body)).verdicts["site.theirs"] == "pass"
    assert not alive(f"sleep {mark}")


def test_several_slow_tools_take_the_time_of_one(site):
    began = time.monotonic()
    outcome = site(**{f"slow{index}": ("exit,2", "sleep 60") for index in range(8)})
    assert time.monotonic() - began < 6 and list(outcome.verdicts.values()).count("unknown") >= 8


def test_random_changes_of_a_good_answer_never_break_the_check(site):
    chosen = random.Random(49)
    good = json.dumps(changed(AGENT, ["gpu", "GpuHealthCheck", "status"], "Error")).encode()
    (site.folder / "out").write_bytes(good)
    for _ in range(40):
        broken = bytearray(good)
        for _ in range(chosen.randrange(1, 6)):
            broken[chosen.randrange(len(broken))] = chosen.randrange(256)
        (site.folder / "out").write_bytes(broken)
        outcome = site(theirs=("status", f"cat {site.folder}/out"))
        assert outcome.verdicts["site.theirs"] in ("pass", "warn", "fail", "skip", "unknown")
        assert all(" " <= char <= "~" for char in outcome.checks["site.theirs"]["evidence"])


# ------------------------------------------------------------------------------------------------- who says what runs

@pytest.mark.parametrize("mode, owner", [(0o666, 0), (0o664, 0), (0o644, 65534)])
def test_a_file_that_others_may_write_names_nothing_that_root_runs(checker, tmp_path, mode, owner):
    file = tmp_path / "site.conf"
    file.write_text(f"site_check.evil=exit /usr/bin/touch {tmp_path}/ran\n")
    os.chown(file, owner, owner)
    file.chmod(mode)
    outcome = checker.node(cases.base(), "--site-file", file, "--health", "require")
    assert outcome.status == 1 and outcome.verdicts["site.file"] == "fail" and not (tmp_path / "ran").exists(), outcome.out


@pytest.mark.parametrize("line", ["site_check.x=exit", "site_check.x=exit relative", "site_check.x=json /bin/true", "site_check.x=exit,0 /bin/true",
                                  "site_check.x=exit,301 /bin/true", "site_check.x=exit,1,user /bin/true", "site_check.X=exit /bin/true",
                                  "site_check.=exit /bin/true", "site_check=exit /bin/true", f"site_check.{'x' * 25}=exit /bin/true",
                                  "site_check.a/b=exit /bin/true", "\n".join(f"site_check.n{i}=exit /bin/true" for i in range(9))])
def test_a_wrong_line_refuses_the_whole_file(site, line):
    outcome = site.file(line)
    assert outcome.status == 1 and outcome.verdicts["site.file"] == "fail", outcome.out
    assert not [name for name in outcome.verdicts if name.startswith("site.") and name != "site.file"]


def test_without_root_a_tool_for_root_is_skipped(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):  # another user is to come here
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    file = tmp_path / "site.conf"
    file.write_text("site_check.one=exit,5,root /bin/true\nsite_check.two=exit,5 /usr/bin/id -u\n")
    done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", conftest.TOOL, "check", "--json", "--no-verbs",
                           "--site-file", file], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 126 or not done.stdout:
        pytest.skip(f"another user cannot run the tool here: {done.stderr}")
    checks = {check["id"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["site.one"]["verdict"] == "skip" and checks["site.two"]["evidence"] == "65534", done.stdout


def test_another_machines_tree_is_not_judged_by_this_machines_tools(checker):
    assert not [name for name in checker.node(cases.base()).verdicts if name.startswith("site.")]


# ------------------------------------------------------------------------------------------------------- our own verdict

def as_node_verdict(checker, node, *arguments):
    checker.count += 1
    sys_folder, dev_folder = node.build(checker.folder / str(checker.count))
    return checker.run("--sysfs-root", sys_folder, "--dev-root", dev_folder, "--format", "nodeverdict", *arguments)


def test_our_verdict_in_the_words_of_health_validation(checker):
    node = cases.base()
    node.port(1).state = "1: DOWN"
    outcome = as_node_verdict(checker, node)
    verdict = json.loads(outcome.out)
    assert outcome.status == 1 and verdict["overall_severity"] == "CRITICAL"
    checks = {check["check_id"]: check for check in verdict["checks"]}
    assert checks["ib.state"]["severity"] == "CRITICAL" and "mlx5_ib1:1" in checks["ib.state"]["message"] and checks["ib.state"]["recommended_action"]
    assert checks["ib.sysfs"]["severity"] == "PASS"
    hit = [each for each in verdict["affected_components"] if each["category"] == "infiniband"]
    assert len(hit) == 1 and hit[0]["max_severity"] == "CRITICAL" and "ib.state" in hit[0]["check_ids"] and hit[0]["entities"] == [verdict["node"]]


def test_our_verdict_is_read_as_any_other(checker, site):
    own = as_node_verdict(checker, cases.base())
    assert json.loads(own.out)["overall_severity"] in ("PASS", "WARNING"), own.out
    (site.folder / "out").write_text(own.out)
    outcome = site(ours=("nodeverdict", f"cat {site.folder}/out"))
    assert outcome.verdicts["site.ours"] in ("pass", "warn"), outcome.out
    assert json.loads(as_node_verdict(checker, trees.Node([])).out)["overall_severity"] in ("INFO", "PASS", "WARNING")
