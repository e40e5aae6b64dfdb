"""The Debian packages of this machine's Slurm: what is in them, and what lintian says. Installing them: tests/run-packages."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(amldist VERSION ([0-9.]+) ", (ROOT / "CMakeLists.txt").read_text())[1]


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> dict[str, pathlib.Path]:
    """By name; without optimisation and debug information, which take most of a build and change nothing here.
    AMLDIST_TEST_PACKAGES names packages that were built before, AMLDIST_TEST_BUILD a folder where all is compiled already
    (tests/run-packages compiles the packages that it installs)."""
    if built := os.environ.get("AMLDIST_TEST_PACKAGES"):
        return by_name(pathlib.Path(built))
    out = tmp_path_factory.mktemp("packages")
    quick = {"DEB_BUILD_OPTIONS": "noopt noautodbgsym parallel=2", "DEB_CFLAGS_APPEND": "-g0", "DEB_CXXFLAGS_APPEND": "-g0"}
    if compiled := os.environ.get("AMLDIST_TEST_BUILD"):
        quick["AMLDIST_BUILT"] = compiled
    run(ROOT / "contrib/packaging/build-deb", out, env={**os.environ, **quick})
    return by_name(out)


def by_name(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    found = {path.name.partition("_")[0]: path for path in folder.glob("*.deb") if "-dbgsym_" not in path.name}
    return found | {"changes": next(folder.glob("*.changes"))}


@pytest.fixture(scope="module")
def plugin(packages) -> str:
    installed = run("dpkg-query", "--show", "--showformat", "${Version}", "libslurm-dev")
    return "aml-dist-slurm" + re.match(r"\d+\.\d+", installed).group()


def files_of(package: pathlib.Path) -> set[str]:
    lines = run("dpkg-deb", "--contents", package).splitlines()
    return {re.sub(r"/(x86_64|aarch64)-linux-gnu/", "/", line.split(maxsplit=5)[5].split(" -> ")[0][1:]) for line in lines}


def test_one_package_for_each_purpose(packages, plugin):
    assert set(packages) == {"changes", plugin, "libamldist0", "libamldist-mpi", "libamldist-dev", "python3-amldist", "aml-dist",
                             "aml-dist-doc"}


@pytest.mark.parametrize("package, wanted", [
    ("plugin", ["/usr/lib/slurm/spank_aml_dist.so", "/usr/lib/slurm-wlm/spank_aml_dist.so",
                "/etc/slurm/plugstack.conf.d/aml-dist.conf", "/usr/share/man/man8/spank_aml_dist.8.gz"]),
    ("libamldist0", ["/usr/lib/libamldist.so.0"]),
    ("python3-amldist", ["/usr/lib/python3/dist-packages/amldist/__init__.py", "/usr/lib/python3/dist-packages/amldist/torch/_backend.py",
                         "/usr/lib/python3/dist-packages/amldist_trace/__init__.py",
                         "/usr/lib/python3/dist-packages/amldist_errors/__init__.py", "/usr/lib/python3/dist-packages/amldist_errors.pth",
                         f"/usr/lib/python3/dist-packages/amldist-{VERSION}.dist-info/entry_points.txt"]),
    ("libamldist-mpi", ["/usr/lib/aml-dist/libamldist_mpi.so"]),
    ("libamldist-dev", ["/usr/include/amldist/amldist.h", "/usr/lib/libamldist.so", "/usr/lib/pkgconfig/amldist.pc",
                        "/usr/lib/cmake/amldist/amldist-config.cmake"]),
    ("aml-dist", ["/usr/bin/aml-dist", "/usr/share/man/man1/aml-dist.1.gz", "/usr/share/aml-dist/devcluster/devcluster",
                  "/usr/share/bash-completion/completions/aml-dist"]),
    ("aml-dist-doc", ["/usr/share/doc/aml-dist/docs/administrator-guide.md", "/usr/share/doc/aml-dist/CHANGELOG.md"]),
])
def test_what_is_where(packages, plugin, package, wanted):
    assert set(wanted) <= files_of(packages[plugin if package == "plugin" else package])


def test_the_sample_line_is_required_and_a_configuration_file(packages, plugin, tmp_path):
    run("dpkg-deb", "--raw-extract", packages[plugin], tmp_path / "tree")
    assert (tmp_path / "tree/DEBIAN/conffiles").read_text() == "/etc/slurm/plugstack.conf.d/aml-dist.conf\n"
    lines = (tmp_path / "tree/etc/slurm/plugstack.conf.d/aml-dist.conf").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ["required spank_aml_dist.so"]


def test_the_plugin_depends_on_its_slurm_and_on_no_runtime(packages, plugin):
    release = plugin.removeprefix("aml-dist-slurm")
    needs = run("dpkg-deb", "--field", packages[plugin], "Depends")
    assert f"slurm-wlm-basic-plugins (>= {release})" in needs and "slurm-wlm-basic-plugins (<< " in needs
    assert "libstdc++" not in needs


def test_lintian(packages):
    assert run("lintian", "--allow-root", "--fail-on", "error,warning", packages["changes"]) == ""


def test_the_rpm_spec_is_read_by_rpm():
    """rpmbuild itself: contrib/packaging/build-rpm --nodeps."""
    names = run("rpmspec", "--query", ROOT / "contrib/packaging/aml-dist.spec", "--queryformat", "%{name}\n").split()
    assert names == ["aml-dist", "aml-dist-slurm", "aml-dist-libs", "aml-dist-devel", "aml-dist-doc"]
