"""Builds and runs tests/install/consumer with the package."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["CMAKE_PREFIX_PATH"] = self.dependencies["nvfp4"].package_folder
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join("..", "..", "..", "tests", "install", "consumer"))
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(f"./consumer {self.dependencies['nvfp4'].ref.version}", cwd=self.cpp.build.bindir, env="conanrun")
