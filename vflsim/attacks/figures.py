"""Figures of attacks: a bar for every protocol and setting, with the chance level."""

from collections.abc import Iterator

import numpy as np
from matplotlib.patches import Patch

from vflsim.attacks import Attack, Evaluation
from vflsim.attacks.evaluate import headline, means_of, settings_of
from vflsim.plotting import Picture, kinds_in, legend, picture, protocol_styles, remark


def attack_figures(evaluation: Evaluation) -> Iterator[tuple[str, Picture]]:
    """Yield a figure for each attack that measured something, with its kind as its name."""
    for attack in evaluation.attacks:
        if attack.kind in evaluation.tables:
            yield attack.kind, attack_figure(evaluation, attack)


def attack_figure(evaluation: Evaluation, attack: Attack) -> Picture:
    """Plot an attack's main measures, a panel for each: groups of bars are settings, a bar is a protocol.

    ``numbers``: ``means`` (protocol, the attack's options, measure, n, mean, low, high, chance): means over parties and
    then over seeds, with 95 % intervals over seeds, which end where the measure does.
    """
    table = headline(evaluation.tables[attack.kind])
    means, settings = means_of(table), settings_of(table)
    for measure, (least, greatest) in attack.ranges.items():
        ends = means.loc[means["measure"] == measure, ["low", "high"]].clip(least, greatest)
        means.loc[ends.index, ["low", "high"]] = ends
    names = list(means["protocol"].unique())
    styles = protocol_styles(kinds_in(evaluation.scenario))
    shown = [name for name in attack.drawn if (means["measure"] == name).any()]
    groups = list(dict.fromkeys(means[settings].itertuples(index=False, name=None)))
    width = 0.8 / len(names)
    across = 1.6 + 0.6 * len(groups) + 0.14 * len(groups) * len(names)
    with picture(max(4.0, across * len(shown)), 3.2, {"means": means}) as figure:
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, measure in zip(panels, shown, strict=True):
            of_measure = means[means["measure"] == measure]
            for place, name in enumerate(names):
                mine = of_measure[of_measure["protocol"] == name]
                group = [groups.index(key) for key in mine[settings].itertuples(index=False, name=None)]
                at = np.array(group) + (place - (len(names) - 1) / 2) * width
                errors = np.stack([mine["mean"] - mine["low"], mine["high"] - mine["mean"]])
                spread = errors if np.isfinite(errors).any() else None
                axes.bar(at, mine["mean"], width, yerr=spread, capsize=2, color=styles[name].color)
                axes.hlines(mine["chance"], at - width / 2, at + width / 2, color="black", linewidth=1.2)
            axes.set_xticks(range(len(groups)), [_label(settings, key) for key in groups])
            axes.grid(visible=False, axis="x")
            axes.set_ylabel(attack.measures[measure])
            if (of_measure["mean"] >= 0).all():
                axes.set_ylim(bottom=0)
            axes.set_title(attack.title if axes is panels[0] else " ", loc="left")
            seeds = len(table["seed"].unique())
            line = "; line: chance level" if of_measure["chance"].notna().any() else ""
            remark(axes, (f"mean and 95 % interval, {seeds} seeds" if seeds > 1 else "one seed") + line)
        legend(figure, [Patch(facecolor=styles[name].color) for name in names], names)
    return figure


def _label(settings: list[str], key: tuple[object, ...]) -> str:
    pairs = zip(settings, key, strict=True)
    words = (f"{name} {value:g}" if isinstance(value, float | int) else f"{value}" for name, value in pairs)
    return "\n".join(words) or "all"
