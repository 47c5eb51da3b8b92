"""Pruning methods, one file each, controls by subject. A file registers itself; nothing else lists it."""

from sightline.core.registry import Registry
from sightline.core.selection import LayerSelector, Selector

SELECTORS: Registry[type[Selector] | type[LayerSelector]] = Registry(
    "selector", group="sightline.selectors", package="sightline.selectors", base=(Selector, LayerSelector)
)
"""Every known method. ``@SELECTORS.register("name")`` above a class is all that a new one needs."""

__all__ = ["SELECTORS"]
