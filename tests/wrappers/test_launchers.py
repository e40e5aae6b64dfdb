"""aml-torchrun, aml-mpirun, aml-deepspeed and aml-horovodrun: their srun lines, and an account of every flag of the real
tools. The lists in flags/ are made from those tools' own parsers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest
from conftest import NO_SLURM, NOT_FOUND, ROOT, USAGE, Command
from flag_tables import real_flags, table_of

LISTS = [("torchrun", "torchrun-2.15"), ("mpirun", "mpirun-4.1"), ("mpirun", "mpirun-5.0"), ("deepspeed", "deepspeed-0.19"),
         ("horovodrun", "horovodrun-0.28")]
HANDLINGS = {"translated", "handed on", "ignored", "refused"}


@pytest.mark.parametrize("tool, name", LISTS)
def test_every_flag_of_the_real_tool_is_accounted_for(tool, name):
    table = {spelling: row for row in table_of(tool) for spelling in row["names"]}
    for values, spellings in real_flags(name):
        for spelling in spellings:
            assert spelling in table, f"{spelling} of {name} is not in the table"
            row = table[spelling]
            assert row["handling"] in HANDLINGS and row["becomes"]
            # A refused flag ends the command, so the words behind it do not matter.
            assert row["values"] == values or row["handling"] == "refused", (spelling, row)


@pytest.mark.parametrize("tool", ["torchrun", "mpirun", "deepspeed", "horovodrun"])
def test_no_spelling_means_two_things(tool):
    spellings = [spelling for row in table_of(tool) for spelling in row["names"]]
    assert len(spellings) == len(set(spellings))


def given(row: dict, name: str, tool: str) -> list[str]:
    """A flag with values that fit it."""
    special = {"--autotuning": ["tune"], "--mpi-args": ["--bind-to core"], "--binding-args": ["--bind-to core"],
               "--map-by": ["node"], "-map-by": ["node"], "--rank-by": ["slot"], "-rank-by": ["slot"], "--bind-to": ["core"],
               "-bind-to": ["core"], "--output": ["tag"], "--display": ["map"],
               "--runtime-options": ["show-progress"], "--launcher": ["slurm"], "--ppr": ["2:node"], "-ppr": ["2:node"], "-x": ["A=1"], "--x": ["A=1"],
               "--host": ["3:2"], "--hosts": ["3:2"], "--rdzv-conf": ["a=1"], "--slurm": ["--partition=x"], "--nnodes": ["2"], "--log-level": ["INFO"]}
    if any("host" in spelling and "file" in spelling or "machinefile" in spelling for spelling in row["names"]):
        return [name, "/dev/null"]
    if name in special:
        return [name, *special[name]]
    fits = {"share": "0.5", **dict.fromkeys(["", "int", "int+", "float", "float+"], "3")}
    return [name, *[fits.get(row["type"]) or row["type"].split("|")[0]] * row["values"]]


@pytest.mark.parametrize("tool, program", [("torchrun", ["t.py"]), ("mpirun", ["-n", "2", "./a"]),
                                           ("deepspeed", ["--num_gpus", "2", "t.py"]), ("horovodrun", ["-np", "2", "./a"])])
def test_each_flag_does_what_the_table_says(tool, program):
    """Refused ones end with the reason, ignored ones are said with it, and the others are taken without a word about it."""
    command = Command(f"aml-{tool}")
    for row in table_of(tool):
        name = row["names"][-1]
        if "-n" in row["names"] and tool == "mpirun":  # stands in each line
            continue
        if name in ("--help", "--version", "--list-flags", "--json", "--check-build", "--dry-run"):
            continue
        words = given(row, name, tool)
        if "/dev/null" in words:  # tested with real files below
            continue
        done = command.run("--dry-run", *words, *program)
        sentence = f"{name} is not supported here: {row['becomes']}" if row["handling"] == "refused" else f"{name} is ignored: "
        if row["handling"] == "refused":
            assert done.status == USAGE and sentence in done.said, f"{name}\n{done}"
        else:
            assert done.status == 0, f"{name}\n{done}"
            # What torchrun's agent would do is handed to it, or said where there is none.
            assert (sentence in done.said) == (row["handling"] == "ignored") or row["handling"] == "handed on", f"{name}\n{done}"


def words_of(tool: str, line: str, **options) -> tuple[list[str], str]:
    """The words of the srun line for a command line, and what was said. The paths of aml-dist are cut off."""
    done = Command(f"aml-{tool}").good("--dry-run", *shlex.split(line), **options)
    return [re.sub(r"^/.*/aml-dist$", "aml-dist", word) for word in shlex.split(done.text)], done.said


S = "--kill-on-bad-exit=1 --quit-on-interrupt"
U = f"{S} --cpu-bind=none"  # of launchers that bind nothing


@pytest.mark.parametrize("line, expected", [
    ("train.py", f"srun --nodes=1 --ntasks-per-node=1 {U} --aml-dist=pytorch python3 -u train.py"),
    ("--nnodes 2 --nproc-per-node 4 train.py --lr 0.1",
     f"OMP_NUM_THREADS=1 srun --nodes=2 --ntasks-per-node=4 {U} --export=ALL --aml-dist=pytorch python3 -u train.py --lr 0.1"),
    ("--nnodes=2 --nproc_per_node=4 --rdzv-backend=c10d --rdzv-endpoint=h:29400 -m pkg.mod -x",
     f"OMP_NUM_THREADS=1 srun --nodes=2 --ntasks-per-node=4 {U} --export=ALL --aml-dist=pytorch,master_port=29400 "
     "python3 -u -m pkg.mod -x"),
    ("--standalone --no-python ./prog '$RANK'",
     f"srun --nodes=1 --ntasks-per-node=1 {U} --aml-dist=pytorch aml-dist exec -- ./prog '$RANK'"),
    ("--nnodes 2 --nproc-per-node gpu train.py",
     f"srun --nodes=2 --ntasks-per-node=1 {U} --aml-dist=pytorch,launch=per-node,nproc_per_node=gpu torchrun train.py"),
    ("--nproc-per-node 8 --max-restarts 3 --tee 3 --log-dir 'my logs' train.py",
     f"srun --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 {S} --aml-dist=pytorch,launch=per-node,nproc_per_node=8 "
     "torchrun --max_restarts 3 --tee 3 --log_dir 'my logs' train.py"),
    ("--nnodes 2 --max-restarts 1 --rdzv-backend c10d --rdzv-id 7 train.py",
     f"srun --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 {S} --aml-dist=pytorch,launch=per-node,nproc_per_node=1 "
     "aml-dist exec -- torchrun --rdzv_backend c10d --rdzv_endpoint '$MASTER_ADDR:$MASTER_PORT' --rdzv_id 7 --max_restarts 1 "
     "train.py"),
    ("--max-restarts 0 --nproc_per 2 --slurm=--partition=gpu --slurm=--gpus-per-node=2 train.py",
     f"OMP_NUM_THREADS=1 srun --nodes=1 --ntasks-per-node=2 {S} --partition=gpu --gpus-per-node=2 --cpu-bind=none --export=ALL "
     "--aml-dist=pytorch python3 -u train.py"),
])
def test_torchrun(line, expected):
    assert words_of("torchrun", line)[0] == shlex.split(expected)


def test_torchrun_takes_its_defaults_from_pet_variables():
    words, _ = words_of("torchrun", "t.py", env={"PET_NNODES": "3", "PET_NPROC_PER_NODE": "2", "OMP_NUM_THREADS": "5"})
    assert words == shlex.split(f"srun --nodes=3 --ntasks-per-node=2 {U} --aml-dist=pytorch python3 -u t.py")
    assert words_of("torchrun", "--nnodes 1 t.py", env={"PET_NNODES": "3"})[0][1] == "--nodes=1"
    # Those that an outer step of aml-dist has set are nobody's wish.
    assert words_of("torchrun", "t.py", env={"PET_NNODES": "3", "AMLDIST_STAMP": "x"})[0][1] == "--nodes=1"


def test_numbers_of_torchrun_are_those_of_python():
    words, _ = words_of("torchrun", "--nnodes ' 2' --nproc-per-node=+1_0 t.py")
    assert "--nodes=2" in words and "--ntasks-per-node=10" in words
    assert words_of("torchrun", "--max-restarts=0_2 t.py")[0][-3:] == ["--max_restarts", "2", "t.py"]


def test_a_value_that_looks_like_a_flag_reaches_the_real_torchrun_as_a_value():
    assert words_of("torchrun", "--log-dir=-x --role=--y t.py")[0][-4:] == ["torchrun", "--log_dir=-x", "--role=--y", "t.py"]


def test_of_a_flag_of_argparse_the_last_one_holds():
    assert "launch=per-node" not in words_of("torchrun", "--max-restarts 3 --max-restarts 0 t.py")[0][4]
    assert "--nodes=1" in words_of("torchrun", "--standalone --nnodes=1:3 t.py")[0]
    assert "--aml-dist=pytorch,master_port=7" in words_of("torchrun", "--rdzv-endpoint h:7 --master-port 8 t.py")[0]
    assert "--distribution=block" in words_of("horovodrun", "-np 2 --mpi-args=--bynode --mpi-args=--byslot t")[0]


def test_mpirun_takes_a_prefix_of_one_flag():
    """As Open MPI 5 does."""
    assert words_of("mpirun", "-n 2 --oversub ./a")[0][1:3] == ["--overcommit", "--ntasks=2"]


M = "--mpi=pmix --kill-on-bad-exit=1 --quit-on-interrupt"


@pytest.mark.parametrize("line, expected", [
    ("-n 4 ./a x", f"srun --ntasks=4 {M} --aml-dist=mpi ./a x"),
    ("-np 4 -npernode 2 ./a", f"srun --ntasks-per-node=2 --nodes=2 --ntasks=4 {M} --aml-dist=mpi ./a"),
    ("-n6 --map-by ppr:2:node:pe=3 ./a",
     f"srun --cpus-per-task=3 --ntasks-per-node=2 --nodes=3 --ntasks=6 {M} --aml-dist=mpi ./a"),
    ("-N 3 -n 2 ./a", f"srun --ntasks-per-node=2 --nodes=1 --ntasks=2 {M} --aml-dist=mpi ./a"),
    ("-c 4 --map-by node --bind-to none ./a",
     f"srun --cpu-bind=none --ntasks=4 --distribution=cyclic {M} --aml-dist=mpi ./a"),
    ("-n 4 -report-bindings -bind-to numa ./a", f"srun --cpu-bind=verbose,ldoms --ntasks=4 {M} --aml-dist=mpi ./a"),
    ("-host a,b,a ./a", f"srun --ntasks=3 --distribution=arbitrary --nodelist=a,a,b {M} --aml-dist=mpi ./a"),
    ("-host n9:2,n10:2 ./a", f"srun --nodes=2 --ntasks-per-node=2 --nodelist=n9,n10 {M} --aml-dist=mpi ./a"),
    ("-host n10:2,n9:2 ./a",
     f"srun --ntasks=4 --distribution=arbitrary --nodelist=n10,n10,n9,n9 {M} --aml-dist=mpi ./a"),
    ("-host b:2,a:1 --bynode ./a", f"srun --ntasks=3 --distribution=arbitrary --nodelist=b,a,b {M} --aml-dist=mpi ./a"),
    ("-H a:* -n 3 ./a", f"srun --nodes=1 --ntasks=3 --nodelist=a {M} --aml-dist=mpi ./a"),
    ("-n 2 -x A='b c' -x HOME --mca btl tcp,self --mca plm rsh ./a",
     f"A='b c' OMPI_MCA_btl=tcp,self srun --ntasks=2 {M} --export=ALL --aml-dist=mpi ./a"),
    ("-n 2 --tag-output -timeout 61 -stdin all -wdir /x -q ./a",
     f"srun --label --time=2 --input=all --quiet --ntasks=2 --chdir=/x {M} --aml-dist=mpi ./a"),
    ("-n 2 --output-filename out ./a",
     f"srun --output=out/rank.%t.stdout --error=out/rank.%t.stderr --ntasks=2 {M} --aml-dist=mpi ./a"),
    ("-n 1 ./a 'x y' : -n 2 ./b",
     f"srun --ntasks=3 {M} --aml-dist=mpi bash -c "
     + shlex.quote("""if [ "$SLURM_PROCID" -lt 1 ]; then exec "${@:1:2}"; fi; exec "${@:3:1}\"""") + " aml-mpirun ./a 'x y' ./b"),
    ("-host a:1 ./a : -host b:1 -n 1 -wdir '/w d' ./b",
     f"srun --ntasks=2 --distribution=arbitrary --nodelist=a,b {M} --aml-dist=mpi bash -c "
     + shlex.quote("""if [ "$SLURM_PROCID" -lt 1 ]; then exec "${@:1:1}"; fi; cd -- '/w d' || exit; exec "${@:2:1}\"""")
     + " aml-mpirun ./a ./b"),
])
def test_mpirun(line, expected):
    assert words_of("mpirun", line)[0] == shlex.split(expected)


