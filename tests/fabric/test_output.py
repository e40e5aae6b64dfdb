"""What programs read: JSON by its schema, metrics by the rules of both of their formats, the list of sizes, and files."""

import concurrent.futures
import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

import cases
import conftest
import pytest
import shapes
import trees

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/check.schema.json").read_text())


# ------------------------------------------------------------------------------------------------- a small validator

def mistakes(value, schema, path="$") -> list[str]:
    """As much of JSON Schema as check.schema.json uses. An unknown keyword is a mistake of the schema."""
    known = {"$schema", "title", "description", "$defs", "$ref", "oneOf", "enum", "const", "type", "pattern", "minimum",
             "required", "properties", "additionalProperties", "items"}
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        return mistakes(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], path)
    out = []
    if "oneOf" in schema:
        each = [mistakes(value, option, path) for option in schema["oneOf"]]
        if sum(not found for found in each) != 1:
            out.append(f"{path}: not exactly one of: {each}")
    if "enum" in schema and value not in schema["enum"]:
        out.append(f"{path}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        out.append(f"{path}: {value!r} is not {schema['const']!r}")
    if "type" in schema:
        types = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(value, types[name]) for name in names):
            return out + [f"{path}: {value!r} is no {names}"]
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        out.append(f"{path}: {value!r} does not match {schema['pattern']}")
    if "minimum" in schema and isinstance(value, int) and value < schema["minimum"]:
        out.append(f"{path}: {value} is too small")
    for name in schema.get("required", []):
        if name not in value:
            out.append(f"{path}: without {name}")
    properties = schema.get("properties", {})
    if isinstance(value, dict):
        if schema.get("additionalProperties") is False:
            out += [f"{path}: {name} is not described" for name in set(value) - set(properties)]
        for name in set(value) & set(properties):
            out += mistakes(value[name], properties[name], f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            out += mistakes(item, schema["items"], f"{path}[{index}]")
    return out


def test_the_validator_finds_mistakes(checker):
    good = checker.node(cases.base()).report
    assert not mistakes(good, SCHEMA)
    for change in ({"schema": 1}, {"verdict": "maybe"}, {"more": 1}, {"checks": [{}]}, {"nccl_ib_hca": "mlx5_0"}, {"node": 3},
                   {"nccl_ib_gid_index": -1}):
        assert mistakes({**good, **change}, SCHEMA), change
    assert mistakes({name: value for name, value in good.items() if name != "node"}, SCHEMA)


@pytest.mark.parametrize("shape", [*shapes.healthy()[::7], *shapes.azure_without_fabric()], ids=lambda shape: shape.name)
def test_the_json_of_a_node_follows_its_schema(checker, shape):
    for arguments in (["--policy", "require"], ["--policy", "off"], []):
        report = checker.node(shape.node, *arguments, env=shape.env).report
        assert not mistakes(report, SCHEMA), mistakes(report, SCHEMA)


def test_what_is_unknown_follows_the_schema(checker):
    node = cases.base()
    node.devices[0].fw_ver = b"\xff"
    report = checker.node(node).report
    assert report["verdict"] == "unknown" and not mistakes(report, SCHEMA)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("node, expected", [(cases.base(), "=mlx5_ib0:1,mlx5_ib1:1"), (trees.Node([]), "")])
def test_the_manuals_example_with_jq(checker, node, expected):
    """Without a fabric the variable is empty, which NCCL takes for unset; "null" would select nothing."""
    manual = (pathlib.Path(__file__).resolve().parents[2] / "docs/man/aml-dist-check.1").read_text()
    program = re.search(r"aml-dist check --json \| jq -r '([^']*)'", manual).group(1)
    done = subprocess.run(["jq", "-r", program], input=checker.node(node).out, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


# ---------------------------------------------------------------------------------------------------------- metrics

LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)')


def parse_metrics(text: str) -> dict[tuple[str, tuple], float]:
    """By the rules that OpenMetrics 1.0 and the text format 0.0.4 share: gauges, each family in one piece, no timestamps."""
    assert text.endswith("\n# EOF\n") or text == "# EOF\n"
    samples, described, order = {}, {}, []
    for line in text.splitlines()[:-1]:
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            assert kind in ("TYPE", "HELP") and (kind, name) not in described and name not in order, line
            described[kind, name] = rest
            assert kind == "HELP" or rest == "gauge"
            continue
        match = LINE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        if not order or order[-1] != name:
            assert name not in order, f"{name} is in two pieces"
            order.append(name)
        key = name, tuple(sorted(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', labels or "")))
        assert key not in samples, f"{line} appears twice"
        samples[key] = float(value)
    assert all(("TYPE", name) in described and ("HELP", name) in described for name in order)
    assert not any(name.endswith(("_total", "_info", "_count", "_sum", "_bucket", "_created")) for name in order), "gauges"
    return samples


def value_of(samples, name, **labels):
    return {key: value for (metric, key), value in samples.items()
            if metric == name and all((label, text) in key for label, text in labels.items())}


def test_metrics_of_a_sick_node(checker):
    node = cases.base()
    node.port(1).state = "1: DOWN"
    sys_folder, _ = node.build(checker.folder / "tree")
    outcome = checker.run("--sysfs-root", sys_folder, "--policy", "require", "--format", "openmetrics")
    assert outcome.status == 1, outcome.err
    samples = parse_metrics(outcome.out)
    assert [*value_of(samples, "aml_dist_check_severity", check="ib.state").values()] == [3]
    assert [*value_of(samples, "aml_dist_check_severity", check="ib.lid").values()] == [0]
    assert [*value_of(samples, "aml_dist_check_verdict", check="ib.state", verdict="fail").values()] == [1]
    assert [*value_of(samples, "aml_dist_node_severity").values()] == [3]
    assert [*value_of(samples, "aml_dist_port_healthy", port="mlx5_ib0:1").values()] == [1]
    assert [*value_of(samples, "aml_dist_port_healthy", port="mlx5_ib1:1").values()] == [0]


def test_metrics_of_hostile_names(checker):
    node = cases.base()
    node.devices[0].name = 'a"b\\c{}'
    sys_folder, _ = node.build(checker.folder / "tree")
    samples = parse_metrics(checker.run("--sysfs-root", sys_folder, "--format", "openmetrics").out)
    assert value_of(samples, "aml_dist_port_healthy", port='a\\"b\\\\c{}:1')


def step(checker, nodes, *arguments):
    """The outcomes of a step's nodes, n0 first: its name must lead to this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = ["localhost", *(f"n{number}" for number in range(1, len(nodes)))]
    env = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": str(len(nodes)), "SLURM_LOCALID": "0",
           "SLURM_STEP_NODELIST": ",".join(names)}

    def check(number):
        sys_folder, _ = nodes[number].build(pathlib.Path(tempfile.mkdtemp(prefix=f"node{number}-", dir=checker.folder)))
        return checker.run("--sysfs-root", sys_folder, "--port", port, *arguments, env={**env, "SLURM_NODEID": str(number)},
                           timeout=60)
    with concurrent.futures.ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(check, range(len(nodes))))


def test_unknown_fails_a_step_as_it_fails_a_node(checker):
    """It did so on one node alone: a step went on, its metrics and the nodes to exclude did not have it."""
    def nodes():
        both = [cases.base(), cases.base()]
        both[1].port(0).counters["symbol_error"] = "many"
        return both
    require = ("--policy", "require")
    plain = step(checker, nodes(), *require, "--json")
    assert [each.status for each in plain] == [0, 0] and plain[0].report["verdict"] == "unknown", plain
    strict = step(checker, nodes(), *require, "--unknown", "fail", "--json")
    assert [each.status for each in strict] == [1, 1] and strict[0].report["verdict"] == "fail", strict
    assert [each["verdict"] for each in strict[0].report["nodes"]][1] == "fail", strict[0].out
    metrics = step(checker, nodes(), *require, "--unknown", "fail", "--format", "openmetrics")[0]
    severities = re.findall(r'^aml_dist_node_severity\{node="([^"]*)"\} (\S+)$', metrics.out, re.MULTILINE)
    assert sorted(value for _, value in severities) == ["0", "3", "3"], metrics.out  # of the well node, the other, the step
    excluded = step(checker, nodes(), *require, "--unknown", "fail", "--exclude")[0]
    assert len(excluded.out.splitlines()) == 1, excluded


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is not installed")
def test_metrics_please_promtool(checker):
    sys_folder, _ = cases.base().build(checker.folder / "tree")
    text = checker.run("--sysfs-root", sys_folder, "--format", "openmetrics").out
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done


@pytest.mark.parametrize("arguments", [["--format", "xml"], ["--format", "text", "--json"], ["--unknown", "pass"]])
def test_formats_that_are_none(checker, arguments):
    assert checker.run(*arguments).status == 2


# ------------------------------------------------------------------------------------------------------------ sizes

def test_the_list_of_sizes(checker):
    listed = {each["name"]: each for each in json.loads(checker.run("--list-sku", "--json").out)}
    assert listed["ND96isr_H100_v5"] == {**listed["ND96isr_H100_v5"], "fabric": "infiniband", "devices": 8, "rate_gbps": 400,
                                         "gpus": 8, "hca": None}
    for cloud in ("HB120rs_v3", "p5.48xlarge", "BM.GPU.H100.8", "a3-ultragpu-8g"):
        assert cloud in listed
    table = checker.run("--list-sku").out.splitlines()
    assert len(table) == len(listed) + 1 and table[0].split()[:3] == ["NAME", "FABRIC", "DEVICES"]


def test_the_table_agrees_with_azurehpc(checker):
    """Devices, rate and GPUs of every configuration of azurehpc-health-checks with check_hw_ib."""
    listed = {each["name"].lower(): each for each in json.loads(checker.run("--list-sku", "--json").out)}
    for size, (count, rate, gpus) in shapes.AZUREHPC.items():
        line = listed[re.sub(r"-[0-9]+", "", size)]
        assert (line["devices"], line["rate_gbps"], line["gpus"] or 0) == (count, rate, gpus), size


# As the service's documentation shows its answer, cut down.
METADATA = ('{"compute": {"azEnvironment": "AzurePublicCloud", "location": "westeurope", "name": "node-1", '
            '"vmScaleSetName": "pool", "vmSize": "%s", "zone": ""}, "network": {"interface": []}}')


def test_the_size_comes_from_a_copy_of_azures_metadata(checker, tmp_path):
    copy = tmp_path / "instance.json"
    copy.write_text(METADATA % "Standard_ND96isr_H100_v5")
    node = trees.azure(8, "400 Gb/sec (4X NDR)", 8)
    outcome = checker.node(node, "--sku", f"@{copy}")
    assert outcome.status == 0, outcome.out
    evidence = outcome.checks["ib.policy"]["evidence"]
    assert "Standard_ND96isr_H100_v5" in evidence and str(copy)[:40] in evidence  # a long path is cut
    copy.write_text(METADATA % "Standard_ND128isr_NDR_GB200_v6")
    node = trees.azure(3, "400 Gb/sec (4X NDR)", 4)
    assert checker.node(node, "--sku", f"@{copy}").verdicts["ib.count"] == "fail"


@pytest.mark.parametrize("content", [None, "", "{}", '{"vmSize": 5}', '{"vmSize": "', '{"vmSize": "a\\nb"}', METADATA % "",
                                     METADATA % "../../x y", METADATA % ("N" * 65), "\x00" * 99])
def test_metadata_without_a_size_is_an_error_in_a_sentence(checker, tmp_path, content):
    copy = tmp_path / "instance.json"
    if content is not None:
        copy.write_text(content)
    outcome = checker.run("--sku", f"@{copy}")
    assert outcome.status == (4 if content is None else 2) and "metadata '/" in outcome.err and outcome.err.count("\n") == 1, outcome.err


def test_the_sites_lines_are_listed_first(checker, tmp_path):
    table = tmp_path / "skus.conf"
    table.write_text("ours fabric=roce devices=2 gpus=4\n")
    first = json.loads(checker.run("--list-sku", "--json", "--sku-table", table).out)[0]
    assert first["name"] == "ours" and first["gpus"] == 4 and first["source"].endswith("skus.conf:1")


# ------------------------------------------------------------------------------------------------------------ files

def test_a_baseline_behind_a_link(checker, tmp_path):
    (tmp_path / "counters").symlink_to("kept/counters")
    (tmp_path / "kept").mkdir()
    assert checker.node(cases.base(), "--baseline", tmp_path / "counters").verdicts["ib.flap"] == "pass"
    assert (tmp_path / "counters").is_symlink() and (tmp_path / "kept/counters").is_file()
