"""nvfp4.cpp for Conan 2: `conan create packaging/conan -s compiler.cppstd=20`. What the library needs comes from the
system's packages (tools/packages.txt), which Conan is told of; `-c tools.system.package_manager:mode=install`
lets it install them."""

import os
import re
import shutil

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt


class Nvfp4(ConanFile):
    name = "nvfp4"
    license = "Apache-2.0"
    description = "Quantize, convert and run NVFP4 neural networks"
    topics = ("nvfp4", "quantization", "fp4")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "command": [True, False]}
    default_options = {"shared": False, "fPIC": True, "command": True}

    @property
    def root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self.root, "CMakeLists.txt"))
        self.version = re.search(r"project\(nvfp4 VERSION ([0-9.]+)", text)[1]

    def export_sources(self):
        # By folder: copy() walks all of what is below it, which may hold builds.
        for folder in ("cmake", "data", "include", "recipes", "src", "cli"):
            copy(self, "*", os.path.join(self.root, folder), os.path.join(self.export_sources_folder, folder))
        for file in ("CMakeLists.txt", "LICENSE"):
            shutil.copy2(os.path.join(self.root, file), os.path.join(self.export_sources_folder, file))

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        Apt(self).check(["libhwy-dev", "libfmt-dev", "nlohmann-json3-dev", "libpcre2-dev", "libre2-dev",
                         "libyaml-cpp-dev", "libeigen3-dev", "libcli11-dev", "libxxhash-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("CUDA", "TESTS", "BENCH", "EXAMPLES", "WERROR"):
            toolchain.cache_variables[f"NVFP4_{part}"] = "OFF"
        toolchain.cache_variables["NVFP4_UNITY"] = "ON"
        toolchain.cache_variables["NVFP4_CLI"] = "ON" if self.options.command else "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # Its own package file finds the libraries of the system, too.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "nvfp4")]
