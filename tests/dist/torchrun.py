#!/usr/bin/env python3
"""What PyTorch's torchrun does for the programs that it starts, without PyTorch: their variables, a store that holds
MASTER_PORT, and where one of them fails the end of the others: by SIGTERM, and by SIGKILL where that does not
do, here after 1 s (torchrun: 30).

torchrun.py [--hosts AGENT HOST:N,HOST:N] -n N COMMAND...
"""
import os
import shlex
import signal
import socket
import subprocess
import sys
import time


def main():
    words = sys.argv[1:]
    hosts = []
    if words[0] == "--hosts":
        agent = words[1]
        hosts = [name.split(":")[0] for name in words[2].split(",") for _ in range(int(name.split(":")[1]))]
        words = words[3:]
    n, command = int(words[1]), words[2:]
    here = [i if not hosts else hosts[:i].count(hosts[i]) for i in range(n)]
    store = socket.create_server(("", 0))
    started = []
    for rank in range(n):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(n), LOCAL_RANK=str(here[rank]),
                   LOCAL_WORLD_SIZE=str(hosts.count(hosts[rank]) if hosts else n),
                   MASTER_ADDR=hosts[0] if hosts else "localhost", MASTER_PORT=str(store.getsockname()[1]),
                   TORCHELASTIC_RUN_ID=f"test-{os.getpid()}")
        there = [agent, hosts[rank], shlex.join(command)] if hosts else command
        started.append(subprocess.Popen(there, env=env))
    failed, until = 0, None
    while any(process.poll() is None for process in started):
        failed = failed or next((p.returncode for p in started if p.returncode), 0)
        for process in started if failed and (until is None or time.monotonic() > until) else []:
            process.send_signal(signal.SIGTERM if until is None else signal.SIGKILL)
        until = until or (time.monotonic() + 1 if failed else None)
        time.sleep(0.05)
    failed = failed or next((p.returncode for p in started if p.returncode), 0)
    return 128 - failed if failed < 0 else failed


if __name__ == "__main__":
    sys.exit(main())
