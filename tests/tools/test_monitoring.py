"""Dashboard, alerts and samples for Prometheus: over all series that the tools write, over no others, and asked of a real one."""

import contextlib
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import pytest

from recorder_files import Recorder, waiting, working

ROOT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = ROOT / "contrib/monitoring"
TOOL = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist"))
SERIES = re.compile(r"\baml_dist_[a-z_]+")
needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus") or not shutil.which("promtool"), reason="prometheus is not installed")
sys.path.insert(0, str(ROOT / "tests/fabric"))


def series_of_the_tools() -> set[str]:
    """Every gauge that a source file makes."""
    found = set()
    for path in (ROOT / "srun-wrappers").rglob("*.cpp"):
        found |= set(re.findall(r'Gauge \w+\{"(aml_dist_[a-z_]+)"', path.read_text()))
    assert len(found) >= 8
    return found


def test_the_service_is_bounded_and_in_a_sandbox():
    unit = (MONITORING / "aml-dist-textfile.service").read_text()
    for line in ("MemoryMax=", "TasksMax=", "CapabilityBoundingSet=", "NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths="):
        assert f"\n{line}" in unit, line
    if not shutil.which("systemd-analyze"): pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=50", MONITORING / "aml-dist-textfile.service"],
                          capture_output=True, text=True)
    assert done.returncode == 0 or "Unknown command" in done.stderr, done.stdout[-300:] + done.stderr


def dashboard() -> dict:
    return json.loads((MONITORING / "grafana-dashboard.json").read_text())


def panels() -> list[dict]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_the_dashboard_has_every_series_and_no_other():
    assert {name for text in expressions() for name in SERIES.findall(text)} == series_of_the_tools()


def test_the_alerts_use_series_that_exist():
    assert set(SERIES.findall((MONITORING / "alerts.yml").read_text())) <= series_of_the_tools()


def test_panels_are_told_apart_explained_and_do_not_overlap():
    taken = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
    assert all(panel["title"] and panel["description"].endswith(".") for panel in panels())


def test_a_panel_asks_the_data_source_that_the_viewer_chose():
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == chosen and all(target["datasource"] == chosen for target in panel["targets"]) for panel in panels())
    assert [each["name"] for each in dashboard()["templating"]["list"]] == ["datasource", "node", "step"]


@needs_prometheus
def test_promtool_takes_configuration_and_alerts(tmp_path):
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(MONITORING / name, tmp_path)
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0 and "3 rules found" in done.stdout, done


@needs_prometheus
def test_an_alert_is_raised_for_a_sick_node_and_a_step_that_stands_still(tmp_path):
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    (tmp_path / "test.yml").write_text("""
rule_files: [alerts.yml]
tests:
  - interval: 1m
    input_series:
      - {series: 'aml_dist_node_severity{node="n1"}', values: '3x10'}
      - {series: 'aml_dist_node_severity{node="n2"}', values: '2x10'}
      - {series: 'aml_dist_trace_awaited_seconds{step="7.0",rank="2",host="n2",why="dead",communicator="",operation="allreduce"}', values: '0+60x20'}
    alert_rule_test:
      - {eval_time: 4m, alertname: NodeIsSick, exp_alerts: []}
      - eval_time: 6m
        alertname: NodeIsSick
        exp_alerts:
          - exp_labels: {severity: page, node: n1}
            exp_annotations: {summary: "n1 fails a check of aml-dist: see aml-dist check on that node"}
      - {eval_time: 10m, alertname: StepStandsStill, exp_alerts: []}
      - eval_time: 11m
        alertname: StepStandsStill
        exp_alerts:
          - exp_labels: {severity: ticket, step: "7.0", rank: "2", host: n2, why: dead, operation: allreduce}
            exp_annotations: {summary: "step 7.0: others have waited for rank 2 on n2 for ten minutes (allreduce, dead)"}
""")
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------ what the tools really write

def metrics_of_nodes(folder: pathlib.Path) -> None:
    """A healthy node, one with a sick port."""
    import cases
    for name, state in (("well", "4: ACTIVE"), ("sick", "1: DOWN")):
        node = cases.base()
        node.port(1).state = state
        sys_folder, _ = node.build(folder / f"tree-{name}")
        done = subprocess.run([TOOL, "check", "--sysfs-root", sys_folder, "--format", "openmetrics"], capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], "SLURMD_NODENAME": name})
        (folder / f"{name}.prom").write_text(re.sub(r'node="[^"]*"', f'node="{name}"', done.stdout))