def run_as_tasks(words: list[str], tasks: int, **variables: str) -> list[str]:
    """What each task of a step would print: the words behind srun's options, started as rank 0, 1, ..."""
    at = words.index("bash")
    assigned = dict(word.split("=", 1) for word in words[:words.index("srun")])
    return [subprocess.run(words[at:], env={"PATH": "/usr/bin:/bin", "SLURM_PROCID": str(rank), **assigned, **variables}, check=True,
                           capture_output=True, text=True, timeout=20).stdout for rank in range(tasks)]


def test_a_variable_of_one_of_several_programs():
    """As mpirun 5.0.11 was seen to do it: of the first program for all, of a later one for itself, parameters for all."""
    show = "sh -c 'echo $0 A=$A B=$B C=$C M=$OMPI_MCA_m'"
    words, _ = words_of("mpirun", f"-n 1 -x A=1 -x B=1 {show} one : -n 1 -x B='2 x' --mca m 7 {show} two : -n 1 -x C=3 {show} three")
    assert run_as_tasks(words, 3) == ["one A=1 B=1 C= M=7\n", "two A=1 B=2 x C= M=7\n", "three A=1 B=1 C=3 M=7\n"]


def test_a_variable_that_is_unset():
    """As mpirun 5.0.11 was seen to do it."""
    show = "sh -c 'echo A=$A B=$B'"
    words, _ = words_of("mpirun", f"-n 1 --unset-env A -x B=1 {show} : -n 1 --unset-env B -x A=2 {show} : -n 1 {show}")
    assert run_as_tasks(words, 3, A="outer") == ["A= B=1\n", "A=2 B=\n", "A= B=1\n"]
    assert words_of("mpirun", "-n 1 --unset-env A ./a")[0][-4:] == ["env", "-u", "A", "./a"]


