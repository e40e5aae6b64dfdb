"""The build without options, and what it installs, used as a stranger would."""

import collections
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = ("run", "torchrun", "mpirun", "deepspeed", "horovodrun")
WITHOUT_NVCC = ("-DAMLDIST_DEVICE=OFF",)  # trying it out is most of a configuration
CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """cmake -S . -B build, of no test, which is not installed; by Ninja, as tests/run does, since commands are compared"""
    build = tmp_path_factory.mktemp("build")
    run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DAMLDIST_TESTS=OFF")
    return build


@pytest.fixture(scope="module")
def prefix(configured, tmp_path_factory):
    """cmake --build build && cmake --install build --prefix P. AMLDIST_TEST_BUILD names a folder that was built before."""
    prefix = tmp_path_factory.mktemp("prefix")
    build = os.environ.get("AMLDIST_TEST_BUILD", configured)
    if build == configured:
        run("cmake", "--build", build, "--parallel", "2")
    run("cmake", "--install", build, "--prefix", prefix)
    return prefix


def commands_of(build: pathlib.Path) -> dict[str, list[set[str]]]:
    """How each file of the product is compiled, without what says where, what only a developer adds, and assertions."""
    found = collections.defaultdict(list)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = entry["file"].replace(str(build), "").replace(str(ROOT), "")
        command = re.sub(r" (-o \S+|-Werror(=\S+)?|-Wno-error=\S+|-DNDEBUG)(?= |$)", "", entry["command"].replace(str(build), ""))
        if not file.startswith("/tests/"):
            found[file].append(set(command.split()))
    return found


def test_what_was_built_before_is_the_build_without_options(configured):
    if not (built := os.environ.get("AMLDIST_TEST_BUILD")):
        pytest.skip("nothing was built before: AMLDIST_TEST_BUILD")
    wanted, found = commands_of(configured), commands_of(pathlib.Path(built))
    assert wanted.keys() <= found.keys()
    assert {name: found[name] for name in wanted} == wanted


def find(prefix: pathlib.Path, pattern: str) -> pathlib.Path:
    found = list(prefix.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


@pytest.mark.parametrize("pattern", [
    "lib*/**/slurm/spank_aml_dist.so", "lib*/**/libamldist.so", "include/amldist/amldist.h", "bin/aml-dist",
    "lib*/**/pkgconfig/amldist.pc", "lib*/**/aml-dist/libamldist_mpi.so", "lib*/**/cmake/amldist/amldist-config.cmake", "share/man/man1/aml-dist.1*",
    "share/man/man8/spank_aml_dist.8*", "share/bash-completion/completions/aml-dist",
    *(f"bin/aml-{name}" for name in COMMANDS), *(f"share/man/man1/aml-{name}.1*" for name in COMMANDS),
    *(f"share/bash-completion/completions/aml-{name}" for name in COMMANDS), "share/zsh/site-functions/_aml-run",
    "share/fish/vendor_completions.d/aml-run.fish", "share/doc/aml-dist/contrib/examples/aml-run/pytorch.yml",
    "share/doc/aml-dist/docs/launchers.md", "share/doc/aml-dist/docs/azure-ml.md",
])
def test_layout(prefix, pattern):
    assert find(prefix, pattern).exists()


def test_man_finds_every_function_of_the_header(prefix):
    header = (prefix / "include/amldist/amldist.h").read_text()
    functions = set(re.findall(r"^AMLDIST_API [^;(]*?\b(amldist_\w+)\(", header, re.MULTILINE))
    assert len(functions) > 50
    assert functions - {page.name.partition(".")[0] for page in (prefix / "share/man/man3").iterdir()} == set()


def test_version(prefix):
    assert run(prefix / "bin/aml-dist", "--version").startswith("aml-dist 0.")


def test_explain_runs_from_the_prefix(prefix):
    assert "node1" in run(prefix / "bin/aml-dist", "explain", "--nodelist", "node[1-2]", "--tasks-per-node", "2")


def test_commands_run_from_the_prefix_and_name_it(prefix):
    assert run(prefix / "bin/aml-run", "--version").startswith("aml-run 0.")
    environment = {"PATH": "/usr/bin:/bin"}
    script = run(prefix / "bin/aml-run", "--dry-run", "--", "prog", "$RANK", env=environment)
    assert f"{prefix}/bin/aml-dist exec -- prog" in script
    assert f"{prefix}/bin/aml-dist exec --" in run(prefix / "bin/aml-deepspeed", "--dry-run", "--num_gpus", "2", "t.py",
                                                  env=environment)


def test_cmake_consumer(prefix, tmp_path):
    run("cmake", "-S", CONSUMER, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "consumer").startswith("0.")


@pytest.mark.parametrize("wanted, serves", [("0.0", True), ("0.1", True), ("0.99", False), ("1.0", False)])
def test_cmake_serves_whoever_asks_for_an_earlier_release(prefix, tmp_path, wanted, serves):
    """The C interface only grows until 1.0."""
    script = tmp_path / "ask.cmake"
    script.write_text(f"""set(PACKAGE_FIND_VERSION {wanted})
        string(REPLACE "." ";" parts {wanted})
        list(GET parts 0 PACKAGE_FIND_VERSION_MAJOR)
        include("{find(prefix, 'lib*/**/amldist-config-version.cmake')}")
        if(PACKAGE_VERSION_COMPATIBLE)
          message(FATAL_ERROR serves)
        endif()
    """)
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
    assert (done.returncode != 0, "serves" in done.stderr) == (serves, serves), done.stderr


def test_pkg_config_consumer(prefix, tmp_path):
    folder = find(prefix, "lib*/**/pkgconfig/amldist.pc").parent
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
    flags = run("pkg-config", "--cflags", "--libs", "amldist", env=environment).split()
    program = tmp_path / "consumer"
    run("cc", CONSUMER / "consumer.c", "-o", program, *flags)
    assert run(program, env={**os.environ, "LD_LIBRARY_PATH": str(folder.parent)}).startswith("0.")


def test_the_manuals_example_compiles_and_runs(prefix, tmp_path):
    """amldist(3), as it stands there, with the compiler's line that it gives; in a step of two it is the second."""
    page = (ROOT / "docs/man/amldist.3").read_text()
    source = page[page.index("#include <amldist/amldist.h>\n"):]
    (tmp_path / "who.c").write_text(source[:source.index("\n.Ed")].replace(r"\e", "\\") + "\n")
    line = re.search(r"^\.Dl \$ (cc who\.c .*)$", page, re.MULTILINE)[1]
    folder = find(prefix, "lib*/**/pkgconfig/amldist.pc").parent
    run("bash", "-c", line, cwd=tmp_path, env={**os.environ, "PKG_CONFIG_PATH": str(folder)})
    step = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "1", "GROUP_RANK": "1",
            "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20000",
            "AMLDIST_STAMP": "4242.0 kind=pytorch nodes=2 map=(vector,(0,2,1)) MASTER_ADDR=10.0.0.1 MASTER_PORT=20000"}
    assert run(tmp_path / "who", env={"LD_LIBRARY_PATH": str(folder.parent), **step}) == "rank 1 of 2, node 1 of 2\n"


