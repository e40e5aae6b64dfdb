"""aml-dist check-config: every mistake of an administrator's file is found, with its line, and a right file is fine."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from conftest import DONE, FAILED, NOT_FOUND, ROOT, SKIPPED, USAGE

SITE = ROOT / "contrib/plugstack/options.conf"


@pytest.fixture
def check(aml_dist, tmp_path):
    """Writes a file and returns (status, findings) of what check-config says about it."""
    def run(name: str, content: str | bytes, *flags: str, slurm: str | None = None):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        env = {}
        if slurm is not None:
            tool = tmp_path / "bin/sinfo"
            tool.parent.mkdir(exist_ok=True)
            tool.write_text(f"#!/bin/sh\nprintf '{slurm}'\n")
            tool.chmod(0o755)
            env = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
        done = aml_dist.run("check-config", "--json", *flags, str(path), env=env)
        assert done.status in (DONE, FAILED), done
        answer = json.loads(done.text)
        assert answer["schema"] == 1 and str(path) in answer["files"]
        assert done.status == (FAILED if any(f["severity"] == "error" for f in answer["findings"]) else DONE), done
        return answer["findings"]
    return run


def said(findings: list[dict]) -> list[tuple[int | None, str]]:
    return [(each["line"], each["problem"]) for each in findings]


# every key with a wrong value, and the words that say what it takes
WRONG_VALUES = {
    "port_range": "ports such as", "master_addr": "ip or name", "interface": "a network interface", "network": "an IPv4 network",
    "suffix": "the end of a host name", "rdma": "require, prefer or off", "rdma.gpu": "require, prefer or off",
    "rdma_pairs": "off, ring, log or all", "health": "require, prefer or off", "trace": "on or off", "hang": "seconds",
    "unknown": "warn or fail", "secret": "require or prefer", "job_comment": "on or off", "default.gpu": "a kind",
    "site_check.nhc": "exit, status or nodeverdict", "rdma_helper": "absolute path", "trace_libraries": "absolute path",
}


@pytest.mark.parametrize("key", WRONG_VALUES)
def test_a_wrong_value_is_named_with_its_line_and_what_it_takes(check, key):
    value = "!/" if key == "interface" else "no such value"
    wrong = [each for each in check("site.conf", f"# ours\n\n{key}={value}\n") if each["line"] == 3]
    assert len(wrong) == 1 and wrong[0]["severity"] == "error", wrong
    assert f"needs {WRONG_VALUES[key]}" in wrong[0]["problem"] or WRONG_VALUES[key] in wrong[0]["problem"], wrong


def test_every_setting_of_the_sample_is_known(check):
    lines = [line[2:] for line in SITE.read_text().splitlines() if line.startswith("# ") and "=" in line.split(" ")[1]]
    assert len(lines) > 15
    assert not [each for each in check("site.conf", "\n".join(lines)) if each["line"] is not None]
    assert not check("site.conf", SITE.read_text())


@pytest.mark.parametrize(("content", "line", "words"), [
    ("port_rang=20000-20999", 1, "is unknown (did you mean 'port_range'?)"),
    ("rdma=prefer\ntrace.gpu=on\nrdma=off", 3, "'rdma' is set in line 1 already"),
    ("config=/etc/other.conf", 1, "belongs in plugstack.conf"),
    ("default.=mpi", 1, "needs a partition's name"),
    ("port_range=1-65535", None, "can be used, the kernel gives the others"),
    ("interface=nothere0", None, "this machine has no such interface"),
    ("rdma_helper=/nowhere/aml-dist", None, "is not a program that can be run"),
    ("trace_libraries=/nowhere", None, "is not a folder"),
    ("site_check=exit /bin/true", 1, "needs a name behind 'site_check.'"),
    ("site_chek.nhc=exit /bin/true", 1, "is unknown (did you mean 'site_check.nhc'?)"),
    ("site_check.nhc=exit /nowhere/nhc", None, "is not a program that can be run"),
    ("site_check.nhc=exit /etc", None, "is not a program that can be run"),
    ("health=require\nsite_check.nhc=exit,60 /bin/true", None, "waits 10 s at most"),
    ("rdma_pairs=log", None, "no effect while rdma= is off"),
    ("rdma_sku=Standard_ND96isr_H100_v5", None, "no effect while rdma= and health= are off"),
    ("unknown=fail", None, "no effect while"),
    ("rdma=require\nrdma_sku=Standard_ND96isr_H10_v5", None, "is not in the table"),
    ("disabled", None, "switches the plugin off"),
])
def test_a_mistake_is_found(check, content, line, words):
    findings = check("site.conf", content)
    assert [each for each in findings if each["line"] == line and words in each["problem"]], findings


@pytest.mark.parametrize("line", ["site_check.nhc=exit /bin/true", "health=require\nsite_check.nhc=status,60,root /bin/true -q"])
def test_a_right_tool_of_the_site_is_fine(check, line):
    assert not check("site.conf", line)


def test_a_program_that_others_may_change_is_not_for_root(check, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o777)
    assert [each for each in check("site.conf", f"site_check.x=exit {tool}") if "can be changed by others" in each["problem"]]
    tool.chmod(0o755)
    tmp_path.chmod(0o777)
    assert [each for each in check("site.conf", f"site_check.x=exit {tool}") if "can be changed by others" in each["problem"]]
    tmp_path.chmod(0o755)
    assert not check("site.conf", f"site_check.x=exit {tool}")


@pytest.mark.parametrize(("content", "line", "words"), [
    ("a fabric=infiniband topology=/nowhere/topo.xml", 1, "topology=/nowhere/topo.xml cannot be used"),
    ("a fabric=infiniband\nb fabric=none\nA fabric=roce", 3, "is matched by line 1, which comes first"),
    ("ND* fabric=infiniband\nND96isr_H100_v5 fabric=infiniband devices=8", 2, "is matched by line 1, which comes first"),
])
def test_a_line_of_the_skus_that_cannot_have_effect(check, content, line, words):
    assert [each for each in check("skus.conf", content) if each["line"] == line and words in each["problem"]]
    assert not check("skus.conf", "ND96isr_H100_v5 fabric=infiniband devices=8\nND* fabric=infiniband\n*ib fabric=infiniband\n")


def test_a_partition_that_slurm_does_not_have_is_named(check):
    findings = check("site.conf", "rdma.gpuu=require\ndefault.cpu=mpi\n", slurm="cpu\\ngpu\\n")
    assert said(findings) == [(None, "rdma.gpuu=: Slurm has no partition 'gpuu'")]
    assert findings[0]["remedy"] == "did you mean 'gpu'?"


def test_a_line_of_plugstack_conf_leads_to_the_file_that_it_names(aml_dist, tmp_path):
    site = tmp_path / "site"
    site.write_text("secret=maybe\n")
    plugin = tmp_path / "spank_aml_dist.so"
    plugin.touch()
    stack = tmp_path / "plugstack.conf"
    stack.write_text(f"include {tmp_path}/more/*.conf\n# required {plugin}\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/aml.conf").write_text(f"\noptional {plugin} config={site} trace=maybe\nrequired {plugin}\n")
    done = aml_dist.run("check-config", str(stack))
    assert done.status == FAILED
    for words in [f"{tmp_path}/more/aml.conf:2: warning: the plugin is loaded as 'optional'",
                  "aml.conf:2: error: plugstack argument 'trace=maybe' needs on or off",
                  "aml.conf:3: error: the plugin is loaded a second time",
                  f"{site}:1: error: 'secret=maybe' needs require or prefer", f"{stack}: fine"]:
        assert words in done.text, done
    site.unlink()
    assert "does not exist: steps with --aml-dist are refused" in aml_dist.run("check-config", str(stack)).text
    plugin.unlink()
    assert "does not exist: no srun, sbatch or salloc works" in aml_dist.run("check-config", str(stack)).text


def test_what_a_line_leads_to_is_said_of_the_lines_own_file(aml_dist, tmp_path):
    """Of several included files it is not the last one that is at fault."""
    (tmp_path / "spank_aml_dist.so").touch()
    (tmp_path / "plugstack.conf").write_text(f"include {tmp_path}/a.conf\ninclude {tmp_path}/b.conf\n")
    (tmp_path / "a.conf").write_text(f"required {tmp_path}/spank_aml_dist.so config=/nowhere/site\n")
    (tmp_path / "b.conf").write_text("# another plugin's\n")
    text = aml_dist.run("check-config", str(tmp_path / "plugstack.conf")).text
    assert f"{tmp_path}/a.conf:1: error: config=/nowhere/site does not exist" in text and f"{tmp_path}/b.conf: fine" in text, text


def test_the_installed_file_must_be_roots_alone_and_a_draft_need_not(aml_dist, tmp_path):
    site = tmp_path / "site"
    site.write_text("secret=require\n")
    site.chmod(0o666)
    (tmp_path / "spank_aml_dist.so").touch()
    (tmp_path / "plugstack.conf").write_text(f"required {tmp_path}/spank_aml_dist.so config={site}\n")
    assert "users other than its owner may write to it: its mode is 0666: steps with --aml-dist are refused" in \
        aml_dist.run("check-config", str(tmp_path / "plugstack.conf")).text
    draft = aml_dist.run("check-config", "--as", "site", str(site))
    assert draft.status == DONE and "once installed it must be root's" in draft.text


def test_without_a_file_those_in_use_are_examined(aml_dist, tmp_path):
    (tmp_path / "slurm.conf").touch()
    (tmp_path / "plugstack.conf").write_text("required /nowhere/spank_aml_dist.so\n")
    env = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert f"{tmp_path}/plugstack.conf:1: error" in aml_dist.run("check-config", env=env).text
    (tmp_path / "plugstack.conf").unlink()
    assert aml_dist.run("check-config", env=env).status == SKIPPED


@pytest.mark.parametrize(("name", "content", "line", "words"), [
    ("skus.conf", "a fabric=none\nb fabric=ib\n", 2, "'fabric=ib' is not one of"),
    ("types.yml", "instance_types:\n  big:\n    partitoin: gpu\n", 3, "did you mean 'partition'?"),
    ("types.yml", "instance_types:\n\tbig:\n", 2, ""),
    ("types.yml", "downloads:\n  folder: /nowhere/shared\n", None, "/nowhere/shared does not exist"),
])
def test_the_tables_are_examined_too(check, name, content, line, words):
    findings = check(name, content)
    assert [each for each in findings if each["line"] == line and words in each["problem"]], findings


@pytest.mark.parametrize("content", [b"\x00\xff\n=\n", b"#" * 70000, b"rdma=" + b"x" * 60000, b"\x1b[2J=1\n", b"a\n" * 30000])
@pytest.mark.parametrize("kind", ["plugstack", "site", "skus", "instance-types"])
def test_hostile_files_are_answered(aml_dist, tmp_path, content, kind):
    path = tmp_path / "file"
    path.write_bytes(content)
    done = aml_dist.run("check-config", "--as", kind, str(path))
    assert done.status in (DONE, FAILED), done
    assert b"\x1b" not in done.out + done.err and b"\x00" not in done.out


def test_a_fifo_does_not_block_it(aml_dist, tmp_path):
    os.mkfifo(tmp_path / "site.conf")
    assert "not a regular file" in aml_dist.run("check-config", str(tmp_path / "site.conf")).text


def test_wrong_usage(aml_dist, tmp_path):
    assert "does not exist" in aml_dist.refusal(NOT_FOUND, "check-config", str(tmp_path / "nothing"))
    aml_dist.refusal(USAGE, "check-config", "--as", "nonsense", "/etc/hosts")
    assert "did you mean 'explain'?" in aml_dist.refusal(USAGE, "explains")
    assert "there are" in aml_dist.refusal(USAGE, "zzzzzzzz")


def test_a_table_of_skus_with_a_wrong_line_is_not_used(aml_dist, tmp_path):
    table = pathlib.Path(tmp_path / "skus.conf")
    table.write_text("mine fabric=none\nother fabric=ib\n")
    assert "line 2: 'fabric=ib' is not one of" in aml_dist.refusal(USAGE, "check", "--sku", "mine", "--sku-table", str(table))