def test_two_programs_with_arguments_of_100_kilobytes():
    long = "y" * 100_000
    words, _ = words_of("mpirun", f"-n 1 printf %s {long} : -n 1 printf %sb {long}")
    assert run_as_tasks(words, 2) == [long, long + "b"]


def test_an_interface_that_is_named_twice_is_one():
    told = json.loads(Command("aml-horovodrun").good("--dry-run", "--json", "-np", "2", "--network-interfaces", "e0,e1",
                                                     "--network-interface", "e1", "t").out)
    assert told["environment"]["NCCL_SOCKET_IFNAME"] == "e0,e1"


@pytest.mark.parametrize("words", [["--network-interfaces", "", "--network-interface", "e1"], ["--network-interfaces", "e1,"]])
def test_an_empty_name_is_no_interface(words):
    told = json.loads(Command("aml-horovodrun").good("--dry-run", "--json", "-np", "2", *words, "t").out)
    assert told["environment"]["NCCL_SOCKET_IFNAME"] == "e1"


def test_mpirun_in_an_allocation_needs_no_number():
    assert words_of("mpirun", "./a", env={"SLURM_JOB_ID": "1"})[0] == shlex.split(f"srun {M} --aml-dist=mpi ./a")


@pytest.mark.parametrize("tool, line, expected", [
    ("torchrun", "--nnodes=2 --nproc-per-node=4 t.py", ["--nodes=2", "--ntasks-per-node=4", "--ntasks=8"]),
    ("torchrun", "--nproc-per-node=4 t.py", ["--nodes=1", "--ntasks-per-node=4", "--ntasks=4"]),
    ("torchrun", "--nnodes=1:9 --nproc-per-node=2 t.py", ["--ntasks-per-node=2", "--nodes=3", "--ntasks=6"]),
    ("torchrun", "--nnodes=2 --nproc-per-node=gpu t.py", ["--nodes=2", "--ntasks-per-node=1", "--ntasks=2"]),
    ("torchrun", "--nnodes=2 --nproc-per-node=4 --slurm=-n6 t.py", ["--nodes=2", "--ntasks-per-node=4", "--ntasks=6"]),
    ("mpirun", "-N 2 ./a", ["--ntasks-per-node=2", "--ntasks=6"]),
    ("mpirun", "-host a:2,b:2 ./a", ["--nodes=2", "--ntasks-per-node=2", "--ntasks=4"]),
    ("deepspeed", "--num_nodes 2 --num_gpus 2 t.py", ["--nodes=2", "--ntasks-per-node=2", "--ntasks=4"]),
    ("horovodrun", "-np 4 -H a:2,b:2 ./a", ["--nodes=2", "--ntasks-per-node=2", "--ntasks=4"]),
])
def test_the_number_of_tasks_is_not_left_to_the_allocation(tool, line, expected):
    """Where SLURM_NTASKS says how many tasks the allocation was made for, srun would start that many."""
    env = {"SLURM_JOB_ID": "1", "SLURM_NNODES": "3", "SLURM_NTASKS": "3"}
    words, _ = words_of(tool, line, env=env)
    assert [word for word in words if re.match("--(nodes|ntasks)\\b", word)] == expected