@pytest.mark.parametrize("missing, left_out, kept", [
    ("CLI11", "tools           left out: no CLI11", ["spank_aml_dist.so", "libamldist.so"]),
    ("nlohmann_json", "tools           left out: no nlohmann-json", ["spank_aml_dist.so", "libamldist.so"]),
    ("yaml-cpp", "aml-run       left out: no yaml-cpp", ["spank_aml_dist.so", "libamldist.so"]),
    ("GTest", "tests           left out: no GoogleTest", ["spank_aml_dist.so", "libamldist.so"]),
    ("CUDAToolkit", "CUDA          not found", ["spank_aml_dist.so", "libamldist.so"]),
    ("PkgConfig", "PMIx          not found", ["spank_aml_dist.so", "libamldist.so"]),
])
def test_a_missing_part_leaves_out_only_what_needs_it(tmp_path, missing, left_out, kept):
    summary = run("cmake", "-S", ROOT, "-B", tmp_path, f"-DCMAKE_DISABLE_FIND_PACKAGE_{missing}=ON",
                  "-DAMLDIST_TESTS=ON", *WITHOUT_NVCC)
    assert left_out in summary, summary
    targets = run("cmake", "--build", tmp_path, "--target", "help")
    assert "spank_aml_dist" in targets and "amldist" in targets
    assert ("aml-dist" in targets.replace("aml-dist-", "")) == ("tools" not in left_out)


def test_without_libsodium_only_the_plugin_is_built(tmp_path):
    summary = run("cmake", "-S", ROOT, "-B", tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_sodium=ON")
    assert "libamldist      left out: no libsodium (Debian: libsodium-dev)" in summary, summary
    targets = run("cmake", "--build", tmp_path, "--target", "help").split()
    assert "spank_aml_dist" in targets
    assert not {"amldist", "aml-dist", "unit_tests"} & set(targets)


def test_without_slurm_headers_the_library_is_still_built(tmp_path):
    summary = run("cmake", "-S", ROOT, "-B", tmp_path, "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include", *WITHOUT_NVCC)
    assert "left out: no slurm/spank.h" in summary, summary
    targets = run("cmake", "--build", tmp_path, "--target", "help")
    assert "spank_aml_dist" not in targets and "amldist" in targets
