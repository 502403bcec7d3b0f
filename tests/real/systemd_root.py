#!/usr/bin/python3
"""A root folder with a bootable systemd, for tests in systemd-nspawn; made once, kept in the tests' cache folder.

  systemd_root.py            make it where it is not there yet, and print its path

It is of the same release as this machine, with the libraries that kldump is linked with: programs built here run
inside.  Tests boot it with --volatile=overlay and leave it as it is.  Exit status 3: this machine lacks something
(root, debootstrap, a package mirror), and one line says what.
"""
import argparse
import os
import platform
import re
import shutil
import subprocess

import cache_folder
from cache_folder import Failed, Missing

PACKAGES = "systemd systemd-sysv dbus libpam-systemd dbus-user-session procps python3-minimal".split()
# Their runtime packages are named differently from release to release; each of these depends on its own.
LIBRARIES = "libuv1-dev libcurl4-openssl-dev libcjson-dev libinih-dev libsystemd-dev".split()
ROOT_BYTES = 2**30


def runtime_package(development_package):
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Depends}", development_package], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False)
    found = re.search(r"(?:^|, )(lib[\w.+-]+) \(= ", shown.stdout)
    if found is None:
        raise Missing(f"the package {development_package}")
    return found.group(1)


def mirror(release):
    """The site that this machine's own apt takes RELEASE from."""
    shown = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {release}",
                            "Component: main"], stdout=subprocess.PIPE, text=True, check=False)
    sites = shown.stdout.split()
    if not sites:
        raise Missing(f"a package mirror of {release} in apt's configuration")
    return sites[0]


def make(directory):
    if os.geteuid() != 0:
        raise Missing("root, to make a root folder that boots")
    if shutil.which("debootstrap") is None:
        raise Missing("the program debootstrap (package debootstrap)")
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    site, packages = mirror(release), PACKAGES + [runtime_package(name) for name in LIBRARIES]
    cache_folder.require_free_space(directory.parent, ROOT_BYTES)
    cache_folder.begin(directory)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, str(directory / "root"), site]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        unreachable = re.search(r"^E: (Failed getting release file|Couldn't download|Invalid Release).*", done.stdout, re.M)
        if unreachable:
            raise Missing(f"a package mirror that answers ({unreachable.group()})")
        raise Failed(f"{' '.join(command)}\n{done.stdout[-2000:]}")
    for archive in (directory / "root/var/cache/apt/archives").glob("*.deb"):
        archive.unlink()
    cache_folder.finish(directory, {"release": release, "packages": packages})


def systemd_root():
    """The path of the root folder, made where it was not there yet.  Missing or Failed otherwise."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    directory = cache_folder.cache_root() / f"systemd-{release}"
    with cache_folder.locked(directory):
        if cache_folder.finished(directory) is None:
            make(directory)
    return directory / "root"


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(systemd_root())


if __name__ == "__main__":
    cache_folder.run_as_program(main)