@pytest.mark.parametrize("line, expected", [
    ("--num_nodes 2 --num_gpus 4 t.py --deepspeed ds.json",
     f"srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 {U} --aml-dist=pytorch aml-dist exec -- python3 -u t.py "
     "'--local_rank=$LOCAL_RANK' --deepspeed ds.json"),
    ("--num_gpus 4 --no_local_rank --module a.b --master_port 2",
     f"srun --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 {U} --aml-dist=pytorch python3 -u -m a.b --master_port 2"),
    ("--num_accelerators 2 --master_port 29501 --no_python --no_local_rank ./x",
     f"srun --nodes=1 --ntasks-per-node=2 --gpus-per-node=2 {U} --aml-dist=pytorch,master_port=29501 ./x"),
    ("-i n1@n2:0,1 --num_gpus 2 --no_local_rank t.py",
     f"srun --nodes=2 --ntasks-per-node=2 --nodelist=n1,n2 --gpus-per-node=2 {U} --aml-dist=pytorch python3 -u t.py"),
    ("-e bad --num_gpus 2 --no_local_rank t.py",
     f"srun --exclude=bad --nodes=1 --ntasks-per-node=2 --gpus-per-node=2 {U} --aml-dist=pytorch python3 -u t.py"),
    ("--num_gpus 1 --venv_script 'my env' --enable_each_rank_log logs --bind_cores_to_rank --no_local_rank t.py",
     f"srun --output=logs/rank%t.log --cpu-bind=cores --nodes=1 --ntasks-per-node=1 --gpus-per-node=1 {S} --aml-dist=pytorch "
     "bash -c '. \"$0\" && exec \"$@\"' 'my env' python -u t.py"),
])
def test_deepspeed(line, expected):
    assert words_of("deepspeed", line)[0] == shlex.split(expected)


def test_deepspeed_reads_a_hostfile(tmp_path):
    (tmp_path / "hosts").write_text("# comment\nw0 slots=4\n\nw1\tslots=2  # two\nw2 slots=4\n")
    line = f"-H {tmp_path}/hosts --exclude w2@w0:0,1 --no_local_rank t.py"
    assert words_of("deepspeed", line)[0] == shlex.split(
        f"srun --nodes=2 --ntasks-per-node=2 --nodelist=w0,w1 --gpus-per-node=2 {U} --aml-dist=pytorch python3 -u t.py")
    words, _ = words_of("deepspeed", f"-H {tmp_path}/hosts --num_nodes 1 --num_gpus 3 --no_local_rank t.py")
    assert words[1:4] == ["--nodes=1", "--ntasks-per-node=3", "--nodelist=w0"]


@pytest.mark.parametrize("flags, layout", [
    ("", ["w9", "w9", "w9", "w9", "w1", "w1", "w2", "w2", "w2"]),
    ("-i w2@w9", ["w9", "w9", "w9", "w9", "w2", "w2", "w2"]),        # the hostfile's order, whatever that of the flag is
    ("-i w9:3,0,3@w1:1", ["w9", "w9", "w1"]),                        # a slot that is named twice is one slot
    ("-i w9:0@w9:0,2@w1", ["w9", "w9", "w1", "w1"]),                 # a node that is named again has more of its slots
    ("-e w9:1,1,2", ["w9", "w9", "w1", "w1", "w2", "w2", "w2"]),
    ("-e w1@w9:0@w9:1", ["w9", "w9", "w2", "w2", "w2"]),
    ("-e w2:0,1,2@w9", ["w1", "w1"]),
    ("--num_nodes 2", ["w9", "w9", "w9", "w9", "w1", "w1"]),
    ("--num_nodes 9 --num_gpus 2", ["w9", "w9", "w1", "w1", "w2", "w2"]),
])
def test_deepspeed_deals_ranks_to_the_hostfile(tmp_path, flags, layout):
    (tmp_path / "hosts").write_text("w9 slots=4\nw1 slots=2\nw2 slots=3\n")
    words, _ = words_of("deepspeed", f"-H {tmp_path}/hosts {flags} --no_local_rank t.py")
    told = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    names = told["nodelist"].split(",")
    if "ntasks-per-node" in told:
        names = [name for name in names for _ in range(int(told["ntasks-per-node"]))]
    assert names == layout


