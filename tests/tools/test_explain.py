"""`aml-dist explain` at the edges: what it refuses and how, pictures, and the running step."""

import os
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

SVG = "{http://www.w3.org/2000/svg}"

USAGE, REFUSED, NOT_FOUND = 2, 1, 4


@pytest.mark.parametrize("status, words, arguments", [
    (USAGE, "no layout is given", []),
    (USAGE, "--nodelist", ["--tasks-per-node", "2"]),
    (USAGE, "--tasks-per-node", ["--nodelist", "n1"]),
    (USAGE, "'[' without ']'", ["--nodelist", "n[1-2", "--tasks-per-node", "1"]),
    (USAGE, "'n1' twice", ["--nodelist", "n1,n[1-2]", "--tasks-per-node", "1"]),
    (USAGE, "did you mean 'pytorch'", ["--aml-dist", "pytroch", "--nodelist", "n1", "--tasks-per-node", "1"]),
    (USAGE, "cannot be combined", ["--nodelist", "n1", "--tasks-per-node", "1", "-m", "block", "--hostfile", "x"]),
    (USAGE, "needs --hostfile", ["--nodelist", "n1", "--tasks-per-node", "1", "-m", "arbitrary"]),
    (USAGE, "--task 4 does not exist", ["--nodelist", "n[1-2]", "--tasks-per-node", "2", "--task", "4"]),
    (USAGE, "give one value for all", ["--nodelist", "a : b : c", "--tasks-per-node", "1 : 2"]),
    (USAGE, "component 1", ["--nodelist", "a : ", "--tasks-per-node", "1"]),
    (USAGE, "--gpus-per-node", ["--nodelist", "a", "--tasks-per-node", "1", "--gpus-per-node", "-1"]),
    (REFUSED, "lists 3 nodes", ["--nodelist", "n[1-2]", "--tasks-per-node", "1(x3)"]),
    (REFUSED, "too many tasks", ["--nodelist", "n[1-99]", "--tasks-per-node", "67108864"]),
    (NOT_FOUND, "cannot be read", ["--hostfile", "/nonexistent/hosts"]),
    (REFUSED, "cannot be written", ["--nodelist", "n1", "--tasks-per-node", "1", "--svg", "/nonexistent/x.svg"]),
    (REFUSED, "process_count=3", ["--aml-dist", "mpi,process_count=3", "--nodelist", "n1", "--tasks-per-node", "2"]),
    (REFUSED, "per-node", ["--aml-dist", "mpi,launch=per-node", "--nodelist", "n1", "--tasks-per-node", "2"]),
])
def test_bad_input_is_one_sentence_and_a_status(tool, status, words, arguments):
    done = tool.run("explain", *arguments)
    assert (done.returncode, done.stdout) == (status, ""), done
    assert done.stderr.startswith("aml-dist: ") and done.stderr.count("\n") == 1 and words in done.stderr


