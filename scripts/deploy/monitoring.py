#!/usr/bin/env python3
"""Runs what deploy/prometheus and deploy/grafana hold.

    scripts/deploy/monitoring.py rules               each alert against the faults of deploy/prometheus/faults.yml, with promtool
    scripts/deploy/monitoring.py network PROGRAMS    a real network of the folder's programs under load (network.py), scraped by a real Prometheus with
                                                     these rules: every recording rule and every expression of a dashboard returns data, every metric
                                                     that is named is there, no alert fires, and one does when a version is taken back
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from engine import Engine, Failed, probe_image
from network import RULES, SAMPLE, Load, Network

ROOT = Path(__file__).resolve().parent.parent.parent
FAULTS = ROOT / "deploy/prometheus/faults.yml"
DASHBOARDS = ROOT / "deploy/grafana"
DOCS = ROOT / "docs/operations/monitoring.md"
# Minutes after the first sample, when a fault has lasted long enough for every alert.
AT = 45
# Panels with an expression that has data only once something has gone wrong: `taken_back` looks at it then.
LATER = {"app.json: Versions under watch, and taken back"}


# --- the rules and what they name


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return [rule["alert"] for rule in rules() if "alert" in rule]


def panels(board):
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def dashboard_expressions():
    """Each expression of each dashboard, with the dashboards' variables put in, as (place, expression)."""
    boards = sorted(DASHBOARDS.glob("*.json"))
    if not boards:
        raise Failed(f"no dashboards in {DASHBOARDS}")
    for path in boards:
        board = json.loads(path.read_text())
        variables = [one["name"] for one in board["templating"]["list"]]
        for panel in panels(board):
            for target in panel.get("targets", []):
                yield f"{path.name}: {panel['title']}", filled(target["expr"], variables)
        for one in board["templating"]["list"]:
            found = re.fullmatch(r"label_values\((.*), *\w+\)", one.get("definition", ""))
            if found:
                yield f"{path.name}: the variable {one['name']}", filled(found.group(1), variables)


def filled(expression, variables):
    """What Grafana asks when all is chosen."""
    for name in variables:
        expression = expression.replace(f"${name}", ".*")
    expression = expression.replace("$__rate_interval", "1m")
    if "$" in expression:
        raise Failed(f"an unknown variable in: {expression}")
    return expression


def expressions():
    for rule in rules():
        yield f"rules.yml: {rule.get('alert', rule.get('record'))}", rule["expr"]
    yield from dashboard_expressions()


def recorded():
    """What has to return data: alerts return something in their faults alone."""
    for rule in rules():
        if "record" in rule:
            yield f"rules.yml: {rule['record']}", rule["expr"]
    yield from dashboard_expressions()


SELECTOR = re.compile(r"(fdn_[a-z0-9_]+)(\{[^}]*\})?")


# --- promtool


def check_rules():
    run(["promtool", "check", "config", SAMPLE])
    described = yaml.safe_load(FAULTS.read_text())
    healthy, faults = described["healthy"], described["faults"]
    tests = [case("the healthy network", healthy, {}, AT, [])]
    for fault in faults:
        tests.append(case(fault["fault"], healthy, fault["series"], fault.get("at", AT), fault["fires"]))
    with tempfile.TemporaryDirectory(prefix="fdn-rules-") as folder:
        test = Path(folder) / "test.yml"
        test.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "3m", "tests": tests}))
        run(["promtool", "test", "rules", test])
    missing = set(alerts()) - {name for fault in faults for name in fault["fires"]}
    if missing:
        raise Failed(f"no fault of faults.yml fires {', '.join(sorted(missing))}")
    text = DOCS.read_text()
    missing = [name for name in alerts() if f"`{name}`" not in text]
    if missing:
        raise Failed(f"{DOCS.relative_to(ROOT)} does not tell what to do about {', '.join(missing)}")
    print(f"{len(alerts())} alerts fire in their {len(faults)} faults and no others do; none fires in the healthy network")


def case(name, healthy, changed, at, fires):
    """A test of promtool that exactly these alerts fire."""
    series = [{"series": one, "values": str(values)} for one, values in {**healthy, **changed}.items()]
    return {
        "name": name,
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{at}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(fires)],
            }
        ],
    }