@pytest.mark.parametrize("content, flags, status, said", [
    ("a slots=2\n", "-i a:0,2", NOT_FOUND, "--include: 'a' has no slot 2: "),
    ("a slots=2\n", "-e a:7", NOT_FOUND, "--exclude: 'a' has no slot 7: "),
    ("a slots=2\n", "-i b", NOT_FOUND, "--include: 'b' is not in "),
    ("a slots=2\n", "-e a", USAGE, "--exclude leaves no node"),
    ("a slots=2\n", "-e a:0,1", USAGE, "--exclude leaves no node"),
    ("a slots=2\n", "-i a --num_gpus 1", USAGE, "leave --num_nodes and --num_gpus out"),
    ("a slots=2\nb slots=1\na slots=2\n", "", USAGE, "names 'a' more than once"),
    ("a slots=2\nb\n", "", USAGE, "does not say how many slots 'b' has: write b slots=N"),
])
def test_deepspeed_refuses_what_the_real_one_refuses(tmp_path, content, flags, status, said):
    (tmp_path / "hosts").write_text(content)
    sentence = Command("aml-deepspeed").refusal(status, "-H", f"{tmp_path}/hosts", *flags.split(), "t.py")
    assert said in sentence, sentence


def test_deepspeed_reads_its_environment_files(tmp_path):
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home, here):
        folder.mkdir()
    (home / ".deepspeed_env").write_text("NCCL_DEBUG=INFO\nBOTH=home\n")
    (here / ".deepspeed_env").write_text("BOTH=here = $X\n\n")

    def environment(*flags, **env):
        done = Command("aml-deepspeed").good("--num_gpus", "2", *flags, "--dry-run", "--json", "t.py", cwd=here,
                                             env={"HOME": str(home), **env})
        return json.loads(done.out)["environment"]

    assert environment("--num_nodes", "2") == {"NCCL_DEBUG": "INFO", "BOTH": "here = $X"}
    assert environment("--num_nodes", "1") == {}  # as deepspeed, which reads them for several nodes
    (here / "other").write_text("A=1\n")
    assert environment("--num_nodes", "2", DS_ENV_FILE="other") == {"A": "1"}
    (here / "bad").write_text("A=1\nno variable\n")
    sentence = Command("aml-deepspeed").refusal(USAGE, "--num_gpus", "2", "--num_nodes", "2", "--dry-run", "t.py", cwd=here,
                                                env={"DS_ENV_FILE": "bad"})
    assert ":2: 'no variable' is not a variable: write NAME=VALUE" in sentence


@pytest.mark.parametrize("flag, good, bad", [
    ("--cycle-time-ms", ["1", ".5", "1.", "2e-3", "1_0.5", "inf", " 3 "], ["x", "1e", ".", "1__0", "0x1", "e5", "1.5.2"]),
    ("--cache-capacity", ["0", "1_000", "+5", " 7"], ["1.5", "", "_1", "1_", "a", "+"]),
    ("--num-nccl-streams", ["2"], ["two"]),
    ("--start-timeout", ["30"], ["soon"]),
    ("--ssh-port", ["22"], ["ssh"]),
    ("--log-level", ["TRACE", "FATAL"], ["debug", "none"]),
])
def test_values_of_horovodrun_have_their_types(flag, good, bad):
    """As int() and float() of Python read them, which is what horovodrun gives them to."""
    for value in good:
        Command("aml-horovodrun").good("-np", "2", f"{flag}={value}", "--dry-run", "t")
    for value in bad:
        sentence = Command("aml-horovodrun").refusal(USAGE, "-np", "2", f"{flag}={value}", "--dry-run", "t")
        assert flag in sentence and "needs" in sentence, sentence


@pytest.mark.parametrize("port", ["-1", "0", "65536"])
def test_a_port_that_there_is_not_is_refused_by_deepspeed(port):
    """The real one hands it to PyTorch, which fails in each process."""
    said = Command("aml-deepspeed").refusal(USAGE, "--num_gpus", "2", "--master_port", port, "--dry-run", "t.py")
    assert f"invalid value '{port}' for --master_port: use a whole number from 1 to 65535" in said


@pytest.mark.parametrize("first, last, good", [("-1", "2", True), ("2", "-1", False), ("x", "2", False)])
def test_the_range_of_a_value_of_horovodrun_is_looked_at_in_the_last_one(first, last, good):
    """argparse reads each value, and horovodrun looks at the one that is left."""
    line = ["-np", "2", f"--gloo-timeout-seconds={first}", f"--gloo-timeout-seconds={last}", "--dry-run", "t"]
    if good:
        Command("aml-horovodrun").good(*line)
    else:
        assert "needs a whole number, 0 or more" in Command("aml-horovodrun").refusal(USAGE, *line)


@pytest.mark.parametrize("flag", ["--hosts=", "--hostfile="])
def test_an_empty_list_of_hosts_is_none_for_horovodrun(flag):
    assert "--ntasks=2 " in Command("aml-horovodrun").good("-np", "2", flag, "--dry-run", "t").text


