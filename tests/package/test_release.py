"""What a release is made with: one version everywhere, an archive and a list of parts that come out the same each time, recipes that
ask for what exists, and a cluster-init project that installs what fits."""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = ROOT / "contrib/release"
CYCLECLOUD = ROOT / "contrib/cyclecloud/specs/default/cluster-init/scripts/10-aml-dist.sh"
VERSION = re.search(r"project\(amldist VERSION ([0-9.]+) ", (ROOT / "CMakeLists.txt").read_text())[1]


def run(*command, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> pathlib.Path:
    """The tree as a repository of one commit."""
    folder = tmp_path_factory.mktemp("checkout")
    names = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").stdout.splitlines()
    if not names:
        pytest.skip("no git checkout")
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        assert run("git", "-C", folder, *words).returncode == 0
    return folder


def release(checkout, out, *words: str) -> subprocess.CompletedProcess:
    return run(checkout / "contrib/release/release", *words, out)


def test_every_file_names_the_same_version(checkout, tmp_path):
    done = release(checkout, tmp_path, "--only", "version")
    assert done.returncode == 0, done.stderr


def test_set_version_reaches_every_file(checkout, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(checkout, tree)
    done = run(tree / "contrib/release/set-version", "7.8.9")
    assert done.returncode == 0, done
    assert re.search(r"^## \[Unreleased\]\n\n## \[7\.8\.9\] - \d{4}-\d\d-\d\d$", (tree / "CHANGELOG.md").read_text(), re.MULTILINE)
    left = run("grep", "-rnIwF", VERSION, tree, "--exclude-dir=tests", "--exclude-dir=.git", "--exclude-dir=decisions").stdout.splitlines()
    of_the_past = ("CHANGELOG.md", "aml-dist.spec:", "plugin.preinst:", "docs/contributing.md:", "docs/administrator-guide.md:", "docs/promises.md:")
    assert not [line for line in left if not re.search(r"\d\." + re.escape(VERSION), line) and not any(name in line for name in of_the_past)]
    done = release(tree, tmp_path, "--only", "version")
    assert (done.returncode, done.stdout) == (0, "release: version   7.8.9\n"), done
    assert run(tree / "contrib/devcluster/devcluster", "--version").stdout.strip().endswith("7.8.9")


@pytest.mark.parametrize("wrong", ["", "1.2", "v1.2.3", "1.2.3-rc1"])
def test_set_version_wants_three_numbers(checkout, wrong):
    assert run(checkout / "contrib/release/set-version", wrong).returncode == 2


def test_the_archive_is_the_commit_and_comes_out_the_same(checkout, tmp_path):
    for name in ("one", "two"):
        done = release(checkout, tmp_path / name, "--only", "tree", "--only", "archive", "--only", "sbom", "--only", "sign")
        assert done.returncode == 0, done.stderr
    for name in (f"aml-dist-{VERSION}.tar.gz", f"aml-dist-{VERSION}.spdx.json", "SHA256SUMS"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    listed = run("tar", "-tzf", tmp_path / f"one/aml-dist-{VERSION}.tar.gz").stdout.splitlines()
    tracked = run("git", "-C", checkout, "ls-files").stdout.splitlines()
    assert {name for name in listed if not name.endswith("/")} == {f"aml-dist-{VERSION}/{name}" for name in tracked}
    done = run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=tmp_path / "one")
    assert done.returncode == 0, done


def test_the_list_of_parts_names_what_is_built_with(checkout, tmp_path):
    release(checkout, tmp_path, "--only", "archive", "--only", "sbom")
    document = json.loads((tmp_path / f"aml-dist-{VERSION}.spdx.json").read_text())
    names = {each["name"] for each in document["packages"]}
    wanted = set(run(ROOT / "contrib/setup/install-packages", "--list", "build").stdout.split())
    assert names == wanted | {"aml-dist"} and document["spdxVersion"] == "SPDX-2.3"
    known = {each["SPDXID"] for each in document["packages"]} | {"SPDXRef-DOCUMENT"}
    assert all({each["spdxElementId"], each["relatedSpdxElement"]} <= known for each in document["relationships"])


def test_a_signature_is_made_and_verified(checkout, tmp_path):
    if not shutil.which("gpg"):
        pytest.skip("gpg is not installed")
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    env = {**os.environ, "GNUPGHOME": str(home)}
    made = run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "t@example.invalid", "ed25519", "sign", "never", env=env)
    assert made.returncode == 0, made
    done = run(checkout / "contrib/release/release", "--key", "t@example.invalid", "--only", "archive", "--only", "sign", tmp_path / "out", env=env)
    assert done.returncode == 0 and "SHA256SUMS.asc" in done.stdout, done
    sums = tmp_path / "out/SHA256SUMS"
    sums.write_text(sums.read_text().replace("a", "b", 1))
    assert run("gpg", "--batch", "--verify", f"{sums}.asc", sums, env=env).returncode != 0
    run("gpgconf", "--kill", "all", env=env)


def test_uncommitted_work_is_no_release(checkout, tmp_path):
    (checkout / "stray").write_text("")
    done = release(checkout, tmp_path, "--only", "tree")
    (checkout / "stray").unlink()
    assert done.returncode == 1 and "uncommitted" in done.stderr


@pytest.fixture
def branch(checkout, tmp_path) -> pathlib.Path:
    """A clone to release from, with a name for its commits and something new in the changelog."""
    folder = tmp_path / "branch"
    assert run("git", "clone", "-q", checkout, folder).returncode == 0
    for words in (["user.name", "t"], ["user.email", "t@example.invalid"]):
        run("git", "-C", folder, "config", *words)
    text = (folder / "CHANGELOG.md").read_text()
    (folder / "CHANGELOG.md").write_text(text.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Added\n- Something.\n", 1))
    assert run("git", "-C", folder, "commit", "-qam", "new").returncode == 0
    return folder


def head(branch) -> str:
    return run("git", "-C", branch, "rev-parse", "HEAD").stdout


def test_a_release_is_prepared_in_a_clone_and_the_last_act_is_one_line(branch, tmp_path):
    before = head(branch)
    done = run(branch / "contrib/release/prepare", "--quick", "7.8.9", tmp_path / "out")
    assert done.returncode == 0, done
    assert head(branch) == before and run("git", "-C", branch, "tag").stdout == "", "nothing has changed"
    last = done.stdout.splitlines()[-1]
    assert last.startswith("  git -C ") and run("bash", "-c", last).returncode == 0, last
    assert run("git", "-C", branch, "describe", "--exact-match").stdout == "v7.8.9\n"
    assert run("git", "-C", branch, "rev-list", "--count", f"{before.strip()}..HEAD").stdout == "1\n"
    listed = run("tar", "-tzf", tmp_path / "out/aml-dist-7.8.9.tar.gz")
    assert listed.returncode == 0 and "aml-dist-7.8.9/CMakeLists.txt" in listed.stdout.splitlines()
    assert release(branch, tmp_path / "again", "--only", "archive").returncode == 0
    assert (tmp_path / "again/aml-dist-7.8.9.tar.gz").read_bytes() == (tmp_path / "out/aml-dist-7.8.9.tar.gz").read_bytes(), "it is the tag's"


def test_the_last_act_can_be_done_too(branch, tmp_path):
    done = run(branch / "contrib/release/prepare", "--quick", "--finish", "7.8.9", tmp_path / "out")
    assert done.returncode == 0 and run("git", "-C", branch, "describe", "--exact-match").stdout == "v7.8.9\n", done
    again = run(branch / "contrib/release/prepare", "--quick", "7.9.0", tmp_path / "out")
    assert again.returncode == 1 and "nothing under Unreleased" in again.stderr, again


@pytest.mark.parametrize("version, spoil, says", [
    (VERSION, [], f"{VERSION} does not come after {VERSION}"), ("0.0.9", [], "does not come after"), ("7.8.9", ["tag", "v7.8.9"], "tagged already")])
def test_what_is_no_release_is_refused_before_anything_is_done(branch, tmp_path, version, spoil, says):
    if spoil:
        assert run("git", "-C", branch, *spoil).returncode == 0
    done = run(branch / "contrib/release/prepare", version, tmp_path / "out")
    assert done.returncode == 1 and says in done.stderr and not (tmp_path / "out").exists(), done


@pytest.mark.parametrize("words", [[], ["1.2"], ["--key"], ["--what"], ["1.2.3", "a", "b"]])
def test_wrong_usage_of_prepare(branch, words):
    assert run(branch / "contrib/release/prepare", *words).returncode == 2


@pytest.mark.parametrize("words", [["--only", "nothing"], ["--key"], ["--what"], ["a", "b"]])
def test_wrong_usage(checkout, words):
    assert run(checkout / "contrib/release/release", *words).returncode == 2


# ---------------------------------------------------------------------------------------------------------- recipes

RECIPES = ["contrib/packaging/spack/package.py", f"contrib/packaging/easybuild/aml-dist-{VERSION}.eb", "contrib/packaging/conda/recipe.yaml"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_asks_for_options_that_exist(recipe):
    text = (ROOT / recipe).read_text()
    options = set(re.findall(r"AMLDIST_[A-Z]+", text))
    cmake = "".join(path.read_text() for path in [*(ROOT / "cmake").glob("*.cmake"), *ROOT.rglob("libdist/**/CMakeLists.txt")])
    assert options and all(re.search(rf"option\({name}\b|\b{name}\b", cmake) for name in options), options
    assert "AMLDIST_TESTS" in options
    if not recipe.endswith(".yaml"):
        ast.parse(text)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names of x86-64")
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_kernels_compile_for_the_processor_that_spack_and_easybuild_name(level):
    """Both compile everything with the -march of their target; the kernels choose their instructions for themselves."""
    done = run("c++", "-std=c++20", "-fsyntax-only", f"-march={level}", "-I", ROOT / "libdist", ROOT / "libdist/collective/kernels/reductions_plain.cpp")
    assert done.returncode == 0, done.stderr[:2000]


def test_the_paths_that_easybuild_expects_are_those_of_the_installation():
    text = (ROOT / RECIPES[1]).read_text()
    for path in ("bin/aml-dist", "include/amldist/amldist.h", "lib/slurm/spank_aml_dist.so"):
        assert f"'{path}'" in text


# ------------------------------------------------------------------------------------------------------- CycleCloud

@pytest.fixture
def node(tmp_path):
    """A node that CycleCloud starts: Slurm, a package manager that writes down what it is told, the project's files."""
    files = tmp_path / "spec/files"
    files.mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()

    def program(name: str, script: str) -> None:
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)

    for name in ("bash", "env", "dirname", "cat"):
        (programs / name).symlink_to(shutil.which(name))
    program("srun", "echo slurm 25.11.5")

    def start(manager: str, *packages: str) -> tuple[subprocess.CompletedProcess, str]:
        for name in packages:
            (files / name).touch()
        told = tmp_path / "told"
        if manager == "apt-get":
            program("dpkg", "true")
        program(manager, f'echo "$@" >>{told}')
        done = run("bash", CYCLECLOUD, env={"PATH": str(programs), "CYCLECLOUD_SPEC_PATH": str(tmp_path / "spec")})
        return done, told.read_text() if told.exists() else ""

    return start


def test_cyclecloud_installs_what_fits_the_nodes_slurm(node):
    done, told = node("apt-get", "aml-dist-slurm-smd24.11_1_amd64.deb", "aml-dist-slurm-smd25.11_1_amd64.deb", "aml-dist_1_amd64.deb", "libamldist0_1_amd64.deb",
                      "aml-dist-doc_1_all.deb", "libamldist-dev_1_amd64.deb")
    assert done.returncode == 0, done
    assert re.findall(r"files/(\S+?)_", told) == ["aml-dist-slurm-smd25.11", "aml-dist", "libamldist0", "aml-dist-doc"]


def test_cyclecloud_with_rpms(node):
    done, told = node("dnf", "aml-dist-slurm-0.2.0-1.slurm25.11.el9.x86_64.rpm", "aml-dist-slurm-0.2.0-1.slurm24.11.el9.x86_64.rpm",
                      "aml-dist-0.2.0-1.el9.x86_64.rpm", "aml-dist-libs-0.2.0-1.el9.x86_64.rpm", "aml-dist-devel-0.2.0-1.el9.x86_64.rpm")
    assert done.returncode == 0, done
    assert "slurm25.11" in told and "slurm24.11" not in told and "devel" not in told and "aml-dist-libs" in told


def test_cyclecloud_without_a_package_for_this_slurm(node):
    done, told = node("apt-get", "aml-dist-slurm-smd24.11_1_amd64.deb")
    assert done.returncode == 1 and "no package for Slurm 25.11" in done.stderr and told == ""


def test_cyclecloud_puts_our_prolog_and_epilog_beside_healthagents(tmp_path):
    """In CycleCloud's folders, which the cluster shares: what is there stays, and no half-written file is ever run."""
    files, slurm, settings = (tmp_path / name for name in ("spec/files", "slurm", "etc"))
    for folder in (files, slurm / "prolog.d", slurm / "epilog.d"):
        folder.mkdir(parents=True)
    theirs = {slurm / "epilog.d/10-health_epilog.sh", slurm / "epilog.d/90-imex_epilog.sh", slurm / "prolog.d/90-imex_prolog.sh"}
    for each in theirs:
        each.write_text("theirs\n")
    (files / "epilog.conf").write_text("AML_DIST_HEALTH=require\n")
    env = {"CYCLECLOUD_SPEC_PATH": str(tmp_path / "spec"), "AML_DIST_SAMPLES": str(ROOT / "contrib/health"), "AML_DIST_SLURM_CONF": str(slurm),
           "AML_DIST_SETTINGS": str(settings), "PATH": os.environ["PATH"]}
    for _ in range(2):
        assert run("bash", CYCLECLOUD.with_name("20-aml-dist-health.sh"), env=env).returncode == 0
    assert {each for each in slurm.glob("*/*")} == theirs | {slurm / "epilog.d/50-aml-dist.sh"}
    assert (slurm / "epilog.d/50-aml-dist.sh").read_bytes() == (ROOT / "contrib/health/epilog").read_bytes()
    assert os.access(slurm / "epilog.d/50-aml-dist.sh", os.X_OK) and all(each.read_text() == "theirs\n" for each in theirs)
    assert [each.name for each in settings.iterdir()] == ["epilog.conf"]
