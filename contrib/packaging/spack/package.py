# Spack's recipe of aml-dist. The source is no download: put aml-dist-VERSION.tar.gz (contrib/release) into a mirror,
#   mkdir -p mirror/aml-dist && cp aml-dist-VERSION.tar.gz mirror/aml-dist/
#   spack mirror add local mirror
# and this file into a repository of yours as packages/aml_dist/package.py (Spack 1.0 on; before: packages/aml-dist).
# Slurm is the site's own, an external package, because the plugin runs only in the release that it was built for:
#   packages: {slurm: {buildable: false, externals: [{spec: slurm@24.11.5, prefix: /usr}]}}
import os

from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage  # Spack 1.0 on
except ImportError:
    pass


class AmlDist(CMakePackage):
    """Azure ML's distributed environment on Slurm: a SPANK plugin, a collectives library and commands."""

    # Where spack was started, if no mirror has it.
    manual_download = True
    url = f"file://{os.getcwd()}/aml-dist-0.2.0.tar.gz"

    maintainers("aml-dist")
    license("Apache-2.0")

    # The checksum of the archive that contrib/release has made: spack checksum, or --no-checksum for one of your own.
    version("0.2.0")

    variant("plugin", default=True, description="Build the SPANK plugin for the site's Slurm")
    variant("tools", default=True, description="Build the commands aml-dist, aml-run and the launchers")
    variant("pmix", default=True, description="Start the library's worlds over PMIx")
    variant("mpi", default=False, description="Build the part that sends host buffers over Open MPI")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libsodium")
    depends_on("slurm@22.05:", when="+plugin")
    depends_on("cli11", when="+tools", type="build")
    depends_on("nlohmann-json", when="+tools", type="build")
    depends_on("yaml-cpp", when="+tools")
    depends_on("pmix@4:", when="+pmix")
    depends_on("openmpi@4.1:", when="+mpi")

    conflicts("%gcc@:10", msg="aml-dist needs C++20")

    def cmake_args(self):
        args = [
            self.define("AMLDIST_TESTS", False),
            self.define("AMLDIST_DEVICE", False),
            self.define_from_variant("AMLDIST_PLUGIN", "plugin"),
            self.define_from_variant("AMLDIST_TOOLS", "tools"),
            self.define_from_variant("AMLDIST_MPI", "mpi"),
        ]
        if self.spec.satisfies("+plugin"):
            args.append(self.define("SLURM_ROOT", self.spec["slurm"].prefix))
        return args