@pytest.mark.parametrize("line, layout", [
    ("--hostfile {hosts} ./a", ["n1"] * 4 + ["n2"] * 2 + ["n3"] * 3),
    ("--hostfile {hosts} -host n3,n1 ./a", ["n3", "n1"]),                    # -host's order and slots
    ("--hostfile {hosts} -host n3:2,n1:6 ./a", ["n3"] * 2 + ["n1"] * 6),
    ("-host n2:1 --hostfile {hosts} ./a", ["n2"]),
    ("-host n1:8 -n 2 ./a : -host n1:8 -n 3 -npernode 2 ./b", ["n1"] * 5),   # a later limit does not hold where -n is
    ("-host n1:8 -npernode 2 ./a : -host n1:8 -n 1 ./b", ["n1"] * 3),
    ("-host n1:2,n2:2 -oversubscribe -n 7 ./a", ["n1"] * 4 + ["n2"] * 3),
    ("-host n1:1,n2:1 --map-by node:OVERSUBSCRIBE -n 4 ./a : -host n1:1 -n 2 ./b", ["n1", "n2"] * 2 + ["n1"] * 2),
    ("--hostfile {hosts} -host n2 -n 1 ./a", ["n2"]),
    ("-host n3:4 -npernode 2 ./a : -host n1:4 -n 1 ./b", ["n3", "n3", "n1"]),
    ("-host n2:1 -host n2:2,n1 ./a", ["n2"] * 3 + ["n1"]),                   # one host, though two flags name it
    ("--hostfile {hosts} -host n3 -n 1 ./a : --hostfile {hosts} -host n1:2 -n 2 ./b", ["n3", "n1", "n1"]),
])
def test_mpirun_filters_a_hostfile(tmp_path, line, layout):
    """The rules of PRRTE, which Open MPI 5 starts processes with."""
    (tmp_path / "hosts").write_text("n1 slots=4\nn2 slots=2\nn3 slots=3\n")
    words, _ = words_of("mpirun", line.format(hosts=tmp_path / "hosts"))
    told = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    names = told["nodelist"].split(",")
    if "ntasks-per-node" in told:
        names = [name for name in names for _ in range(int(told["ntasks-per-node"]))]
    assert names == layout


@pytest.mark.parametrize("line, said", [
    ("-host n1:1 -npernode 2 ./a", "2 processes do not fit into the 1 slot"),
    ("-host n1:8 -n 3 --ppr 2:node ./a", "3 processes do not fit: there are 2 on each of 1 host"),
    ("-host n1:8 -npernode 2 -n 1 ./a : -host n1:8 -n 3 ./b", "3 processes do not fit: there are 2 on each of 1 host"),
    ("-n 1 -n 3 ./a", "releases of Open MPI differ in which holds: keep one"),
    ("-host n1:8 --npersocket 1 ./a", "the number of processes is missing: Slurm knows the sockets"),
    ("-n 1 --bind-to socket --map-by slot:PE=2 ./a", "are bound as cores or hwthreads: give --bind-to core"),
    ("-n 1 -oversubscribe --map-by :NOOVERSUBSCRIBE ./a", "the opposite was given before"),
    ("-n 1 -wdir /a -wdir /b ./a", "releases of Open MPI differ in which holds: keep one"),
    ("-n 1 --display maq ./a", "'maq' is not one of allocation map"),
    ("-n 1 --display map:quietly ./a", "'quietly' is not one of parseable"),
    ("-n 1 --runtime-options --pmixmca ./a", "is not one of error-nonzero-status"),
    ("-n 1 --output file ./a", "write file=FOLDER"),
    ("-n 1 --output tags-and-more ./a", "is not one of tag"),
    ("-n 1 --mca a=b 1 ./a", "a name is not empty and has no ="),
    ("-n 1 --unset-env A=1 ./a", "a name is not empty and has no ="),
])
def test_mpirun_refuses_what_the_real_one_refuses(line, said):
    sentence = Command("aml-mpirun").refusal(USAGE, "--dry-run", *line.split())
    assert said in sentence, sentence


def test_mpirun_takes_directives_as_the_real_one_does():
    """Either word may be the beginning of the other, and --fwd-environment may have a value."""
    for flags in ("--display MAP,allo:pars", "--display mapx", "--runtime-options show", "--output ta,,rank", "--fwd-environment=a", "--output-proctable=a"):
        words_of("mpirun", f"-n 1 {flags} ./a")
    assert "--label" in words_of("mpirun", "-n 1 --output ta ./a")[0]