def test_a_host_file_must_agree_with_the_counts(tool, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("n3\nn1\nn3\nn2\n")
    given = ["--nodelist", "n[1-3]", "--hostfile", str(hosts), "--tasks-per-node"]
    assert [task["host"] for task in tool.tasks(*given, "1(x2),2")] == ["n3", "n1", "n3", "n2"]
    done = tool.run("explain", *given, "2")
    assert done.returncode == REFUSED and "2 tasks for n1 but --hostfile names it 1 times" in done.stderr


def test_a_host_file_is_read_as_slurm_reads_it(tool, tmp_path):
    """What srun -m arbitrary took from SLURM_HOSTFILE on a real cluster (22.05)."""
    hosts = tmp_path / "hosts"
    hosts.write_text("# the big one first\nnode3 # two GPUs\n\nnode1*2\nnode2,node4#x")
    given = ["--hostfile", str(hosts), "--distribution", "arbitrary", "--nodelist", "node[1-4]", "--tasks-per-node", "2,1(x3)"]
    assert [task["host"] for task in tool.tasks(*given)] == ["node3", "node1", "node1", "node2", "node4"]
    for bad in ("node1*0", "node1*", "node1*x", "node1*99999999999", "*2"):
        hosts.write_text(bad + "\n")
        done = tool.run("explain", "--hostfile", str(hosts))
        assert done.returncode in (USAGE, REFUSED) and done.stderr.count("\n") == 1, done
    assert tool.run("explain", "--hostfile", "/dev/zero").returncode == NOT_FOUND


@pytest.mark.parametrize("arguments", [["explain", "--nodelist", "n1", "--tasks-per-node", "1", "--json"], ["--help"],
                                       ["check", "--json"], ["doctor", "--nodelist", "n1", "--tasks-per-node", "1"]])
def test_a_full_disk_is_told(tool, arguments):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([tool.path, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "standard output cannot be written: No space left" in done.stderr, done


def test_what_is_printed_goes_into_no_file_when_output_is_closed(tool, tmp_path):
    picture = tmp_path / "x.svg"
    done = subprocess.run(["bash", "-c", '"$0" explain --nodelist n1 --tasks-per-node 1 --svg "$1" >&-', tool.path, picture],
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert picture.read_text().startswith("<") and "RANK  HOST" not in picture.read_text()


def test_export_lines_make_the_environment(tool):
    arguments = ["--aml-dist", "pytorch", "--nodelist", "n[1-2]", "--tasks-per-node", "2,1"]
    exports = tool.run("explain", *arguments, "--task", "2").stdout
    env = tool.tasks(*arguments)[2]["env"]
    assert exports.splitlines() == [
        f"export {name}='{value}'" for name, value in env.items() if name != "AMLDIST_STAMP"
    ] + ["unset SLURM_NTASKS_PER_NODE", f"export AMLDIST_STAMP='{env['AMLDIST_STAMP']}'"]


def texts_of(path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg"
    return [element.text for element in root.iter(SVG + "text")]


def test_the_picture_shows_every_task(tool, tmp_path):
    picture = tmp_path / "layout.svg"
    done = tool.run("explain", "--aml-dist", "pytorch,master_port=4321", "--nodelist", "b : a", "--tasks-per-node",
                    "2 : 3", "--svg", str(picture))
    assert done.returncode == 0 and "RANK" in done.stdout
    texts = texts_of(picture)
    assert [text for text in texts if text in ("a", "b")] == ["b", "a"]
    assert [text for text in texts if text.startswith("rank ") and ":" not in text] == [f"rank {i}" for i in range(5)]
    assert [text for text in texts if text.startswith("local ")] == [f"local {i}" for i in (0, 1, 0, 1, 2)]
    assert "MASTER_ADDR:MASTER_PORT = b:4321" in texts


def test_the_picture_of_a_large_step_says_what_it_leaves_out(tool, tmp_path):
    picture = tmp_path / "layout.svg"
    tool.run("explain", "--nodelist", "n[1-500]", "--tasks-per-node", "40", "--svg", str(picture))
    texts = texts_of(picture)
    assert any("8 of 500 nodes are shown" in text for text in texts)
    assert sum("8 more tasks" in text for text in texts) == 8
    assert os.path.getsize(picture) < 200_000


RUNNING = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_PROCID": "2", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
           "SLURM_GTIDS": "0,2", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_STEP_NUM_TASKS": "4", "SLURMD_NODENAME": "n3",
           "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x2),2", "SLURM_DISTRIBUTION": "arbitrary",
           "RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0",
           "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.3", "MASTER_PORT": "20007",
           "AZ_BATCH_MASTER_NODE": "10.0.0.3:20007"}
MAP = "map=(vector,(2,1,1),(0,1,1),(2,1,1),(1,1,1))"


def stamped(text: str, **changes: str) -> dict[str, str]:
    return RUNNING | {"AMLDIST_STAMP": text} | changes


def test_the_running_step_is_explained_from_its_stamp(tool):
    env = stamped(f"12.3 kind=pytorch nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007")
    tasks = tool.tasks(env=env)
    assert [task["host"] for task in tasks] == ["n3", "n1", "n3", "n2"]
    assert [task["node_rank"] for task in tasks] == [0, 1, 0, 2]
    assert {task["env"]["AZ_BATCH_MASTER_NODE"] for task in tasks} == {"10.0.0.3:20007"}
    changed = tool.tasks(env=env | {"MASTER_ADDR": "changed-since"})
    assert [task["env"]["MASTER_ADDR"] for task in changed] == ["10.0.0.3", "10.0.0.3", "changed-since", "10.0.0.3"]


@pytest.mark.parametrize("stamp, changes", [
    ("12.3 kind=pytorch nodes=3 MASTER_ADDR=10.0.0.3 MASTER_PORT=20007", {}),                      # heterogeneous
    (f"12.3 kind=pytorch nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007", {"SLURM_GTIDS": "0,3"}),
    (f"12.3 kind=pytorch nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007", {"SLURMD_NODENAME": "n1"}),
    (f"12.3 kind=pytorch nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007", {"NODE_RANK": "1"}),
    ("12.3 kind=pytorch nodes=3 map=(vector,(0,3,1)) MASTER_ADDR=10.0.0.3 MASTER_PORT=20007", {}),
    (f"12.3 kind=tensorflow nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007", {"TF_CONFIG": "[]"}),
])
def test_what_is_not_known_is_not_guessed(tool, stamp, changes):
    done = tool.run("explain", env=stamped(stamp, **changes))
    assert done.returncode == 0 and "rank 2 of 4 alone" in done.stderr and done.stderr.count("\n") == 1
    assert "export RANK='2'" in done.stdout and "n2" not in done.stdout
    other = tool.run("explain", "--task", "1", env=stamped(stamp, **changes))
    assert other.returncode == REFUSED and "only this task" in other.stderr


@pytest.mark.parametrize("env", [
    RUNNING,                                                                                          # no stamp
    stamped(f"12.2 kind=pytorch nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007"),              # the outer step's
    stamped(f"11.3 kind=pytorch nodes=3 {MAP} MASTER_ADDR=10.0.0.3 MASTER_PORT=20007"),
])
def test_a_step_without_the_option_is_not_explained(tool, env):
    done = tool.run("explain", env=env)
    assert done.returncode == REFUSED and "started without --aml-dist" in done.stderr
