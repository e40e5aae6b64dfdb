"""Memory of slurmstepd, read by the step's own first task on each node."""

import statistics

from . import cluster

FIELDS = ("Rss", "Pss", "Private_Dirty", "Private_Clean", "Shared_Clean")
SCRIPT = """
[ "$SLURM_LOCALID" = 0 ] || exit 0
sleep 0.5   # until the other tasks are off too
cat /proc/$PPID/smaps_rollup >"$0/$SLURM_NODEID"
"""


def read(folder):
    """kB of each field, one dictionary per node."""
    machines = []
    for file in sorted(folder.iterdir()):
        words = [line.split() for line in file.read_text().splitlines()]
        machines.append({line[0].rstrip(":"): int(line[1]) for line in words if line[0].rstrip(":") in FIELDS})
    return machines


def per_launch(launches, field):
    """The median over the nodes of each launch."""
    return [statistics.median(machine[field] for machine in launch) for launch in launches]


def collect(stage, plugstack, line, srun, environment, rounds):
    """Samples of slurmstepd without the plugin, with it, and with the option, in turn."""
    cases = {"no plugin": ("", []), "plugin without option": (line, []),
             "--aml-dist=pytorch": (line, ["--aml-dist=pytorch"])}
    samples = {case: [] for case in cases}
    for number in range(rounds):
        for case, (plugin, option) in cases.items():
            folder = stage / "memory" / f"{number}-{len(option)}-{bool(plugin):d}"
            folder.mkdir(parents=True)
            plugstack.set(plugin)
            cluster.launch([*srun, *option, "sh", "-c", SCRIPT, str(folder)], environment)
            samples[case].append(read(folder))
    plugstack.none()
    return samples