def metrics_of_a_step(folder: pathlib.Path) -> None:
    """Rank 2 was late to each call, and keeps the others waiting now."""
    for rank in range(4):
        recorder = working(rank, 4, 20)
        for call in recorder.calls:  # 10 ms apart, 4 ms long
            call.start = call.sequence * 10_000_000 + (3_500_000 if rank == 2 else 0)
            call.end = call.sequence * 10_000_000 + 4_000_000
        if rank != 2:
            waiting(recorder).calls[-1].start = 210_000_000
        recorder.write(folder / "42.0")
    done = subprocess.run([TOOL, "trace", folder / "42.0", "--format", "openmetrics"], capture_output=True, text=True, env={})
    (folder / "step.prom").write_text(done.stdout)


@contextlib.contextmanager
def prometheus(folder: pathlib.Path):
    """A server that reads the .prom files of a folder once a second: its address."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        extensions_map = {".prom": "text/plain; version=0.0.4"}

        def log_message(self, *_):
            pass  # no line for each request

    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    jobs = [{"job_name": path.stem, "metrics_path": f"/{path.name}", "scrape_interval": "1s",
             "static_configs": [{"targets": [f"127.0.0.1:{files.server_port}"]}]} for path in folder.glob("*.prom")]
    (folder / "prometheus.json").write_text(json.dumps({"scrape_configs": jobs}))
    with http.server.HTTPServer(("127.0.0.1", 0), None) as unused:
        port = unused.server_port
    server = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.json", f"--storage.tsdb.path={folder}/tsdb",
                               f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=(folder / "log").open("w"))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        files.shutdown()


def ask(address: str, expression: str) -> list[dict]:
    url = f"{address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def until_answered(address: str, expression: str, wanted: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            if len(ask(address, expression)) >= wanted:
                return
        time.sleep(0.1)
    raise AssertionError(f"no answer to {expression}")


@needs_prometheus
def test_every_panel_shows_what_the_tools_wrote(tmp_path):
    metrics_of_nodes(tmp_path)
    metrics_of_a_step(tmp_path)
    with prometheus(tmp_path) as address:
        until_answered(address, "up == 1", 3)
        for panel in panels():
            for target in panel["targets"]:
                assert ask(address, target["expr"].replace("$node", ".*").replace("$step", ".*")), panel["title"]
        shown = {panel["title"]: ask(address, panel["targets"][0]["expr"].replace("$node", ".*").replace("$step", ".*")) for panel in panels()}
    assert [each["value"][1] for each in shown["Sick nodes"]] == ["1"]
    assert [each["value"][1] for each in shown["Sick ports"]] == ["1"]
    assert {each["metric"]["node"]: each["value"][1] for each in shown["Worst result of each node"]}["sick"] == "3"
    assert ("ib.state", "sick") in {(each["metric"]["check"], each["metric"]["node"]) for each in shown["Checks that are not well"]}
    assert [(each["metric"]["rank"], each["value"][1]) for each in shown["Who is waited for"]] == [("2", "3")]
    assert {each["metric"]["rank"] for each in shown["Bus bandwidth"]} == {"0", "1", "2", "3"}


def samples(text: str) -> dict[str, dict[str, float]]:
    """Values by series and rank."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r'(aml_dist_[a-z_]+)\{.*rank="(\d+)".*\} (\S+)', line):
            found.setdefault(match[1], {})[match[2]] = float(match[3])
    return found


