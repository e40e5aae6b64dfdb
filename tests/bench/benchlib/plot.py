"""Plots with logarithmic axes as SVG, with nothing but the standard library."""

import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 370, 64, 20, 74, 52
COLOURS = ("#1f6fb4", "#c4541b", "#3a8f3a")


class Panel:
    """One pair of logarithmic axes; series are lists of (x, y, label of the point or '')."""

    def __init__(self, title, x_title, y_title, series):
        self.title, self.x_title, self.y_title, self.series = title, x_title, y_title, series
        xs = [point[0] for points in series.values() for point in points]
        ys = [point[1] for points in series.values() for point in points]
        self.x_range = (math.log10(min(xs)), math.log10(max(xs)))
        self.y_range = (math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 1e-9))

    def x(self, value):
        low, high = self.x_range
        return LEFT + (math.log10(value) - low) / (high - low or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        low, high = self.y_range
        return HEIGHT - BOTTOM - (math.log10(value) - low) / (high - low or 1) * (HEIGHT - TOP - BOTTOM)

    def apart(self, ticks):
        """Those whose labels do not lie over one another; the last is among them."""
        shown = []
        for tick in reversed(ticks):
            if not shown or self.x(shown[-1]) - self.x(tick) >= 44:
                shown.append(tick)
        return shown

    def draw(self, shift):
        out = [f'<g transform="translate({shift},0)">',
               f'<text x="{LEFT}" y="20" font-weight="bold">{self.title}</text>',
               f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{self.x_title}</text>',
               f'<text transform="translate(14,{(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{self.y_title}</text>']
        for power in range(self.y_range[0], self.y_range[1] + 1):
            y = self.y(10.0 ** power)
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** power:g}</text>')
        ticks = sorted({point[0] for points in self.series.values() for point in points})
        for tick in self.apart(ticks):
            out.append(f'<text x="{self.x(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:,}</text>')
        for colour, (name, points), row in zip(COLOURS, self.series.items(), range(len(COLOURS)), strict=False):
            path = " ".join(f"{self.x(px):.1f},{self.y(py):.1f}" for px, py in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            out += [f'<circle cx="{self.x(px):.1f}" cy="{self.y(py):.1f}" r="3" fill="{colour}"/>' for px, py in points]
            out.append(f'<text x="{LEFT}" y="{40 + 16 * row}" fill="{colour}">{name}</text>')
        return "\n".join([*out, "</g>"])


def draw(panels):
    body = "\n".join(panel.draw(index * WIDTH) for index, panel in enumerate(panels))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def callback_panels(rows):
    """Memory of the plugin's part in srun and in one task, and TF_CONFIG up to the size that is refused."""
    def of(option, value):
        return [(row["nodes"], value(row)) for row in rows
                if row["option"] == option and row["distribution"] == "block" and not row["refused"]]
    memory = {"srun, KiB": of("pytorch", lambda row: row["srun"]["bytes"] / 1024),
              "slurmstepd, KiB": of("pytorch", lambda row: row["node"]["bytes"] / 1024),
              "one task, KiB": of("pytorch", lambda row: row["task"]["bytes"] / 1024)}
    configs = {"TF_CONFIG, KiB": of("tensorflow", lambda row: row["tf_config"] / 1024),
               "one task's time, ms": of("tensorflow", lambda row: row["task"]["us"] / 1000)}
    return [Panel("Memory asked for, pytorch", "nodes of 8 tasks", "KiB", memory),
            Panel("tensorflow, to the limit of 128 KiB", "nodes of 8 tasks", "KiB or ms", configs)]


def draw_scale(results):
    """The questions of tests/bench/scale side by side."""
    explained = results["explain"]
    panels = [Panel("All tasks' environments", "nodes of 8 tasks", "seconds or MiB",
                    {"time of explain --json, s": [(row["nodes"], row["explain_s"]) for row in explained],
                     "peak memory, MiB": [(row["nodes"], row["explain_MiB"]) for row in explained]})]
    plans, environments = {}, {}
    for row in results["environment"]["rows"]:
        if row["table"] == "environment" and row["kind"] == "pytorch" and row["distribution"] == "block":
            plans[int(row["nodes"])] = row["plan_us"]["median"]
            environments[int(row["nodes"])] = row["environment_us"]["median"]
    if plans:
        panels.append(Panel("In slurmstepd, pytorch", "nodes of 8 tasks", "microseconds",
                            {"plan, once per node": sorted(plans.items()),
                             "environment, once per task": sorted(environments.items())}))
    panels += callback_panels(results["callbacks"])
    if results["live"]:
        panels.append(Panel("srun -N n true, slurmds on one host", "nodes", "seconds",
                            {"without the option": [(row["nodes"], row["without_s"]) for row in results["live"]],
                             "--aml-dist=pytorch": [(row["nodes"], row["with_s"]) for row in results["live"]]}))
    return draw(panels)
