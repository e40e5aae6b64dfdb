"""aml-dist keep on a real cluster: faults while a step runs, the decision, the node, and the training that goes on."""

import json
import os
import re
import shlex
import time

import pytest
from kept import KILL_NODE, TOOL, Kept, ends_as_undisturbed, train, wait_for_checkpoint
from test_faults import at_rest, wait_until
from test_hang import program  # noqa: F401 (fixture)



@pytest.fixture(autouse=True)
def clean(cluster):
    yield
    cluster.run("squeue -h -o %A | xargs -r scancel --quiet; while squeue -h | grep -q .; do sleep 0.2; done", timeout=40)
    assert cluster.devcluster("heal", "all").status == 0


def test_a_program_that_always_fails_is_stopped(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1 --retries 9", "sleep 0.3; [ $RANK != 1 ] || exit 7; sleep 30")
    assert kept.end() == 143 and len(kept.starts()) == 3, kept.text()  # srun says that Slurm ended the other ranks
    assert kept.starts()[2] == "node1, node4, node3" and kept.hosts(2) == ["node1", "node4", "node3"], "the spare has the rank: " + kept.text()
    assert "the program's own fault" in kept.lines()[-1], kept.text()


def test_a_program_that_fails_everywhere_is_stopped_soon(cluster, workdir):
    kept = Kept(cluster, workdir, "--retries 9 --spares 1", "sleep 0.$((RANDOM % 9)); exit 3")
    assert kept.end() in (3, 143) and len(kept.starts()) <= 3 and "the program's own fault" in kept.lines()[-1], kept.text()


def test_statuses_that_are_not_to_be_repeated(cluster, workdir):
    kept = Kept(cluster, workdir, "--no-restart-on 9,7", "[ $RANK != 1 ] || exit 7; sleep 30")
    kept.end()
    assert len(kept.starts()) == 1 and kept.lines()[-1] == "not started again: status 7 is in --no-restart-on", kept.text()


def test_a_step_that_is_refused_is_not_repeated(cluster, workdir):
    kept = Kept(cluster, workdir, "", "true", srun="--aml-dist=pytorch,process_count=9")
    assert kept.end() == 1 and len(kept.starts()) == 1 and "not started again: refused" in kept.lines()[-1], kept.text()


def test_no_progress_ends_it(cluster, workdir):
    """Ranks fail on one node after the other, differently, and nothing is saved."""
    (workdir / "saved").mkdir()
    kept = Kept(cluster, workdir, f"--retries 9 --checkpoints {workdir}/saved", "[ $RANK != $AMLDIST_RESTART ] || exit $((5 + AMLDIST_RESTART)); sleep 30")
    kept.end()
    assert len(kept.starts()) == 2 and kept.lines()[-1].startswith("no progress in two starts"), kept.text()


def test_a_hang_is_started_again_and_then_its_node_swapped(cluster, pmix, program, workdir):  # noqa: F811
    """The third start is healthy. Open MPI needs no network between the starts."""
    kept = Kept(cluster, workdir, "--spares 1", f"[ $AMLDIST_RESTART -lt 2 ] && kind=late || kind=none; exec {program} $kind 7 5", sbatch="-N3",
                srun="--ntasks-per-node=2 --mpi=pmix --aml-dist=mpi,hang=2")
    assert kept.end(90) == 0, kept.text()
    assert kept.starts() == ["node1, node2, spare: node3"] * 2 + ["node1, node3"], kept.text()
    assert kept.text().count("aml-dist: hang: ") == 2 and "node2 is suspected" in kept.text(), kept.text()


def test_a_check_that_does_not_answer_is_not_a_sick_node(cluster, workdir):
    """And does not hold the job for ever."""
    slow = workdir / "slow"
    slow.write_text("#!/bin/bash\nsleep 300\n")
    slow.chmod(0o755)
    assert cluster.run(f"mount --bind {slow} {TOOL}", on="node3").status == 0
    try:
        kept = Kept(cluster, workdir, "", "true")
        assert kept.end(80) == 0 and kept.starts() == ["node1, node2, node3, node4"], kept.text()
        assert "the check of node3 has not answered" in kept.lines()[0], kept.text()
    finally:
        assert cluster.run(f"umount {TOOL}", on="node3").status == 0


@pytest.mark.parametrize("arguments, says, starts", [
    ("--min-nodes 2", "it goes on with 3 nodes (--min-nodes=2)", ["node1, node2, node3, node4", "node1, node3, node4"]),
    ("", "no spare is left: give --spares, --min-nodes or --requeue", ["node1, node2, node3, node4"]),
])
def test_no_spare_is_left(cluster, workdir, arguments, says, starts):
    kept = train(cluster, workdir, arguments, steps=60)
    wait_for_checkpoint(kept)
    cluster.run(KILL_NODE, on="node2")
    status = kept.end()
    assert says in kept.text() and kept.starts() == starts and (status == 0) == bool(arguments), kept.text()
    if arguments:
        assert "rank 2 of 3 on node4 start 1" in kept.text(), kept.text()


def test_back_to_the_queue_without_the_node(cluster, workdir):
    """slurmctld refuses the first two requests."""
    kept = train(cluster, workdir, "--requeue", steps=60, sbatch="-N3 --requeue", environment=failing_at_first(workdir, "scontrol", "requeue", 2))
    wait_for_checkpoint(kept)
    cluster.run(KILL_NODE, on="node2")
    kept.says("the job goes back to the queue, without node2")
    kept.says("the job was requeued: 1 start so far, without node2", 60)
    assert kept.end(60) == 0, kept.text()
    assert kept.starts() == ["node1, node2, node3", "node1, node3, node4"] and "start 1 1 port" in kept.text(), kept.text()
    assert ends_as_undisturbed(cluster, workdir, 3, 60), kept.text()
    assert len((workdir / "asked").read_text().splitlines()) == 3, kept.text()
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_a_step_that_stops_before_the_limit_goes_on_in_the_queue(cluster, workdir):
    """The first run stops when it is asked to, 50 s before a limit of a minute; the second has nothing left to do."""
    log = workdir / "log"
    (workdir / "rank.sh").write_text("#!/bin/bash\n[ ! -e saved ] || { echo nothing left; exit 0; }\n"
                                     "until [ -e $AMLDIST_STOP_FILE ]; do sleep 0.2; done\necho saved by $RANK start $AMLDIST_RESTART >>saved\n")
    (workdir / "job.sh").write_text(f"#!/bin/bash\ncd {workdir}\n{TOOL} keep --retries 0 --health off --requeue-at-limit -- srun --ntasks-per-node=1 "
                                    f"--aml-dist=pytorch,stop=50 bash rank.sh\necho status $? >>{log}\n")
    done = cluster.run(f"cd {workdir} && sbatch --parsable -N2 --ntasks-per-node=1 --time=1 --requeue --open-mode=append -o {log} job.sh")
    assert done.status == 0, str(done)
    wait_until(lambda: log.exists() and log.read_text().count("nothing left") == 2, 120)
    wait_until(lambda: "\nstatus 0" in log.read_text().rpartition("nothing left")[2], 20)
    said = log.read_text()
    assert "keep: the step has stopped before the time limit: the job goes back to the queue" in said, said
    assert "keep: the job was requeued: 1 start so far" in said and "start 1 on node" in said, said
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_a_cancelled_job_is_not_started_again(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1 --retries 9", "sleep 60")
    kept.says("rank 2 of 3")
    cluster.run(f"scancel {kept.job}")
    wait_until(lambda: kept.job not in cluster.run("squeue -h -o %A").out, 30)
    assert len(kept.starts()) == 1, kept.text()
    assert not list(workdir.glob(".aml-dist-keep*")), "no file is left"


def test_a_cancelled_step_is_not_started_again(cluster, workdir):
    kept = Kept(cluster, workdir, "--spares 1 --health off", "exec sleep 60")
    kept.says("rank 2 of 3")
    cluster.run(f"scancel {kept.job}.0")
    assert kept.end() != 0 and len(kept.starts()) == 1 and "not started again: cancelled" in kept.lines()[-1], kept.text()


def test_a_task_of_an_array_leaves_the_others_alone(cluster, workdir):
    """The number of the last task is that of the whole array: a node that goes, and the way back to the queue, are of this task only."""
    folders = [workdir / "0", workdir / "1"]
    for folder in folders:
        folder.mkdir()
    program = ("[ $SLURM_ARRAY_TASK_ID = 1 ] || exec sleep 20\n"  # the other task lives through all that happens to this one
               "[ -z $SLURM_RESTART_COUNT ] || exit 0\n"
               "[ $RANK = 0 ] || { pkill -9 -x slurmd; pkill -9 slurmstepd; exit 1; }\nexec sleep 30\n")
    other, own = (Kept(cluster, folder, "--requeue --health off", program, sbatch=None) for folder in folders)
    task = workdir / "task.sh"
    task.write_text(f"#!/bin/bash\ncd {workdir}/$SLURM_ARRAY_TASK_ID && exec ./job.sh >>log 2>&1\n")
    done = cluster.run(f"sbatch --array=0-1 -N2 --exclusive --ntasks-per-node=1 --requeue -o /dev/null {task}")
    assert done.status == 0, str(done)
    own.says("the job was requeued: 1 start so far", 90)
    assert other.end(60) == 0 and len(other.starts()) == 1 and "requeued" not in other.text(), other.text()
    cluster.devcluster("heal")
    assert own.end(90) == 0, own.text()


def test_a_spare_that_dies_does_not_end_the_job(cluster, workdir):
    """Slurm would give the node up after SlurmdTimeout, which is 30 s here, and the job with it."""
    kept = Kept(cluster, workdir, "--spares 1 --retries 9 --health off", "sleep 50")
    kept.says("rank 2 of 3")
    assert kept.starts() == ["node1, node2, node3, spare: node4"], kept.text()
    cluster.run("pkill -9 -x slurmd", on="node4")
    kept.says("slurmd of node4 does not answer, and slurmctld has missed it: the step, which does not use it, goes on")
    assert kept.end(90) == 0 and len(kept.starts()) == 1, kept.text()
    cluster.devcluster("heal")


def test_cancelled_between_two_starts(cluster, workdir):
    kept = Kept(cluster, workdir, "--retries 99 --spares 1", "exit $((AMLDIST_RESTART + 1))")
    kept.says("start 2 on")
    cluster.run(f"scancel {kept.job}")
    wait_until(lambda: kept.job not in cluster.run("squeue -h -o %A").out, 30)
    assert len(kept.starts()) <= 4, kept.text()


def test_the_others_may_finish_what_they_write(cluster, workdir):
    """--grace: the other ranks are not ended for so long."""
    kept = Kept(cluster, workdir, "--retries 0 --grace 4", "[ $RANK != 1 ] || exit 7; sleep 2; echo saved $RANK; sleep 60")
    assert kept.end(30) != 0, kept.text()
    assert sorted(re.findall(r"saved \d", kept.text())) == ["saved 0", "saved 2", "saved 3"], kept.text()
    assert "the others have 4 s to finish" in kept.text() and "--grace=4 is over" in kept.text(), kept.text()


def test_a_rank_that_fails_while_the_batch_machine_has_no_network(cluster, workdir):
    """srun tells it when slurmctld answers again, and the job goes on with all nodes."""
    kept = Kept(cluster, workdir, "--retries 3 --health off", "[ $AMLDIST_RESTART = 0 ] || exit 0\n"
                "[ $RANK != 0 ] || { until [ -e cut ]; do sleep 0.2; done; exit 7; }\nexec sleep 90", sbatch="-N3")
    kept.says("rank 2 of 3")
    assert cluster.devcluster("break", "node1", "link").status == 0
    (workdir / "cut").touch()
    time.sleep(15)
    assert cluster.devcluster("heal", "node1").status == 0
    assert kept.end(90) == 0, kept.text()
    assert kept.starts() == ["node1, node2, node3"] * 2, kept.text()


def failing_at_first(workdir, tool: str, words: str, failures: int) -> dict[str, str]:
    """An environment where `tool` with these words does nothing and fails so often, as where slurmctld is away."""
    folder = workdir / "tools"
    folder.mkdir()
    (folder / tool).write_text(f"#!/bin/bash\ncount=$(wc -l <{workdir}/asked)\n[[ \" $*\" != *{words}* ]] || {{ echo \"$*\" >>{workdir}/asked; "
                               f"[ $count -ge {failures} ] || exit 1; }}\nPATH=${{PATH#*:}} exec {tool} \"$@\"\n")
    (folder / tool).chmod(0o755)
    (workdir / "asked").touch()
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_lost_request_to_end_the_step_is_repeated(cluster, workdir):
    kept = Kept(cluster, workdir, "--retries 0 --grace 1 --health off", "[ $RANK != 1 ] || exit 7; exec sleep 80",
                environment=failing_at_first(workdir, "scancel", "quiet", 1))
    assert kept.end(50) != 0, kept.text()
    assert len((workdir / "asked").read_text().splitlines()) == 2, kept.text()


def test_ranks_that_ignore_sigterm(cluster, workdir):
    """They are killed after KillWait, two seconds here, and the next start does not wait for longer."""
    kept = Kept(cluster, workdir, "--health off", "trap '' TERM; [ $AMLDIST_RESTART = 0 ] || exit 0; [ $RANK != 1 ] || exit 7; while :; do sleep 0.5; done")
    assert kept.end() == 0 and len(kept.starts()) == 2 and "again on the same nodes" in kept.text(), kept.text()


def test_so_often_within_an_hour(cluster, workdir):
    kept = Kept(cluster, workdir, "--per-hour 1 --retries 9 --health off", "[ $RANK != $AMLDIST_RESTART ] || exit $((5 + AMLDIST_RESTART)); sleep 30")
    assert kept.end() != 0 and len(kept.starts()) == 2, kept.text()
    assert "it was started again 1 time within the last hour, the most that --per-hour allows" in kept.lines()[-1], kept.text()


@pytest.mark.parametrize("watched, starts", [("{0}/steps", 4), ("'wc -l <{0}/other'", 2)])
def test_progress_of_a_file_or_by_a_command(cluster, workdir, watched, starts):
    """Each start fails on another rank and in another way. What advances may go on, what does not is ended."""
    (workdir / "other").write_text("1\n")
    kept = Kept(cluster, workdir, f"--retries 9 --health off --progress {watched.format(workdir)}",
                "[ $AMLDIST_RESTART -lt 3 ] || exit 0; [ $RANK = $AMLDIST_RESTART ] || exec sleep 30; echo $RANK >>steps; exit $((5 + RANK))")
    assert (kept.end() == 0) == (starts == 4) and len(kept.starts()) == starts, kept.text()
    assert starts == 4 or kept.lines()[-1].startswith("no progress in two starts"), kept.text()


def test_a_state_that_is_not_of_this_job(cluster, workdir):
    """Another job's counts for nothing, and what is no state is said."""
    other = {"schema": 1, "cluster": "other", "job": 1, "restarts": 0, "excluded": ["node1"], "batch_host": "", "runs": True, "history": []}
    for content, says in [(json.dumps(other), ""), ("no state", "is not a file of keep's: it is not used")]:
        (workdir / "content").write_text(content)
        done = cluster.run(f"cd {workdir}; salloc -Q -N1 -w node1 bash -c 'cp content .aml-dist-keep-$SLURM_JOB_ID.json; "
                           f"{TOOL} keep --health off -- srun --aml-dist=pytorch true'")
        lines = [line for line in done.own_lines() if "start 0 on node1" not in line]
        assert done.status == 0 and [says in line for line in lines] == [True] * bool(says), str(done)


def test_starts_and_stops_leave_nothing(cluster, workdir):
    """No file, port or process, though every third keep is killed with its srun. AMLDIST_KEEP_STARTS: how many."""
    starts = int(os.environ.get("AMLDIST_KEEP_STARTS", "4"))
    files = "ls -d /tmp/aml-dist-keep* /dev/shm/aml-dist-*/* 2>/dev/null; pgrep -af 'aml-dist keep' | grep -v pgrep"
    before = {node: (at_rest(cluster, node), cluster.run(files, on=node).out) for node in ("node1", "node2")}
    (workdir / "job.sh").write_text(f"""#!/bin/bash
for i in $(seq {starts}); do
  export kind=$((i % 3))
  {TOOL} keep --health off -- srun --ntasks-per-node=1 --aml-dist=pytorch bash -c 'touch began; case $kind$AMLDIST_RESTART in 00) sleep 3;; 10) exit 3;; esac' &
  [ $kind != 0 ] || {{ until [ -e began ]; do sleep 0.1; done; pkill -9 -P $! -x srun; kill -9 $!; }}
  wait $!
  echo $i $? >>ends
  rm began
done
""")
    done = cluster.run(f"cd {workdir} && sbatch --wait -w node[1-2] -N2 --exclusive --ntasks-per-node=1 -o log job.sh; "
                       f"sbatch --wait -w node[1-2] -N2 --exclusive --ntasks-per-node=1 -o log2 --wrap '{TOOL} keep --health off -- srun --aml-dist=pytorch true'",
                       timeout=60 + 6 * starts)
    text = (workdir / "log").read_text()
    ends = [line.split()[1] for line in (workdir / "ends").read_text().splitlines()]
    assert done.status == 0 and ends == ["137" if i % 3 == 0 else "0" for i in range(1, starts + 1)], text
    for node, (counts, found) in before.items():
        after = at_rest(cluster, node)
        assert {**after, "slurmd's descriptors": 0} == {**counts, "slurmd's descriptors": 0}, (node, counts, after)
        assert cluster.run(files, on=node).out == found, node


def test_lines_of_json(cluster, workdir):
    kept = Kept(cluster, workdir, "--json --retries 0", "exit 3")
    kept.end()
    events = [json.loads(line) for line in kept.text().splitlines() if line.startswith("{")]
    assert [event["event"] for event in events] == ["start", "decision"] and events[1]["action"] == "end", kept.text()
    assert events[0]["nodes"] == ["node1", "node2", "node3", "node4"] and events[1]["cause"] == "rank_exit", kept.text()


@pytest.mark.parametrize("arguments, srun, says", [
    ("--spares 4", "", "--spares=4, but the job has 4 nodes: allocate more nodes than spares"),
    ("--spares 2", "-N3", "srun's --nodes=3 and --spares=2 make 5 nodes, but the job has 4 nodes"),
    ("--min-nodes 5", "", "--min-nodes=5, but the step has 4 nodes"),
    ("--requeue", "", "--requeue needs a batch job"),
    ("--requeue-at-limit", "", "--requeue-at-limit needs a batch job"),
    ("--checkpoints /nowhere", "", "--checkpoints '/nowhere' is not a folder: make it before"),
    ("", "-w node1", "the srun line has --nodelist, but keep chooses the nodes of each start"),
    ("", "-N1 true : -N1", "a heterogeneous step (':') cannot be kept"),
])
def test_bad_input_is_one_sentence(cluster, arguments, srun, says):
    done = cluster.run(f"salloc -Q -N4 {TOOL} keep {arguments} -- srun --aml-dist=pytorch {srun} true")
    lines = done.own_lines()
    assert len(lines) == 1 and lines[0].startswith(f"aml-dist: keep: {says}") and done.status in (2, 4), str(done)


def test_where_it_cannot_run(cluster):
    for command, says in [
        (f"{TOOL} keep -- srun true", "there is no job here: write it into a batch script, or start it under salloc"),
        (f"srun -N1 {TOOL} keep -- srun true", "it starts steps, and runs in a step itself: take away the srun in front of it"),
        (f"salloc -Q -N1 {TOOL} keep -- env true", "'env' is not srun"),
        (f"salloc -Q -N1 {TOOL} keep", "no step is given"),
        (f"salloc -Q -N1 : -N1 {TOOL} keep -- srun true", "a heterogeneous job cannot be kept"),
        (f"salloc -Q -N1 bash -c 'AMLDIST_KEEP=$SLURM_JOB_ID {TOOL} keep -- srun true'", "it runs below another aml-dist keep already"),
        (f"salloc -Q -N1 bash -c '{TOOL} keep --health off -- srun --aml-dist=pytorch sleep 3 & sleep 1; {TOOL} keep -- srun true; s=$?; wait; exit $s'",
         "another aml-dist keep of job"),
    ]:
        done = cluster.run(command)
        lines = [line for line in done.own_lines() if "start 0 on" not in line]
        assert done.status == 2 and len(lines) == 1 and f"aml-dist: keep: {says}" in lines[0], str(done)


def test_a_state_that_cannot_be_written(cluster, workdir):
    """A full disk: --requeue is refused, and without it a line says what is lost."""
    cluster.run(f"mkdir {workdir}/full && mount -t tmpfs -o size=4k,nr_inodes=1 full {workdir}/full", on="node1")
    try:
        for flag, status, says in [("--requeue", 1, "--requeue needs it"), ("", 0, "after a requeue the budget would begin anew")]:
            (workdir / "s.sh").write_text(f"#!/bin/bash\ncd {workdir}/full\n{TOOL} keep {flag} -- srun --ntasks-per-node=1 --chdir=/ --aml-dist=pytorch true\n")
            done = cluster.run(f"sbatch --wait -w node1 -N1 --requeue -o {workdir}/out {workdir}/s.sh")
            text = (workdir / "out").read_text()
            assert done.status == status and says in text, text + str(done)
            (workdir / "out").unlink()
    finally:
        assert cluster.run(f"umount {workdir}/full", on="node1").status == 0


def test_every_task_has_its_number_under_export_none(cluster, workdir):
    done = cluster.run(f"salloc -Q -N2 {TOOL} keep -- srun --export=NONE --ntasks-per-node=1 --aml-dist=pytorch "
                       + shlex.quote("/bin/bash") + " -c 'echo restart=$AMLDIST_RESTART=$TORCHELASTIC_RESTART_COUNT=$AMLDIST_END_RECORD'")
    assert done.out == "restart=0=0=\n" * 2, str(done)
