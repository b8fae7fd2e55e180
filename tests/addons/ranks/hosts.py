"""Two hosts on one machine: network namespaces that a veth joins, each with a name of its own. Needs root.

    with Hosts() as hosts:
        subprocess.run(hosts.command("mpich", 1, ["program", ...]), env=hosts.env("mpich"))
"""
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

AGENT = """#!/bin/sh
# What a launcher calls in place of ssh: AGENT [OPTION...] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; eval "$@"' "$host" "$@"
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lacking():
    """Why there can be no hosts here, or None."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    name = f"frugal-try-{os.getpid()}"
    try:
        ip("link", "add", "frgtry0", "type", "veth", "peer", "name", "frgtry1")
        ip("link", "del", "frgtry0")
        ip("netns", "add", name)
        ip("netns", "del", name)
    except subprocess.CalledProcessError as e:
        return f"no veth or namespace: {e.stderr.decode().strip()}"
    return None


class Hosts:
    names = ("frugal-a", "frugal-b")
    card = "frgveth"  # its name on both

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        self.agent = os.path.join(self.folder, "agent")
        with open(self.agent, "w") as f:
            f.write(AGENT)
        os.chmod(self.agent, 0o755)
        self.remove()
        for name in self.names:
            os.makedirs(f"/etc/netns/{name}", exist_ok=True)
            with open(f"/etc/netns/{name}/hosts", "w") as f:
                f.write("127.0.0.1 localhost\n10.77.0.1 frugal-a\n10.77.0.2 frugal-b\n")
            ip("netns", "add", name)
        a, b = self.names
        ip("link", "add", self.card, "netns", a, "type", "veth", "peer", "name", self.card, "netns", b)
        for i, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", self.card)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", self.card, "up")
        while not all(self.counter(i, "operstate") == "up" for i in range(2)):
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.remove()
        shutil.rmtree(self.folder)

    def end(self):
        """Nothing runs there any more."""
        for name in self.names:
            pids = subprocess.run(["ip", "netns", "pids", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for pid in pids.stdout.split():
                os.kill(int(pid), signal.SIGKILL)

    def remove(self):
        self.end()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)

    def command(self, launcher, each, words):
        """`words` on `each` ranks of both hosts; the launcher itself runs on the first."""
        hosts = ",".join(f"{name}:{each}" for name in self.names)
        if launcher == "mpich":
            start = ["mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", self.agent, "-hosts", hosts]
        else:
            start = ["mpirun.openmpi", "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca",
                     "btl_tcp_if_include", self.card, "--host", hosts]
        return [self.agent, self.names[0], shlex.join(start + ["-n", str(2 * each)] + words)]

    def env(self, launcher):
        """Without it MPICH's ranks find the memory that both hosts share, or meet on the loopback."""
        here = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.card} if launcher == "mpich" else {}
        return dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **here)

    def counter(self, host, name):
        """What the system says of the host's card."""
        done = subprocess.run(["ip", "netns", "exec", self.names[host], "cat", f"/sys/class/net/{self.card}/{name}"],
                              check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def sent(self, host):
        """Bytes that have left the host."""
        return int(self.counter(host, "statistics/tx_bytes"))

    def cut(self):
        ip("-n", self.names[1], "link", "set", self.card, "down")

    def limit(self, rate):
        """Both directions, of "1gbit"."""
        for name in self.names:
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", self.card, "root", "tbf", "rate", rate,
                            "burst", "256kb", "latency", "50ms"], check=True)
