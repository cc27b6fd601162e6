"""Machines made of Linux namespaces, on a network of their own: nothing of this host's network,
/tmp or homes is theirs.

    with Network() as network:
        with network.machine("worker-1", shared=folder) as worker:
            worker.start("conf/deploy/entrypoint.sh worker spark://master:7077", log)

Whoever has the network is in it, too, as the host `outside`: its sockets, and those of the programs
that it starts, are on the bridge. A machine has network, mounts, processes and host name of its
own. Its install is this project under the same path, its changes are its own (an overlay); STORE is
the one folder that they may share. As on Debian, its own name stands for a loopback address.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from lb_stream.io.local.jars import default_folder
from lb_stream.io.local.java import find_java
from tests.support.killing import processes

PROJECT = Path(__file__).parents[3]
STORE = "/mnt/lb-stream"
OUTSIDE = "10.77.0.1"
HIDDEN = ("/tmp", "/var/tmp", "/home", "/root", "/srv", "/media")
"""Folders of this host of which a machine has empty ones of its own."""
CORES = 1
"""Of each machine, as Spark sees it: every core has Python workers of its own, which take seconds
of all machines' cores to start."""
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_OWN = ("--net", "--mount", "--uts", "--ipc", "--pid")
_UNSHARED = ("unshare", *_OWN, "--fork", "--mount-proc", "--kill-child", "sh", "-c")
_TRIAL = """set -e
hostname trial
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changes /mnt/work /mnt/all
mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/changes,workdir=/mnt/work /mnt/all
ip link add lan type bridge
ip link add name to-trial type veth peer name eth0"""
"""All that takes a right, or a part of the kernel that not every system has."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_QUICK_START = "-XX:TieredStopAtLevel=1"
"""Eight JVMs of several machines start side by side on the cores of one, and live for minutes:
compiled less, they are up sooner."""
REMEDY = (
    "run as root, or with a user namespace of your own: unshare --user --map-root-user make "
    "test-cluster"
)


class NoMachines(RuntimeError):
    """Machines can't be made here, or not by this user; the text says what to do."""


