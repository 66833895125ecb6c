#!/usr/bin/env python3
"""Driver of cloudconform for Hetzner Cloud, with two arguments: METHOD PATH. See openapi.yaml."""
import json, os, sys, time
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

API = os.environ.get("HCLOUD_ENDPOINT", "https://api.hetzner.cloud/v1")
RUN = "conform.cloudsim.dev/run"  # label for the name of the run

def call(method, path, body=None):
    headers = {"Authorization": "Bearer " + os.environ["HCLOUD_TOKEN"], "Content-Type": "application/json"}
    with urlopen(Request(API + path, json.dumps(body).encode() if body else None, headers, method=method)) as r:
        return json.loads(r.read() or "{}")

def wait(answer):
    action = answer.get("action")
    while action and action["status"] == "running":
        time.sleep(0.2)
        action = call("GET", f"/actions/{action['id']}")["action"]

def server(name):
    found = call("GET", "/servers?name=" + quote(name))["servers"]
    return found[0] if found else sys.exit(3)  # 3: the machine does not exist

def machine(s):
    place = (s.get("location") or s["datacenter"]["location"])["name"]
    addresses = [{"type": "InternalIP", "address": n["ip"]} for n in s["private_net"]]
    if s["public_net"]["ipv4"]:
        addresses.append({"type": "ExternalIP", "address": s["public_net"]["ipv4"]["ip"]})
    return {"name": s["name"], "zone": place, "region": place, "type": s["server_type"]["name"], "providerID": f"hcloud://{s['id']}",
            "addresses": addresses, "running": s["status"] == "running", "run": s["labels"].get(RUN, "")}

def balancer(lb, names):
    return {"id": str(lb["id"]), "addresses": [lb["public_net"]["ipv4"]["ip"]],
            "ports": [{"protocol": "TCP", "port": s["listen_port"], "nodePort": s["destination_port"]} for s in lb["services"]],
            "machines": [names[t["server"]["id"]] for t in lb["targets"] if "server" in t]}

out, parts = None, [unquote(p) for p in sys.argv[2].split("/")[1:]]
match [sys.argv[1], *parts]:
    case ["GET", "capabilities"]:
        out = {"provider": "hcloud", "providerIDPrefix": "hcloud://", "zones": True, "shutdown": True, "loadBalancers": True}
    case ["GET", "machines"]:
        out = [machine(s) for s in call("GET", "/servers?label_selector=" + quote(RUN))["servers"]]
    case ["POST", "machines"]:
        m = json.load(sys.stdin)
        kind = m.get("type") or call("GET", "/server_types")["server_types"][0]["name"]
        image = call("GET", "/images?type=system")["images"][0]["id"]
        wait(call("POST", "/servers", {"name": m["name"], "server_type": kind, "image": str(image), "labels": {RUN: m["run"]}}))
        out = machine(server(m["name"]))
    case ["GET", "machines", name]: out = machine(server(name))
    case ["DELETE", "machines", name]: wait(call("DELETE", f"/servers/{server(name)['id']}"))
    case ["POST", "machines", name, "stop"]: wait(call("POST", f"/servers/{server(name)['id']}/actions/poweroff"))
    case ["POST", "machines", name, "start"]: wait(call("POST", f"/servers/{server(name)['id']}/actions/poweron"))
    case ["GET", "load-balancers"]:
        names = {s["id"]: s["name"] for s in call("GET", "/servers?per_page=50")["servers"]}
        out = [balancer(lb, names) for lb in call("GET", "/load_balancers?per_page=50")["load_balancers"]]
    case ["DELETE", "load-balancers", id]: call("DELETE", f"/load_balancers/{id}")
    case _: sys.exit(4)  # 4: the driver does not support this function
print(json.dumps(out))
