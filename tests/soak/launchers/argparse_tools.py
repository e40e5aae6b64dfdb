"""torchrun, deepspeed and horovodrun: their own parsers, and the code behind these that turns the flags into processes."""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.metadata
import io
import json
import logging
import os
import random
import re
import sys
import threading
import types
from unittest import mock

from lines import DIFFERS, HERE_ONLY, PROGRAM_WORD, REFUSED, SAME, Flag, Ours, Refused, ask, random_words, verdict

# What ends a tool, and what the nodes' own Python decides.
GOOD_FOR_MPIRUN = {"--bind-to core", "--x y"}  # of the values that are drawn for --mpi-args
NOT_DRAWN = {"-h", "--help", "-v", "--version", "--check-build", "-cb", "--print-completion", "--logs-specs"}
PROGRAM = ["prog", "--x", "y z", "-1"]
LOCK = threading.Lock()  # the tools' modules have state of their own


def quietly(function, *arguments):
    """What a parser says, and that it ends the process, becomes one exception."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return function(*arguments)
    except SystemExit as end:
        raise Refused((said.getvalue().strip().splitlines() or [str(end)])[-1]) from None
    except Exception as problem:  # the tools say no with exceptions of every kind
        raise Refused(f"{type(problem).__name__}: {problem}") from None


def parser_of(call) -> argparse.ArgumentParser:
    """The parser that a function makes for itself."""
    found = []

    class Stop(Exception):
        pass

    def keep(parser, *_, **__):
        found.append(parser)
        raise Stop

    with mock.patch.object(argparse.ArgumentParser, "parse_args", keep), contextlib.suppress(Stop):
        call()
    return found[0]


def flags_of(parser: argparse.ArgumentParser, good: dict[str, list[str]]) -> list[Flag]:
    flags = []
    for action in parser._actions:
        names = action.option_strings
        if not names or set(names) & NOT_DRAWN:
            continue
        values = 0 if action.nargs == 0 else action.nargs if isinstance(action.nargs, int) else 1
        fitting = next((good[name] for name in names if name in good), None)
        if fitting is None:
            fitting = list(action.choices) if action.choices else {int: ["2", "3"], float: ["2.5", "1e-3"]}.get(action.type, ["a", "b c"])
        flags.append(Flag(names, values, fitting))
    return flags


def refused_for_a_word_of_the_program(why: str, ours: Ours) -> bool:
    """argparse before Python 3.12 looks for abbreviations behind the program too."""
    word = re.search("ambiguous option: (.*) could match", why)
    return bool(ours.status == 0 and word and word.group(1) in ours.program)


class Torchrun:
    def __init__(self) -> None:
        import torch
        from torch.distributed import run

        logging.disable(logging.CRITICAL)
        self.run, self.torch = run, torch
        self.version = f"torchrun of torch {torch.__version__.split('+')[0]}"
        self.flags = flags_of(run.get_args_parser(), {
            "--nnodes": ["1", "2", "1:3", "2:2"], "--nproc_per_node": ["1", "4", "cpu", "auto"], "--rdzv_backend": ["c10d", "static"],
            "--rdzv_endpoint": ["h:29400", "h", "localhost:0"], "--rdzv_conf": ["a=1", "a=1,b=2"], "--redirects": ["3", "0:1,1:2"],
            "--tee": ["3", "0"], "--max_restarts": ["0", "0", "1", "3"], "--local_ranks_filter": ["0", "0,1"], "--master_port": ["29500"],
            "--node_rank": ["0", "1"]})

    def line(self, generator: random.Random) -> list[str]:
        return [*random_words(generator, self.flags, 4, 0.12, 0.3), *PROGRAM]

    def config(self, words: list[str], **variables: str):
        def read():
            arguments = self.run.parse_args(words)
            with mock.patch("sys.executable", "python3"):
                config, command, rest = self.run.config_from_args(arguments)
            if config.nproc_per_node < 1:
                raise Refused("no process on a node")
            if not 0 <= (arguments.master_port or 0) < 65536:
                raise Refused("no port")
            return arguments, config, [command if isinstance(command, str) else command.__name__, *rest]

        with LOCK, mock.patch.dict(os.environ, {"PATH": "/usr/bin:/bin", **variables}, clear=True):
            return quietly(read)

    def judge(self, words: list[str]) -> tuple[str, str]:
        try:
            real, why = self.config(words), ""
        except Refused as refusal:
            real, why = None, str(refusal)
        ours = ask("torchrun", words)
        if real is None and refused_for_a_word_of_the_program(why, ours):
            return PROGRAM_WORD, ""
        return verdict(real, ours, why) or self.meaning(real, ours)

    def meaning(self, real, ours: Ours) -> tuple[str, str]:
        arguments, config, command = real
        least, most = config.min_nodes, config.max_nodes
        if arguments.standalone:
            least = most = 1
        wanted = {"nodes": str(least) if least == most else f"{least}-{most}"}
        got = {"nodes": ours.option("nodes")}
        per_node = "launch=per-node" in ours.kind
        agent = config.max_restarts > 0 or arguments.log_dir or any(
            getattr(arguments, name, None) not in (None, "", "0", False, [])
            for name in ("tee", "redirects", "local_ranks_filter", "run_path", "numa_binding", "logs_specs", "virtual_local_rank",
                         "log_line_prefix_template", "duplicate_stdout_filters", "duplicate_stderr_filters"))
        if agent and not per_node:
            return DIFFERS, f"needs the agent: {ours.words}"
        if not per_node:
            wanted |= {"tasks": str(config.nproc_per_node), "program": command}
            got |= {"tasks": ours.option("ntasks-per-node"), "program": ours.program}
        else:
            keys = dict(each.partition("=")[::2] for each in ours.kind.split(","))
            if ours.program[0] != "torchrun":
                return DIFFERS, f"torchrun was expected: {ours.words}"
            count = {"PET_NPROC_PER_NODE": keys["nproc_per_node"]} if "nproc_per_node" in keys else {}
            try:
                again, config_again, command_again = self.config(ours.program[1:], **count)
            except Refused as refusal:
                return DIFFERS, f"the real torchrun is handed {ours.program[1:]}, which it refuses: {refusal}"
            for name in ("max_restarts", "monitor_interval", "role", "log_dir", "tee", "redirects", "local_ranks_filter", "start_method",
                         "run_path", "numa_binding", "logs_specs", "log_line_prefix_template", "duplicate_stdout_filters", "module",
                         "duplicate_stderr_filters", "signals_to_handle", "shutdown_timeout", "virtual_local_rank", "rdzv_conf",
                         "event_log_handler", "no_python"):
                if hasattr(arguments, name):
                    wanted[name], got[name] = getattr(arguments, name), getattr(again, name)
            wanted |= {"processes": config.nproc_per_node, "program": command}
            got |= {"processes": config_again.nproc_per_node, "program": command_again}
        port = arguments.rdzv_endpoint.rpartition(":")[2] if ":" in arguments.rdzv_endpoint else arguments.master_port
        is_default = ":" not in arguments.rdzv_endpoint and arguments.master_port == self.run.get_args_parser().get_default("master_port")
        if port and int(port) and arguments.rdzv_backend == "static" and not is_default:
            wanted["port"], got["port"] = str(int(port)), (re.search(r"master_port=(\d+)", ours.kind) or ["", "none"])[1]
        return (SAME, "") if wanted == got else (DIFFERS, f"wanted {wanted}, got {got}")


class Deepspeed:
    workers = 1  # its main() is run with subprocess replaced
    slots = 4  # of this machine, where no hostfile says
    # What the real one refuses as it does not know the nodes: here Slurm does.
    of_slurm = ("Num nodes is >1 but no extra nodes", "not found in hostfile", "Cannot specify num_nodes/gpus with include",
                "--node_rank is not set")

    def __init__(self) -> None:
        import torch  # noqa: F401
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            from deepspeed.launcher import runner
        logging.disable(logging.CRITICAL)
        self.runner = runner
        self.version = f"deepspeed {importlib.metadata.version('deepspeed')}"
        folder = "/tmp/aml-dist-soak-launchers"
        os.makedirs(folder, exist_ok=True)
        files = {"good": "w9 slots=4\nw1 slots=2\n\n# no node\nw2 slots=3\n", "one": "w1 slots=2\n", "twice": "a slots=2\na slots=1\n",
                 "none": "a\n", "empty": "", "words": "a slots=2 max_slots=4\n", "zero": "a slots=0\nb slots=1\n"}
        for name, text in files.items():
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        selections = ["w9", "w1@w2", "w2@w9", "w9:0,2", "w9:1@w1", "w9:0@w9:0,3", "w9:7", "zz", "w1:", "w9:a", "w1,w2", "w9@"]
        self.flags = flags_of(parser_of(lambda: runner.parse_args([])), {
            "--hostfile": [f"{folder}/good"] * 8 + [f"{folder}/{name}" for name in files], "--include": selections,
            "--exclude": selections, "--num_gpus": ["1", "2", "-1", "3"], "--num_nodes": ["1", "2", "-1", "3"],
            "--master_port": ["29501"], "--launcher": ["pdsh"], "--enable_each_rank_log": ["None", "/tmp/logs"],
            "--bind_core_list": ["0-3"], "--venv_script": ["v.sh"], "--launcher_args": ["a", "b c"]})
        self.chance = [flag for flag in self.flags if set(flag.names) & {"-H", "-i", "-e", "--num_nodes", "--num_gpus", "--module",
                                                                         "--no_python", "--no_local_rank"}]

    def line(self, generator: random.Random) -> list[str]:
        flags = self.chance if generator.random() < 0.6 else self.flags
        return [*random_words(generator, flags, 4, 0.06, 0.2), *PROGRAM]

    def world(self, words: list[str]) -> tuple[argparse.Namespace, dict]:
        """deepspeed's main() up to where it starts processes: its arguments, and which slots of which node it uses."""
        found = {}
        runner = self.runner

        class Process:
            pid, returncode, stdout = 1, 0, None

            def __init__(self, command, *_, **__):
                found.setdefault("world", json.loads(base64.urlsafe_b64decode(
                    next(word for word in command if word.startswith("--world_info=")).split("=", 1)[1])))

            def wait(self):
                return 0

        def multi(_, environment, resources):
            found["world"] = {name: list(slots) for name, slots in resources.items()}
            return ["--world_info=e30="], ["true"], environment

        parse = runner.parse_args

        def keep(arguments=None):
            found["arguments"] = parse(arguments)
            return found["arguments"]

        accelerator = types.SimpleNamespace(device_count=lambda: self.slots, device_name=lambda: "cuda", visible_devices_envs=lambda: ["CUDA_VISIBLE_DEVICES"],
                                            communication_backend_name=lambda: "nccl", export_envs=lambda: [])

        def start():
            with contextlib.ExitStack() as stack:
                patches = [mock.patch.object(runner, "parse_args", keep), mock.patch.object(runner.subprocess, "Popen", Process),
                           mock.patch.object(runner.subprocess, "check_call", lambda *_, **__: 0),
                           mock.patch.object(runner.subprocess, "check_output", lambda *_, **__: b"10.0.0.1 "),
                           mock.patch.object(runner, "get_accelerator", lambda: accelerator),
                           mock.patch.object(runner.PDSHRunner, "backend_exists", lambda _: True),
                           mock.patch.object(runner.PDSHRunner, "get_cmd", multi),
                           mock.patch.object(runner, "run_autotuning", lambda *_: found.setdefault("world", {"localhost": [0]})),
                           mock.patch.object(runner.signal, "signal", lambda *_: None),
                           mock.patch.object(runner.os.path, "expanduser", lambda _: "/nonexistent")]
                for patch in patches:
                    stack.enter_context(patch)
                try:
                    runner.main(words)
                except SystemExit as end:
                    if end.code not in (0, None):
                        raise
            if "world" not in found:
                raise Refused("nothing was started")
            return found["arguments"], found["world"]

        with LOCK, mock.patch.dict(os.environ, {"PATH": "/usr/bin:/bin"}, clear=True):
            return quietly(start)

    def judge(self, words: list[str]) -> tuple[str, str]:
        try:
            real, why = self.world(words), ""
            arguments, world = real
            if arguments.module and arguments.no_python:
                raise Refused("launch.py: Don't use both the '--no_python' flag and the '--module' flag at the same time.")
            if not world or not any(world.values()):
                raise Refused("no process")
        except Refused as refusal:
            real, why = None, str(refusal)
        ours = ask("deepspeed", words, SLURM_JOB_ID="1", SLURM_GPUS_ON_NODE=str(self.slots))
        if real is None and refused_for_a_word_of_the_program(why, ours):
            return PROGRAM_WORD, ""
        if real is None and ours.words == ["deepspeed", *words]:  # --autotuning: the real one gets the line, and refuses it
            return REFUSED, ""
        no_file = not any("tmp/aml-dist-soak-launchers" in word for word in words)
        if ours.status == 0 and real is None and any(each in why for each in self.of_slurm if no_file or "rank" in each):
            return HERE_ONLY, ""
        if real is not None and real[0].autotuning and ours.status == 0:
            return (SAME, "") if ours.words == ["deepspeed", *words] else (DIFFERS, str(ours.words))
        return verdict(real, ours, why) or self.meaning(real, ours)

    def meaning(self, real, ours: Ours) -> tuple[str, str]:
        arguments, world = real
        ranks = [name for name, slots in world.items() for _ in slots]
        if ours.option("nodelist") is None:
            names = ["localhost"] * int(ours.option("ntasks-per-node") or 0)
            if int(ours.option("nodes") or 1) != max(1, arguments.num_nodes):
                names = []
            if arguments.num_nodes > 1:
                ranks = names  # without a hostfile the real one starts here alone: Slurm gives the nodes
        else:
            names = ours.option("nodelist").split(",")
            if ours.option("ntasks-per-node"):
                names = [name for name in names for _ in range(int(ours.option("ntasks-per-node")))]
        program = [] if arguments.no_python else ["python" if arguments.venv_script else "python3", "-u", *["-m"] * arguments.module]
        program += [arguments.user_script, *(["--local_rank=$LOCAL_RANK"] * (not arguments.no_local_rank)), *arguments.user_args]
        got = ours.program[4:] if arguments.venv_script else ours.program
        wanted = {"ranks": ranks, "program": program}
        have = {"ranks": names, "program": got}
        if arguments.master_port != 29500:
            wanted["port"], have["port"] = f"master_port={arguments.master_port}", ours.kind.partition(",")[2]
        return (SAME, "") if wanted == have else (DIFFERS, f"wanted {wanted}, got {have}")