def run(argv):
    done = subprocess.run([str(arg) for arg in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr)
        raise Failed(f"{argv[0]} {argv[1]} {argv[2]}")


# --- a real network


def sources():
    """Names that the sources register: whole ones, and those made of a prefix and a text of the same file or folder."""
    names = set()
    for path in [path for crate in ("bus", "controller", "dns", "edge-agent", "service") for path in (ROOT / crate).rglob("src/**/*.rs")]:
        text = path.read_text()
        literals = re.findall(r'"([a-z0-9_]+)"', text)
        names.update(literal for literal in literals if literal.startswith("fdn_"))
        prefixes = re.findall(r'format!\("(fdn_[a-z_]+)\{name\}"\)', text)
        if path.parent.name == "metrics" and path.parent.parent.parent.name == "edge-agent":
            prefixes.append("fdn_agent_")
        names.update(prefix + literal for prefix in prefixes for literal in literals)
    for path in (ROOT / "link/src").rglob("*.rs"):
        literals = re.findall(r'"([a-z0-9_]+)"', path.read_text())
        names.update(f"{program}_centre_{literal}" for program in ("fdn_agent", "fdn_dns") for literal in literals)
    return names


def has_data(series):
    """Whether a panel shows something: a number, which NaN is not."""
    return any(not math.isnan(value) for _, value in series)


def check_network(programs):
    with tempfile.TemporaryDirectory(prefix="fdn-monitoring-") as place, Engine() as engine:
        folder = Path(place)
        image = probe_image(engine, folder)
        with Network(programs, folder, engine) as network:
            network.until("all processes are scraped", network.scraped)
            network.until("the cluster has its head", lambda: network.ask("fdn_cluster_head == 1"))
            with Load(network, image) as load:
                look_at_data(network, load)
                look_at_names(network)
                healthy(network)
                taken_back(network, load)
                load.check()
                print(f"load: {load.told()}")


def look_at_data(network, load):
    """Every recording rule and every expression of a dashboard returns data while the network is used."""
    waiting = {expression: place for place, expression in recorded() if place not in LATER}
    asked = len(waiting)

    def look():
        load.check()
        for expression in [one for one in waiting if has_data(network.ask(one))]:
            del waiting[expression]
        return not waiting

    try:
        network.until("data", look)
    except Failed as reason:
        listed = "\n".join(f"{place}: {expression}" for expression, place in waiting.items())
        raise Failed(f"{reason}; without data:\n{listed}") from reason
    print(f"{asked} expressions of recording rules and dashboards return data under load")


def look_at_names(network):
    """Everything that is named is there, alerts included, or registered: what no healthy network counts."""
    named, registered, unseen, lost = set(), sources(), set(), []
    for place, expression in expressions():
        network.ask(expression)
        for name, labels in SELECTOR.findall(expression):
            named.add(name)
            if network.ask(f"count({name}{labels})"):
                continue
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            # A counter with labels is there from its first event on; anything else that is not there has no such name.
            if network.ask(f"count({name})"):
                if not name.endswith("_total"):
                    lost.append(f"{place}: {name} has no series {labels}")
            elif base not in registered:
                lost.append(f"{place}: no process has {name}")
            else:
                unseen.add(name)
    lost += [f"{name} is registered, and no process shows it" for name in sorted(unseen) if not name.endswith(("_total", "_bucket", "_sum", "_count"))]
    if lost:
        raise Failed("names that are not there:\n" + "\n".join(lost))
    print(f"{len(named)} metrics are named; {len(named) - len(unseen)} of them were scraped")
    print(f"not seen, as nothing of the kind happened, but registered: {', '.join(sorted(unseen))}")


def healthy(network):
    firing = network.firing()
    if firing:
        raise Failed(f"alerts fire in a healthy network: {firing}")
    pending = {labels["alertname"] for labels, _ in network.ask('ALERTS{alertstate="pending"}')}
    print(f"no alert fires; pending: {', '.join(sorted(pending))}")


def taken_back(network, load):
    """A version that breaks its objective: its alert fires for it, and no other one."""
    network.fdn("objective", "set", "box", "--errors", "1", "--window", "5s", "--minimum-calls", "5")
    network.fdn("env", "set", "box", "LEVEL=worse")
    expressions = [expression for place, expression in dashboard_expressions() if place in LATER]
    if len(expressions) < len(LATER):
        raise Failed(f"no dashboard has all of {LATER}")

    def look():
        load.check()
        return "FdnVersionTakenBack" in network.firing() and all(has_data(network.ask(one)) for one in expressions)

    network.until("the alert of a version that is taken back", look)
    firing = network.firing()
    if firing != ["FdnVersionTakenBack"]:
        raise Failed(f"alerts fire that have no reason: {firing}")
    print("FdnVersionTakenBack fires for a version that broke its objective, and nothing else does")


def main():
    try:
        if sys.argv[1:] == ["rules"]:
            check_rules()
        elif len(sys.argv) == 3 and sys.argv[1] == "network":
            check_network(Path(sys.argv[2]).resolve())
        else:
            print(__doc__)
            return 2
    except Failed as reason:
        print(f"error: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
