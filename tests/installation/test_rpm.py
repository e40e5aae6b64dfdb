"""The RPM packages, built by rpmbuild for the Slurm of this root: what is in them, and that they install and go.

rpm has a database of its own here, in a folder; dependencies and scripts are those of Fedora's relatives, so that both are
left out (--nodeps, --noscripts).
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVCLUSTER = ROOT / "contrib/devcluster/devcluster"
SLURM = os.environ["AMLDIST_TEST_SLURM"]
RELEASE = os.environ["AMLDIST_TEST_RELEASE"]
CONFIGURATION = "etc/slurm/plugstack.conf.d/aml-dist.conf"


def inside(line: str) -> str:
    done = subprocess.run([str(DEVCLUSTER), "root", RELEASE, "--", "bash", "-c", line], capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def rpms():
    """Package files by name; those in AMLDIST_TEST_PACKAGES, if there are any."""
    if built := by_name(pathlib.Path(os.environ.get("AMLDIST_TEST_PACKAGES", "/nowhere"))):
        yield built
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-rpms-", dir="/var/tmp"))
    try:
        inside(f"{ROOT}/contrib/setup/install-packages build package && {ROOT}/contrib/packaging/build-rpm --nodeps {folder}")
        yield by_name(folder)
    finally:
        shutil.rmtree(folder)


def by_name(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    return {re.match(r"(.*?)-\d", path.name)[1]: path for path in folder.glob("*.rpm") if not path.name.endswith(".src.rpm")}


def files_of(path: pathlib.Path) -> list[str]:
    return inside(f"rpm -qpl {path}").split()


def test_one_package_for_each_purpose(rpms):
    assert set(rpms) == {"aml-dist", "aml-dist-slurm", "aml-dist-libs", "aml-dist-devel", "aml-dist-doc"}


@pytest.mark.parametrize("package, wanted", [
    ("aml-dist-slurm", [r"/usr/lib(64)?/slurm/spank_aml_dist\.so", "/" + re.escape(CONFIGURATION),
                        r"/usr/share/man/man8/spank_aml_dist\.8(\.gz)?"]),
    ("aml-dist-libs", [r"/usr/lib(64)?/libamldist\.so\.0"]),
    ("aml-dist-devel", ["/usr/include/amldist/amldist.h", r"/usr/lib(64)?/pkgconfig/amldist\.pc"]),
    ("aml-dist", ["/usr/bin/aml-dist", "/usr/bin/aml-run", "/usr/share/aml-dist/devcluster/devcluster"]),
    ("aml-dist-doc", [r"/usr/share/doc/aml-dist/docs/administrator-guide\.md"]),
])
def test_what_is_where(rpms, package, wanted):
    files = files_of(rpms[package])
    for pattern in wanted:
        assert any(re.fullmatch(pattern, name) for name in files), (pattern, files)


def test_the_plugin_needs_its_own_slurm(rpms):
    needs = inside(f"rpm -qp --requires {rpms['aml-dist-slurm']}").splitlines()
    year, month = SLURM.split(".")
    assert f"slurm >= {SLURM}" in needs and f"slurm < {year}.{int(month) + 1:02}" in needs, needs
    assert not any("libstdc++" in line for line in needs), "the C++ runtime is inside"
    assert any(re.fullmatch(r"libslurm\.so\.[0-9]+\(\)\(64bit\)", line) for line in needs), needs
    assert f"-1.slurm{SLURM}" in rpms["aml-dist-slurm"].name and "slurm" not in rpms["aml-dist-libs"].name


def test_the_library_is_known_by_its_name(rpms):
    """What other packages will need, and rpm finds by itself."""
    assert re.search(r"^libamldist\.so\.0(\(\))?", inside(f"rpm -qp --provides {rpms['aml-dist-libs']}"), re.M)


def test_it_installs_and_leaves_with_the_line(rpms):
    """A changed configuration file becomes .rpmsave, which plugstack.conf does not include."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-rpm-root-", dir="/var/tmp"))
    rpm = f"rpm --root {root} --nodeps --noscripts"
    try:
        inside(f"{rpm} --install {' '.join(map(str, rpms.values()))}")
        lines = (root / CONFIGURATION).read_text().splitlines()
        (line,) = [each for each in lines if each and not each.startswith("#")]
        word, file = line.split()
        assert word == "required" and (root / file.lstrip("/")).is_file(), line
        assert (root / "usr/bin/aml-dist").is_file()
        (root / CONFIGURATION).write_text(line + " port_range=21000-21999\n")
        inside(f"{rpm} --upgrade --replacepkgs {rpms['aml-dist-slurm']}")
        assert (root / CONFIGURATION).read_text() == line + " port_range=21000-21999\n"
        inside(f"{rpm} --erase {' '.join(rpms)}")
        left = [str(path.relative_to(root)) for path in root.rglob("*aml*") if not path.is_dir()]
        assert left == [CONFIGURATION + ".rpmsave"], left
    finally:
        shutil.rmtree(root)