def check_rights() -> None:
    """Try everything once. Raises NoMachines; what fails later is a fault."""
    if missing := [
        name
        for name in ("ip", "unshare", "nsenter", "setpriv", "mount", "hostname")
        if shutil.which(name) is None
    ]:
        raise NoMachines(
            f"no machine can be made of namespaces: {', '.join(missing)} not found (iproute2, "
            "util-linux, hostname)"
        )
    done = subprocess.run([*_UNSHARED, _TRIAL], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoMachines(f"no machine can be made of namespaces ({done.stderr.strip()}): {REMEDY}")


def _run(*command: str) -> None:
    """A command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{shlex.join(command)}` failed: {done.stderr.strip()}")


def _java() -> Path:
    return find_java().path.resolve().parent.parent


@dataclass
class Machine:
    """One of them, while it runs. `pid` is its first process."""

    name: str
    address: str
    pid: int
    _holder: subprocess.Popen[str]
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: str, log: Path) -> subprocess.Popen[bytes]:
        """Run a line of shell in the project's folder, as a user who has just logged in: no
        environment activated."""
        variables = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8", "JAVA_HOME": str(_java())}
        variables |= {
            "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", _QUICK_START),
            "SPARK_WORKER_CORES": str(CORES),
        }
        if "LB_JARS_DIR" in os.environ:
            variables["LB_JARS_DIR"] = os.environ["LB_JARS_DIR"]
        entered = [
            "nsenter",
            *_OWN,
            f"--target={self.pid}",
            f"--wd={self.at(PROJECT)}",
            "sh",
            "-c",
            command,
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(
                entered,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def said(self, command: str) -> str:
        """What a line of shell prints, run to its end."""
        entered = ["nsenter", *_OWN, f"--target={self.pid}", "sh", "-c", command]
        return subprocess.run(entered, capture_output=True, text=True, check=False).stdout.strip()

    def at(self, path: Path | str) -> Path:
        """A path of the machine as this process sees it."""
        return Path(f"/proc/{self.pid}/root{path}")

    def running(self, words: str, program: str = "java") -> list[int]:
        """Processes of a program whose command line holds these words, by the ids that this process
        knows them under."""
        found = []
        for pid in processes(self.pid) | {
            one for process in self._started for one in processes(process.pid)
        }:
            with suppress(OSError):
                arguments = (
                    Path(f"/proc/{pid}/cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
                if words in arguments and Path(f"/proc/{pid}/comm").read_text().startswith(program):
                    found.append(pid)
        return sorted(found)

    def off(self) -> None:
        """As if its power had gone: with its first process every other one is killed, and its
        network is gone."""
        if self._holder.stdin and not self._holder.stdin.closed:
            self._holder.stdin.close()
        self._holder.wait(timeout=60)
        for process in self._started:
            process.wait(timeout=60)


class Network:
    """A network namespace with a bridge; this process lives in it until the end."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.addresses = {"outside": OUTSIDE}

    def __enter__(self) -> Self:
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        if self._libc.unshare(_NEW_NETWORK):
            os.close(self._home)
            raise OSError(ctypes.get_errno(), "no network namespace can be made")
        try:
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "link", "add", "lan", "type", "bridge")
            _run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "lan")
            _run("ip", "link", "set", "lan", "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._libc.setns(self._home, _NEW_NETWORK)
        os.close(self._home)

    @contextmanager
    def machine(self, name: str, shared: Path | None) -> Iterator[Machine]:
        """A machine that knows the names of those before it; it is off at the end.

        `shared` is what all have at STORE, if anything.
        """
        address = f"10.77.0.{len(self.addresses) + 1}"
        self.addresses[name] = address
        holder = subprocess.Popen(
            [*_UNSHARED, self._boot(name, shared)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdin and holder.stdout
        if holder.stdout.readline() != "mounted\n":
            holder.kill()
            raise RuntimeError(f"the machine {name} can't be made: what it printed says why")
        (pid,) = (
            int(one)
            for one in Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        )
        end = f"to-{name}"
        try:
            _run(
                "ip",
                "link",
                "add",
                "name",
                end,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                str(pid),
            )
            _run("ip", "link", "set", end, "master", "lan", "up")
            holder.stdin.write("connected\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == "up\n", name
            machine = Machine(name, address, pid, holder)
        except BaseException:
            holder.kill()
            raise
        try:
            yield machine
        finally:
            machine.off()

    def _boot(self, name: str, shared: Path | None) -> str:
        """What a machine's first process does.

        It then waits until nobody holds its stdin: a machine goes with whoever made it.
        """
        needed = (Path(sys.base_prefix), _java(), default_folder().resolve())
        kept = [path for path in needed if any(path.is_relative_to(one) for one in HIDDEN)]
        own, project = self.addresses[name], shlex.quote(str(PROJECT))
        lines = [
            "set -e",
            f"hostname {name}",
            "mount -t tmpfs tmpfs /mnt",
            f"mkdir -p {STORE} /mnt/.own/changes /mnt/.own/work /mnt/.own/project",
            *([] if shared is None else [f"mount --bind {shlex.quote(str(shared))} {STORE}"]),
            "mount -t overlay overlay -o "
            f"lowerdir={project},upperdir=/mnt/.own/changes,workdir=/mnt/.own/work "
            "/mnt/.own/project",
        ]
        for number, path in enumerate(kept):
            lines += [
                f"mkdir /mnt/.own/{number}",
                f"mount --bind {shlex.quote(str(path))} /mnt/.own/{number}",
            ]
        lines += [
            f"mount -t tmpfs -o mode=1777 tmpfs {folder}"
            for folder in HIDDEN
            if Path(folder).is_dir()
        ]
        for number, path in enumerate(kept):
            at = shlex.quote(str(path))
            lines += [f"mkdir -p {at}", f"mount --bind -o ro /mnt/.own/{number} {at}"]
        lines += [f"mkdir -p {project}", f"mount --bind /mnt/.own/project {project}"]
        hosts = ["127.0.0.1 localhost", f"127.0.1.1 {name}"] + [
            f"{at} {other}" for other, at in self.addresses.items() if other != name
        ]
        lines += [
            f"printf '%s\\n' {shlex.join(hosts)} > /mnt/.own/hosts",
            "mount --bind /mnt/.own/hosts /etc/hosts",
        ]
        lines += [
            "echo mounted",
            "read _",
            "ip link set lo up",
            f"ip address add {own}/24 dev eth0",
            "ip link set eth0 up",
            "echo up",
        ]
        return "\n".join([*lines, "read _"])