def test_bytes_calls_times_and_bandwidth_of_each_rank(tmp_path):
    """Twenty calls in 0.5 s, 4 MiB each, in 4 ms; rank 2 comes 3.5 ms late."""
    for rank in range(4):
        recorder = working(rank, 4, 20)
        recorder.latest = 500_000_000
        for call in recorder.calls:
            call.start = call.sequence * 10_000_000 + (3_500_000 if rank == 2 else 0)
            call.end = call.sequence * 10_000_000 + 4_000_000
        recorder.write(tmp_path / "42.0")
    done = subprocess.run([TOOL, "trace", tmp_path / "42.0", "--format", "openmetrics"], capture_output=True, text=True, env={})
    found = samples(done.stdout)
    assert found["aml_dist_trace_calls_per_second"] == pytest.approx(dict.fromkeys("0123", 40), rel=0.01), done.stdout
    assert found["aml_dist_trace_bytes_per_second"] == pytest.approx(dict.fromkeys("0123", 40 * 4 * 2**20), rel=0.01)
    assert found["aml_dist_trace_time_in_calls"] == pytest.approx({"0": 0.16, "1": 0.16, "2": 0.02, "3": 0.16}, rel=0.01)
    bus = 1.5 * 4 * 2**20 / 4e-3  # an all-reduce of four
    assert found["aml_dist_trace_bus_bytes_per_second"] == pytest.approx({"0": bus, "1": bus, "2": 8 * bus, "3": bus}, rel=0.01)
    assert 'operation="allreduce"' in done.stdout and 'source="amldist"' in done.stdout
    if shutil.which("promtool"):
        checked = subprocess.run(["promtool", "check", "metrics"], input=done.stdout.replace("# EOF\n", ""), capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


# ---------------------------------------------------------------------------------------------- the textfile collector

NOBODY = 65534


@pytest.fixture
def node():
    """A node with recorders of a step of nobody's, a Slurm that knows its job, and the collector's folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-textfile-", dir="/tmp"))
    folder.chmod(0o755)
    for name in ("bin", "out", f"dev/aml-dist-{NOBODY}", "tree"):
        (folder / name).mkdir(parents=True)
    program(folder / "bin/squeue", f'echo "42 {NOBODY}"; echo asked >>{folder}/asked')
    program(folder / "bin/logger", f'echo "$@" >>{folder}/log')
    tool = shutil.copy(TOOL, folder / "bin/tool")  # a checkout may be closed to other users
    program(folder / "bin/aml-dist", f'id -u >>{folder}/ids; case $1 in check) exec {tool} check --format openmetrics --sysfs-root '
            f'{folder}/tree;; *) exec {tool} "$@";; esac')
    (folder / "ids").touch()
    (folder / "ids").chmod(0o666)
    with subprocess.Popen(["sleep", "60"], user=NOBODY, cwd="/") as rank:
        yield folder
        rank.kill()
    shutil.rmtree(folder)


def program(path: pathlib.Path, script: str) -> None:
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def collect(node: pathlib.Path, **settings: str) -> subprocess.CompletedProcess:
    env = {"PATH": f"{node}/bin:{os.environ['PATH']}", "AML_DIST": f"{node}/bin/aml-dist", "AML_DIST_TEXTFILES": f"{node}/out",
           "AML_DIST_TRACE_ROOTS": f"{node}/dev", "AML_DIST_TEXTFILE_CONF": "/nonexistent", **settings}
    return subprocess.run([MONITORING / "aml-dist-textfile"], env=env, capture_output=True, text=True, timeout=60)


def give_to_nobody(folder: pathlib.Path) -> None:
    for path in (folder.parent, folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o700 if path.is_dir() else 0o600)


def stalled_step(folder: pathlib.Path, job: str = "42.0") -> None:
    for rank in range(2):
        recorder = working(rank, 2, 5)
        recorder.job = job
        (recorder if rank == 1 else waiting(recorder)).write(folder)


def test_the_node_and_its_steps_are_written(node):
    stalled_step(node / f"dev/aml-dist-{NOBODY}/42.0")
    give_to_nobody(node / f"dev/aml-dist-{NOBODY}/42.0")
    done = collect(node)
    assert done.returncode == 0, done
    assert sorted(path.name for path in (node / "out").iterdir()) == ["aml-dist-check.prom", "aml-dist-step-42.0.prom"]
    assert "aml_dist_node_severity" in (node / "out/aml-dist-check.prom").read_text()
    assert 'aml_dist_trace_stalled_calls{step="42.0"} 1' in (node / "out/aml-dist-step-42.0.prom").read_text().splitlines()
    assert (node / "ids").read_text().split() == ["0", str(NOBODY)], "the users' files are read as the user"


def test_a_step_that_has_ended_is_forgotten(node):
    stalled_step(node / f"dev/aml-dist-{NOBODY}/42.0")
    give_to_nobody(node / f"dev/aml-dist-{NOBODY}/42.0")
    collect(node)
    program(node / "bin/squeue", "true")
    assert collect(node).returncode == 0
    assert [path.name for path in (node / "out").iterdir()] == ["aml-dist-check.prom"]


def test_nothing_is_asked_of_slurm_while_nothing_is_traced(node):
    assert collect(node).returncode == 0 and not (node / "asked").exists()


def test_a_folder_under_anothers_name_is_not_read(node):
    stalled_step(node / "dev/aml-dist-1/42.0")  # of user 1, who has no job here
    assert collect(node).returncode == 0
    assert [path.name for path in (node / "out").iterdir()] == ["aml-dist-check.prom"]
    assert (node / "ids").read_text().split() == ["0"]


def test_root_looks_into_no_folder_of_a_users(node):
    """Nor does a link there lead root anywhere, or a thousand folders in others' names take its time."""
    (node / "secret/42.0").mkdir(parents=True)
    (node / "secret").chmod(0o700)
    (node / f"dev/aml-dist-{NOBODY}").rmdir()
    (node / f"dev/aml-dist-{NOBODY}").symlink_to(node / "secret")
    for user in range(100_000, 101_000):
        (node / f"dev/aml-dist-{user}/42.0").mkdir(parents=True)
    log = node / "calls"
    env = {"PATH": f"{node}/bin:{os.environ['PATH']}", "AML_DIST": f"{node}/bin/aml-dist", "AML_DIST_TEXTFILES": f"{node}/out",
           "AML_DIST_TRACE_ROOTS": f"{node}/dev", "AML_DIST_TEXTFILE_CONF": "/nonexistent"}
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    subprocess.run(["strace", "-f", "-qq", "-e", "trace=%file,setresuid,setreuid,setuid", "-o", log, MONITORING / "aml-dist-textfile"], env=env, check=True, timeout=60)
    assert [path.name for path in (node / "out").iterdir()] == ["aml-dist-check.prom"]
    became = set()
    for line in log.read_text().splitlines():
        process, _, call = line.partition(" ")
        if str(NOBODY) in call and re.search(r"set(res|re)?uid\(", call):
            became.add(process)
        if re.search(rf"\"{node}/(dev/aml-dist-|secret)", call) and "execve" not in call:
            assert process in became, line
    assert became, "somebody looked"


def test_lines_that_a_user_forged_are_dropped(node):
    stalled_step(node / f"dev/aml-dist-{NOBODY}/42.0")
    give_to_nobody(node / f"dev/aml-dist-{NOBODY}/42.0")
    program(node / "bin/aml-dist", r"""[[ $1 != check ]] || { echo '# EOF'; exit 3; }
cat <<'TEXT'
# TYPE aml_dist_trace_stalled_calls gauge
aml_dist_trace_stalled_calls{step="42.0"} 1
aml_dist_trace_stalled_calls{step="42.0"} 2
aml_dist_trace_stalled_calls{step="41.0"} 1
aml_dist_node_severity{node="n1"} 3
node_load1 0
# HELP aml_dist_trace_stalled_calls other words
aml_dist_trace_stalled_calls{step="42.0"} 1 1700000000
TEXT
head -c 3000000 /dev/zero""")
    assert collect(node).returncode == 0
    assert (node / "out/aml-dist-step-42.0.prom").read_text().splitlines() == [
        "# TYPE aml_dist_trace_stalled_calls gauge", 'aml_dist_trace_stalled_calls{step="42.0"} 1']


@pytest.mark.parametrize("broken", ["exit 2", "exec /nonexistent"])
def test_an_old_file_does_not_stay_when_the_check_cannot_run(node, broken):
    collect(node)
    program(node / "bin/aml-dist", broken)
    assert collect(node).returncode == 1
    assert not any((node / "out").iterdir()) and "could not run" in (node / "log").read_text()


def test_a_folder_that_is_missing_is_named(node):
    assert collect(node, AML_DIST_TEXTFILES="/nonexistent").returncode == 1
    assert "/nonexistent is not a folder" in (node / "log").read_text()
