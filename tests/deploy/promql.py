"""As much of PromQL as it takes to see which metrics and labels an expression uses."""

import re

TOKEN = re.compile(r"""
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*') |
    (?P<range>\[[^\]]*\]) |
    (?P<number>\d[\w.]*) |
    (?P<name>[A-Za-z_:][\w:]*) |
    (?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},]) |
    (?P<space>\s+)""", re.X)
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk", "quantile"}
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "bool", "offset", "Inf", "NaN"}


def tokens(expr):
    position = 0
    while position < len(expr):
        found = TOKEN.match(expr, position)
        if not found:
            raise ValueError(f"what is {expr[position:position + 20]!r} in {expr!r}?")
        if found.lastgroup != "space":
            yield found.lastgroup, found[0]
        position = found.end()


def uses(expr):
    """(selectors, groupings): metrics with their matchers as (label, operator, value), and the names of labels
    that the expression groups or matches by."""
    words = list(tokens(expr)) + [("end", "")]
    selectors, groupings = [], []
    i = 0
    while i < len(words):
        kind, word = words[i]
        i += 1
        if kind != "name" or word in WORDS:
            continue
        if word in GROUPING:
            if words[i][1] == "(":
                i += 1
                while words[i][1] != ")":
                    if words[i][0] == "name":
                        groupings.append(words[i][1])
                    i += 1
            continue
        if words[i][1] == "(" or word in AGGREGATIONS:  # a function
            continue
        matchers = []
        if words[i][1] == "{":
            i += 1
            while words[i][1] != "}":
                if words[i][1] != ",":
                    matchers.append((words[i][1], words[i + 1][1], words[i + 2][1][1:-1]))
                    i += 2
                i += 1
        selectors.append((word, matchers))
    return selectors, groupings


class Catalogue:
    """What there is to ask for: the table of docs/metrics.md, recording rules, and what Prometheus adds."""

    TARGET_LABELS = {"job", "run", "component", "instance"}
    SUFFIXES = ("_bucket", "_sum", "_count")

    def __init__(self, table, rules):
        self.metrics = {"up": (set(), "")}
        for line in table.splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) != 5 or not re.fullmatch(r"`\w+`", cells[0]):
                continue
            name = cells[0].strip("`")
            labels = {label.strip() for label in cells[2].split(",") if label.strip()}
            if cells[1] == "histogram":
                for suffix in self.SUFFIXES:
                    self.metrics[name + suffix] = (
                        labels | ({"le"} if suffix == "_bucket" else set()), cells[4])
            else:
                self.metrics[name] = (labels, cells[4])
        self.exported = len(self.metrics) - 1
        for rule in rules:
            if "record" in rule:
                grouped = uses(rule["expr"])[1]
                labels = set(grouped) | set().union(
                    *(self.metrics.get(name, (set(), ""))[0] for name, _ in uses(rule["expr"])[0]))
                self.metrics[rule["record"]] = (labels, "")

    def problems(self, expr):
        selectors, groupings = uses(expr)
        if not selectors:
            yield f"{expr!r} asks for no metric"
        labels = set(self.TARGET_LABELS)
        for name, matchers in selectors:
            if name not in self.metrics:
                yield f"nobody exports {name}"
                continue
            own, meaning = self.metrics[name]
            labels |= own
            for label, _, value in matchers:
                if label not in own | self.TARGET_LABELS:
                    yield f"{name} has no label {label}"
                # The table says which values there are; those of code are gRPC's.
                elif label in own and meaning and label != "code" and not value.startswith("$"):
                    for word in value.split("|"):
                        if not re.search(rf"\b{re.escape(word)}\b", meaning):
                            yield f"{name} has no {label} {word}"
        for label in groupings:
            if label not in labels:
                yield f"{expr!r} groups by {label}, which nothing in it has"