def test_a_folder_that_is_missing_starts_no_other_program(tmp_path):
    words, _ = words_of("mpirun", f"-n 1 -wdir {tmp_path}/none ./a : -n 1 echo wrong")
    script = words[words.index("bash"):]
    done = subprocess.run(script, env={"PATH": "/usr/bin:/bin", "SLURM_PROCID": "0"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "wrong" not in done.stdout and "none" in done.stderr


@pytest.mark.parametrize("line", ["-N 3 -n 4", "-n 5 --map-by ppr:2:node", "-npernode 3 -np 7"])
def test_processes_that_slurm_would_even_out_are_refused(line):
    """Open MPI fills one node after another: 3 and 1. Of --ntasks-per-node=3 --nodes=2 --ntasks=4 Slurm makes 2 and 2."""
    assert "do not come out even" in Command("aml-mpirun").refusal(USAGE, "--dry-run", *line.split(), "./a")


def test_mpirun_refuses_a_host_that_the_hostfile_does_not_have(tmp_path):
    (tmp_path / "hosts").write_text("n1 slots=4\n")
    sentence = Command("aml-mpirun").refusal(USAGE, "--hostfile", f"{tmp_path}/hosts", "-host", "n1,n9", "./a")
    assert "-host names 'n9', which the hostfile does not have" in sentence


def test_deepspeed_takes_the_gpus_of_the_allocation():
    env = {"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "8"}
    assert "--ntasks-per-node=8" in words_of("deepspeed", "t.py", env=env)[0]
    words, said = words_of("deepspeed", "--num_gpus 2 t.py", env={"SLURM_JOB_ID": "1"})
    assert not any(word.startswith("--gpus") for word in words) and "no GPUs" in said


def test_a_flag_of_the_program_is_not_the_launchers(tmp_path):
    assert words_of("horovodrun", "-np 2 ./a --check-build -cb")[0][-3:] == ["./a", "--check-build", "-cb"]
    (tmp_path / "horovodrun").write_text("#!/bin/sh\necho real \"$@\"\n")
    (tmp_path / "horovodrun").chmod(0o755)
    for flag in ("--check-build", "-cb", "--check"):
        done = Command("aml-horovodrun").good("-np", "2", flag, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        assert done.text == "real --check-build\n"
    assert words_of("deepspeed", "--num_gpus 2 --no_local_rank t.py --autotuning tune")[0][-3:] == ["t.py", "--autotuning", "tune"]


def test_deepspeed_hands_autotuning_to_the_real_one():
    words, said = words_of("deepspeed", "--autotuning tune t.py --dry-run-of-mine")
    assert words == ["deepspeed", "--autotuning", "tune", "t.py", "--dry-run-of-mine"] and "real deepspeed" in said
    line = "--slurm --nodes=2 --autotuning run --slurm=--exclusive --num_gpus 2 t.py --json --slurm x --dry-run"
    assert words_of("deepspeed", line)[0] == shlex.split("deepspeed --autotuning run --num_gpus 2 t.py --json --slurm x --dry-run")


@pytest.mark.parametrize("line, expected", [
    ("-np 4 python t.py", f"srun --ntasks=4 {M} --cpu-bind=none --aml-dist=mpi python t.py"),
    ("-n 4 --num-p 5 python t.py", f"srun --ntasks=5 {M} --cpu-bind=none --aml-dist=mpi python t.py"),  # as argparse abbreviates
    ("-np 4 -H a:2,b:2 python t.py", f"srun --nodes=2 --ntasks-per-node=2 --nodelist=a,b {M} --cpu-bind=none --aml-dist=mpi python t.py"),
    ("--num-proc 3 -H a:2,b:2 t", f"srun --ntasks=3 --distribution=arbitrary --nodelist=a,a,b {M} --cpu-bind=none --aml-dist=mpi t"),
    ("-np 2 --fusion-threshold-mb 64 --cycle-time-ms 2.5 --no-hierarchical-allreduce --timeline-filename t.json t",
     "HOROVOD_FUSION_THRESHOLD=67108864 HOROVOD_CYCLE_TIME=2.5 HOROVOD_HIERARCHICAL_ALLREDUCE=0 HOROVOD_TIMELINE=t.json "
     f"srun --ntasks=2 {M} --cpu-bind=none --export=ALL --aml-dist=mpi t"),
    ("-np 2 --network-interface eth0 --network-interface eth1 t",
     "OMPI_MCA_btl_tcp_if_include=eth0,eth1 NCCL_SOCKET_IFNAME=eth0,eth1 "
     f"srun --ntasks=2 {M} --cpu-bind=none --export=ALL --aml-dist=mpi t"),
    ("-np 4 --mpi-args='--map-by ppr:2:node -x A=1' t",
     f"A=1 srun --ntasks=4 --ntasks-per-node=2 {M} --cpu-bind=none --export=ALL --aml-dist=mpi t"),
])
def test_horovodrun(line, expected):
    assert words_of("horovodrun", line)[0] == shlex.split(expected)


# ------------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("tool, line, said", [
    ("torchrun", "--nporc-per-node 2 t.py", "did you mean --nproc-per-node?"),
    ("torchrun", "--nnodes 0 t.py", "invalid value '0' for --nnodes"),
    ("torchrun", "--rdzv-endpoint h:99999 t.py", "with a port from 0 to 65535"),
    ("torchrun", "--rdzv_endpoint=h: t.py", "with a port from 0 to 65535"),
    ("torchrun", "--no-python -m a", "cannot be combined"),
    ("torchrun", "--nnodes 4:2 t.py", "use N or MIN:MAX"),
    ("torchrun", "--nproc-per-node many t.py", "use a whole number, auto"),
    ("torchrun", "--nproc-per-node", "--nproc-per-node needs a value"),
    ("torchrun", "--rdzv t.py", "'--rdzv' can mean --rdzv_backend or --rdzv-backend"),
    ("torchrun", "--nproc 2 t.py", "'--nproc' can mean"),
    ("torchrun", "--rdzv-id --nproc-per-node=4 t.py", "--rdzv-id needs a value, and '--nproc-per-node=4' is a flag"),
    ("deepspeed", "--num_gpus 2 --launcher_args -x t.py", "--launcher_args needs a value, and '-x' is a flag"),
    ("torchrun", "--standalone=yes t.py", "--standalone takes no value"),
    ("torchrun", "--nnodes 2", "there is no program to start"),
    ("torchrun", "--master-port 70000 t.py", "from 0 to 65535"),
    ("torchrun", "--slurm=partition t.py", "invalid value 'partition' for --slurm"),
    ("torchrun", "--partition=x t.py", "options of Slurm are given as --slurm=--partition"),
    ("torchrun", "--container-image=x t.py", "options of Slurm are given as --slurm=--container-image"),
    ("mpirun", "-bysocket -np 2 ./a", "mpirun has no flag '-bysocket': --list-flags shows those that it has"),
    ("torchrun", "--monitor-interval=soon t.py", "--monitor-interval needs a number, not 'soon'"),
    ("torchrun", "--numa-binding=cores t.py", "needs one of node, socket, exclusive, core-complex"),
    ("torchrun", "--tee 0:4 t.py", "use 0, 1 (output), 2 (errors) or 3"),
    ("torchrun", "--local-ranks-filter 0,x t.py", "use the numbers of processes"),
    ("torchrun", "--rdzv-conf a t.py", "use KEY=VALUE,KEY=VALUE"),
    ("deepspeed", "--num_gpus 2 --module --no_python t.py", "cannot be combined"),
    ("deepspeed", "--num_gpus two t.py", "--num_gpus needs a whole number"),
    ("deepspeed", "--num_gpus 2 --autotuning later t.py", "needs one of tune, run"),
    ("horovodrun", "-np 2 --stall-check --no-stall-check t", "--no-stall-check and --stall-check cannot be combined"),
    ("horovodrun", "-np 2 -H a:2 --hostfile h t", "--hostfile and -H cannot be combined"),
    ("horovodrun", "-np 2 -H a,b:1 t", "'a' has no number of slots: write a:N"),
    ("horovodrun", "-np 2 --cache-capacity -1 t", "needs a whole number, 0 or more"),
    ("mpirun", "-n 2 --bind x ./a", "can mean"),
    ("mpirun", "./a", "give -n N"),
    ("mpirun", "-n 0 ./a", "from 1 to"),
    ("mpirun", "-host a:2 -n 3 ./a", "3 processes do not fit into the 2 slots"),
    ("mpirun", "-host a:x ./a", "is not a number of slots"),
    ("mpirun", "-host '-bad' ./a", "is not a host"),
    ("mpirun", "-n 1 ./a :", "a program is missing"),
    ("mpirun", "-n 1 ./a : ./b", "each needs its number of processes"),
    ("mpirun", "-n 1 -host a ./a : -n 1 ./b", "name them for all, or for none"),
    ("mpirun", "-n 2 --map-by seq ./a", "invalid value 'seq' for --map-by"),
    ("mpirun", "-n 2 --bind-to l2cache ./a", "use none, core"),
    ("mpirun", "-n 2 --mca btl", "--mca needs a value"),
    ("deepspeed", "t.py", "give --num_gpus N"),
    ("deepspeed", "--num_gpus 2 -i a -e b t.py", "cannot be combined"),
    ("deepspeed", "--num_gpus 2 -i 'a:x' t.py", "slots are numbers"),
    ("horovodrun", "python t.py", "give -np N"),
    ("horovodrun", "-np 2 --mpi-args='\"' t", "is not closed"),
    ("horovodrun", "-np 2 --mpi-args='--nonsense' t", "has no flag '--nonsense'"),
])
def test_wrong_command_lines_are_refused_in_one_sentence(tool, line, said):
    assert said in Command(f"aml-{tool}").refusal(USAGE, *shlex.split(line))


@pytest.mark.parametrize("content, said", [
    ("", "names no host"), ("a slots=0\n", ":1: '0' is not a number of slots"), ("a\nb slots\n", ":2: 'slots' is not known"),
    ("$(id) slots=1\n", "is not a host name"), ("a slots=99999999999999999999\n", "is not a number of slots"),
])
def test_wrong_hostfiles_are_refused_with_their_line(tmp_path, content, said):
    (tmp_path / "hosts").write_text(content)
    for tool, flags in (("mpirun", ["-n", "1"]), ("horovodrun", ["-np", "1"]), ("deepspeed", ["--num_gpus", "1"])):
        assert said in Command(f"aml-{tool}").refusal(USAGE, *flags, "--hostfile", f"{tmp_path}/hosts", "x")


def test_hostfiles_that_are_not_there_too_long_or_no_files(tmp_path):
    mpirun = Command("aml-mpirun")
    assert "No such file" in mpirun.refusal(NOT_FOUND, "--hostfile", f"{tmp_path}/none", "x")
    assert "not a regular file" in mpirun.refusal(NOT_FOUND, "--hostfile", "/dev/zero", "x")
    (tmp_path / "long").write_text("a slots=1\n" * 200_000)
    assert "longer than 1024 KiB" in mpirun.refusal(USAGE, "--hostfile", f"{tmp_path}/long", "x")


def test_without_slurm_it_says_so(launcher):
    flags = {"aml-mpirun": ["-n", "1"], "aml-deepspeed": ["--num_gpus", "1"], "aml-horovodrun": ["-np", "1"]}
    said = launcher.refusal(NO_SLURM, *flags.get(launcher.path.name, []), "x.py", env={"PATH": "/nowhere"})
    assert said == "srun is not installed here (not in PATH)"


def test_variables_and_folders_are_there_when_srun_starts(slurm):
    slurm.program("srun", 'printf "%s\\n" "$A" "$OMPI_MCA_btl" "$@" >srun.txt; [[ -d $A ]]')
    folder = slurm.folder / "out put"
    done = Command("aml-mpirun").good("-n", "1", "-x", f"A={folder}", "--mca", "btl", "self", "--output-filename", str(folder),
                                      "./p", env=slurm.env)
    assert done.said == ""
    assert slurm.written("srun.txt").splitlines()[:3] == [str(folder), "self", f"--output={folder}/rank.%t.stdout"]


# ------------------------------------------------------------------------------------------------------------------ help


def test_help_begins_with_examples_and_fits_a_screen(launcher):
    text = launcher.good("--help").text
    assert text.startswith("Examples:\n") and "Exit status" in text
    assert len(text.splitlines()) <= 40


def test_version_is_that_of_the_project(launcher):
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert launcher.good("--version").text == f"{launcher.path.name} {version}\n"


def test_json_describes_the_line():
    told = json.loads(Command("aml-mpirun").good("--dry-run", "--json", "-n", "2", "-x", "A=b", "./a").out)
    assert told["environment"] == {"A": "b"} and told["command"][0] == "srun" and told["line"].startswith("A=b srun ")
