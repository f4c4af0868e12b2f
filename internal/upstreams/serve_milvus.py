"""Become a Milvus standalone server on the loopback address.

usage: serve_milvus.py PORT DATA PROGRAMS

The package's own launcher unpacks 200 MB of programs into every data folder and
stays in front of the server as a parent. This one unpacks them once into
PROGRAMS, shared by all servers, and replaces itself by the server.
"""

import fcntl
import json
import os
import pathlib
import random
import socket
import sys

import milvus

port, data, programs = int(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


def free_port(taken):
    """A port below the range from which the kernel takes ports for clients."""
    while True:
        candidate = random.randint(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
        if candidate not in taken:
            return candidate


def internal_ports(keys):
    """The ports of the first start: the server's own record of its parts, kept
    in DATA, names them."""
    record = data / "ports.json"
    if not record.exists():
        ports = {"proxy_port": port}
        for key in keys:
            ports[key] = port if key == "proxy_port" else free_port(ports.values())
        record.write_text(json.dumps(ports))
    return json.loads(record.read_text())


programs.mkdir(parents=True, exist_ok=True)
with open(programs / "lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    milvus._initialize_data_files(str(programs))

data.mkdir(parents=True, exist_ok=True)
config = milvus.MilvusServerConfig(data_dir=str(data))
keys = [key for key in config.configurable_items if key.endswith("_port")]
ports = internal_ports([*keys, "metrics_port", "etcd_peer_port"])
for key in keys:
    config.set(key, ports[key])
config.resolve_storage()

etcd = {
    "name": "default",
    "data-dir": config.get("etcd_data_dir"),
    "listen-client-urls": f"http://127.0.0.1:{ports['etcd_port']}",
    "advertise-client-urls": f"http://127.0.0.1:{ports['etcd_port']}",
    "listen-peer-urls": f"http://127.0.0.1:{ports['etcd_peer_port']}",
    "initial-advertise-peer-urls": f"http://127.0.0.1:{ports['etcd_peer_port']}",
    "initial-cluster": f"default=http://127.0.0.1:{ports['etcd_peer_port']}",
}
etcd_file = data / "configs" / "etcd.json"
etcd_file.write_text(json.dumps(etcd))
config.template_text = config.template_text.replace(
    "\netcd:\n", f"\netcd:\n  config:\n    path: {etcd_file}\n"
).replace("\n  ip: #", "\n  ip: 127.0.0.1 #")
config.write_config()

bin_dir = programs / "bin"
environment = dict(
    os.environ,
    DEPLOY_MODE="STANDALONE",
    METRICS_PORT=str(ports["metrics_port"]),
    MILVUS_RUN_DIR=str(data / "run"),
    LD_LIBRARY_PATH=f"{bin_dir}:{os.environ.get('LD_LIBRARY_PATH', '')}",
)
os.chdir(data)
os.execve(bin_dir / "milvus", [str(bin_dir / "milvus"), "run", "standalone"], environment)
