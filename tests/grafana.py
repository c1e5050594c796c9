"""Checks the Grafana dashboard: grafana.py DASHBOARD RULES writes its queries as a rules file for promtool."""

import json
import sys

# Types of the fields of a dashboard and of a panel, as Grafana's dashboard schema (version 39) has them.
DASHBOARD = {
    "title": str, "uid": str, "schemaVersion": int, "panels": list, "templating": dict, "time": dict, "refresh": str,
    "tags": list, "annotations": dict, "timezone": str, "editable": bool,
}
PANEL = {
    "id": int, "title": str, "type": str, "datasource": dict, "gridPos": dict, "targets": list, "fieldConfig": dict,
    "options": dict,
}
WIDTH = 24


def check(what, value, schema):
    for name, kind in schema.items():
        assert isinstance(value.get(name), kind), f"{what}: {name} is no {kind.__name__}"


def cells(panel):
    place = panel["gridPos"]
    check(panel["title"], place, {"x": int, "y": int, "w": int, "h": int})
    assert 0 <= place["x"] and place["x"] + place["w"] <= WIDTH, f"{panel['title']}: beyond the grid"
    columns = range(place["x"], place["x"] + place["w"])
    return {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        dashboard = json.load(file)
    check("the dashboard", dashboard, DASHBOARD)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    taken, ids, rules = set(), set(), []
    for panel in dashboard["panels"]:
        title = panel["title"]
        check(title, panel, PANEL)
        assert panel["type"] in ("stat", "timeseries"), f"{title}: {panel['type']}"
        assert panel["id"] not in ids, f"{title}: its id is taken"
        ids.add(panel["id"])
        place = cells(panel)
        assert not taken & place, f"{title}: it covers another panel"
        taken |= place
        assert panel["targets"], f"{title}: no query"
        for target in panel["targets"]:
            check(title, target, {"refId": str, "expr": str, "legendFormat": str, "datasource": dict})
            assert "$job" in target["expr"] and variables >= {"job", "datasource"}, f"{title}: no variable job"
            rules.append({"record": f"panel:{len(rules)}", "expr": target["expr"].replace("$job", ".*")})
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump({"groups": [{"name": "panels", "rules": rules}]}, file, indent=1)
    print(f"dashboard: {len(ids)} panels with {len(rules)} queries")


main()