class Horovodrun:
    def __init__(self) -> None:
        from horovod.runner import launch
        from horovod.runner.common.util import config_parser, hosts

        self.launch, self.config_parser, self.hosts = launch, config_parser, hosts
        self.version = f"horovodrun {importlib.metadata.version('horovod')}"
        with mock.patch.object(sys, "argv", ["horovodrun"]):
            parser = parser_of(launch.parse_args)
        self.flags = flags_of(parser, {"-np": ["2"], "--hosts": ["a:2,b:2", "a:2", "b:1,a:3"], "--hostfile": ["/etc/hosts"],
                                       "--mpi-args": ["--bind-to core"], "--binding-args": ["--bind-to core"],
                                       "--network-interfaces": ["eth0", "eth0,eth1"], "--network-interface": ["eth1"]})
        self.flags = [flag for flag in self.flags if "--hostfile" not in flag.names]

    def line(self, generator: random.Random) -> list[str]:
        return ["-np", "2", *random_words(generator, self.flags, 4, 0.12, 0.3), *PROGRAM]

    def read(self, words: list[str]) -> tuple[argparse.Namespace, dict[str, str]]:
        def start():
            with mock.patch.object(sys, "argv", ["horovodrun", *words]):
                arguments = self.launch.parse_args()
            if not arguments.run_func and not arguments.command:
                raise Refused("no command")
            if arguments.hosts:
                self.hosts.parse_hosts_and_slots(arguments.hosts)
                self.hosts.get_host_assignments(self.hosts.parse_hosts(arguments.hosts), arguments.num_proc)
            if arguments.num_proc < 1 or any(text not in GOOD_FOR_MPIRUN for text in (arguments.mpi_args, arguments.binding_args) if text):
                raise Refused("mpirun refuses it")
            env = {}
            self.config_parser.set_env_from_args(env, arguments)
            return arguments, env

        with LOCK, mock.patch.dict(os.environ, {"PATH": "/usr/bin:/bin"}, clear=True):
            return quietly(start)

    def judge(self, words: list[str]) -> tuple[str, str]:
        try:
            real, why = self.read(words), ""
        except Refused as refusal:
            real, why = None, str(refusal)
        ours = ask("horovodrun", words)
        if real is None and refused_for_a_word_of_the_program(why, ours):
            return PROGRAM_WORD, ""
        return verdict(real, ours, why) or self.meaning(real, ours)

    def meaning(self, real, ours: Ours) -> tuple[str, str]:
        arguments, env = real
        have = {name: value for name, value in ours.told["environment"].items() if name.startswith("HOROVOD_")}
        tasks = int(ours.option("ntasks") or 0) or int(ours.option("nodes") or 0) * int(ours.option("ntasks-per-node") or 0)
        for name in have.keys() & env.keys():  # 1e-3 and 0.001 are one number
            with contextlib.suppress(ValueError):  # words are compared as they are
                have[name], env[name] = float(have[name]), float(env[name])
        env.pop("NCCL_IB_DISABLE", None)
        wanted = {"env": env, "tasks": arguments.num_proc, "program": arguments.command}
        got = {"env": have, "tasks": tasks, "program": ours.program}
        if arguments.nics:
            # An empty name is no interface: real horovodrun hands ",eth1" on.
            wanted["nics"] = sorted(filter(None, arguments.nics))
            got["nics"] = sorted(filter(None, ours.told["environment"].get("NCCL_SOCKET_IFNAME", "").split(",")))
        return (SAME, "") if wanted == got else (DIFFERS, f"wanted {wanted}, got {got}")


TOOLS = {"torchrun": Torchrun, "deepspeed": Deepspeed, "horovodrun": Horovodrun}
